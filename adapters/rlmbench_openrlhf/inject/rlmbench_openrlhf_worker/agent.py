"""OpenRLHF's single-turn agent at the planned length: its official extension point (--train.agent_func_path).

The reward is computed here, and not by OpenRLHF's --reward.remote_url: there an exception is logged and swallowed
(openrlhf/utils/agent.py, ``SingleTurnAgentExecutor.execute``), and the run ends later with another error. Here it ends the run.
"""

import importlib.util
import json
from copy import deepcopy

from openrlhf.utils.agent import SingleTurnAgentExecutor
from rlmbench_plan import job

_verifier = None


class AgentExecutor(SingleTurnAgentExecutor):
    """One prompt, one response: in a replay of exactly the planned length and reward, else the model's own and the verifier's."""

    def __init__(self):
        super().__init__(None)
        self.asked = {}  # row of the plan -> samples so far: all samples of a prompt are asked of one engine

    async def execute(self, prompt, label, sampling_params, max_length, hf_tokenizer, llm_engine, images=None):
        label = json.loads(label)
        row = label["row"]
        sample = self.asked.get(row, 0)  # before the first await, so that no other sample gets the same number
        self.asked[row] = sample + 1
        own = deepcopy(sampling_params)  # OpenRLHF shares one object between the samples of a prompt
        own.top_k = job().top_k or -1
        if job().rollout_logprobs:
            own.logprobs = 1
        if job().replay:
            own.max_tokens = job().plan.response_tokens(row, sample)
            own.ignore_eos, own.min_tokens = True, 0
        named = json.dumps({"row": row, "sample": sample})
        output = await super().execute(prompt, named, own, max_length, hf_tokenizer, llm_engine, images)
        if job().replay:
            reward = job().plan.reward(row, sample)
        else:
            ((start, end),) = output["action_ranges"]
            reward = verify(hf_tokenizer.decode(output["observation_tokens"][start:end], skip_special_tokens=True), label["answer"])
        output["reward"] = output["scores"] = reward
        return output


def verify(response, answer):
    """1.0 for the right final answer, else 0.0: rlmbench's verifier, by its file."""
    global _verifier
    if _verifier is None:
        spec = importlib.util.spec_from_file_location("rlmbench_verifier", job().verifier)
        _verifier = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(_verifier)
    return float(_verifier.score(response, answer))
