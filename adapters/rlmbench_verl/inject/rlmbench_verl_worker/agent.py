"""verl's agent loop at the planned length: its official extension point (rollout.agent.agent_loop_config_path)."""

from rlmbench_plan import job
from rlmbench_probe import recorder
from rlmbench_probe.patching import guarded
from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop

BASELINE_REWARD = 0.5
"""Of ReMax's greedy response, which a plan does not hold: between the rewards of a right and a wrong answer."""


class NaturalAgentLoop(SingleTurnAgentLoop):
    """verl's own loop, in a process that says what it is."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        guarded("agent loop", recorder.become, "rollout")


class PlannedAgentLoop(NaturalAgentLoop):
    """One prompt, one response of exactly the planned length with the planned reward; the policy's log-probs are untouched.

    ReMax's greedy baseline, the one with temperature 0, has the length of its prompt's first sample.
    """

    async def run(self, sampling_params, **kwargs):
        plan, row = job().plan, int(kwargs["extra_info"]["row"])
        baseline = sampling_params.get("temperature") == 0
        sample = 0 if baseline else sample_number(kwargs, plan.group_size)
        # A copy: verl shares one mapping between the samples of a prompt.
        own = {**sampling_params, "max_tokens": plan.response_tokens(row, sample), "ignore_eos": True}
        output = await super().run(own, **kwargs)
        lookup = guarded("agent loop", recorder.start_interval, "reward", "planned_reward")
        output.reward_score = BASELINE_REWARD if baseline else plan.reward(row, sample)
        output.extra_fields["reward_extra_info"] = {}
        if lookup is not None:
            guarded("agent loop", recorder.finish_interval, lookup)
        return output


_calls = {}  # row -> how many of its samples this process was asked for


def sample_number(kwargs, group_size):
    """Which of its prompt's samples this is. V0 gives no number, but a place in the batch, where a prompt's samples are neighbours.

    The fully asynchronous trainer gives neither, and sends all samples of a prompt to one process (not run here).
    """
    if kwargs.get("session_id") is not None:
        return int(kwargs["session_id"])
    if "priority" in kwargs:
        return int(kwargs["priority"]) % group_size
    row = int(kwargs["extra_info"]["row"])
    _calls[row] = _calls.get(row, -1) + 1
    return _calls[row] % group_size
