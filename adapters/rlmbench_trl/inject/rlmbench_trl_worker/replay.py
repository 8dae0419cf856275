"""Makes TRL generate responses of the planned lengths, and names every sample from generation to loss.

Lengths end by stopping criteria (HF) or by ``ignore_eos`` with ``max_tokens`` per request (vLLM): logits are never
touched, so log-probs stay those of the policy. In a natural workload samples are named too, and lengths left alone.
"""

import copy
import functools
from types import SimpleNamespace

import torch
from rlmbench_plan import job
from rlmbench_probe import replace
from transformers import GenerationMixin, StoppingCriteria, StoppingCriteriaList


class PlannedLengths(StoppingCriteria):
    """Row i is finished after ``lengths[i]`` new tokens.

    transformers pads finished rows if a criterion has the attribute `eos_token_id` (generation/utils.py, `_sample`).
    """

    def __init__(self, lengths, prompt_width, device, forbidden_token=None):
        self.eos_token_id = torch.tensor([-1])
        self.lengths = torch.as_tensor(lengths, device=device)
        self.prompt_width = prompt_width
        self.forbidden_token = forbidden_token

    def __call__(self, input_ids, scores, **kwargs):
        generated = input_ids.shape[1] - self.prompt_width
        if self.forbidden_token is not None:
            # TRL's PPO takes every mask from `token != pad`, so a sampled pad token would cut the response. It is
            # replaced before the next forward, and log-probs are gathered for the token that stands there.
            sampled = (self.lengths >= generated) & (input_ids[:, -1] == self.forbidden_token)
            input_ids[sampled, -1] = self.forbidden_token + 1
        return self.lengths <= generated


class Lengths:
    """Planned lengths of the batch that ``generate`` is about to see; None lets it run free."""

    planned = None
    forbidden_token = None


def plan_lengths_in_generate():
    """HF generate follows `Lengths.planned`, and no end-of-sequence token stops a row."""

    def make(original):
        @functools.wraps(original)
        def generate(self, *args, **kwargs):
            if Lengths.planned is None:
                return original(self, *args, **kwargs)
            input_ids = kwargs["input_ids"]
            config = copy.deepcopy(kwargs["generation_config"])
            config.max_new_tokens, config.eos_token_id = max(Lengths.planned), None
            own = self.generation_config.eos_token_id
            self.generation_config.eos_token_id = None
            criterion = PlannedLengths(Lengths.planned, input_ids.shape[1], input_ids.device, Lengths.forbidden_token)
            kwargs |= {"generation_config": config, "stopping_criteria": StoppingCriteriaList([criterion])}
            try:
                return original(self, *args, **kwargs)
            finally:
                self.generation_config.eos_token_id = own

        return generate

    replace(GenerationMixin, "generate", make)


def install_group(trainer_class, *, replay, strict_order):
    """GRPO and RLOO: name the samples of each batch; with `replay` also plan their lengths."""
    import trl.trainer.grpo_trainer
    import trl.trainer.rloo_trainer

    def named(original):
        def generate_and_score(self, inputs):
            # RepeatSampler puts the samples of a prompt side by side, rank after rank.
            size, first = self.num_generations, self.accelerator.process_index * len(inputs)
            job().samples = [(row["row"], (first + i) % size) for i, row in enumerate(inputs)]
            output = original(self, inputs)
            output["rlmbench_sample"] = torch.tensor([row * size + sample for row, sample in job().samples])
            return output

        return generate_and_score

    replace(trainer_class, "_generate_and_score_completions", named)
    if strict_order:
        for module in (trl.trainer.grpo_trainer, trl.trainer.rloo_trainer):
            module.shuffle_sequence_dict = lambda batch: batch
    if replay:
        plan_lengths_in_generate()
        replace(trainer_class, "_generate_single_turn", planned_turn)
        plan_lengths_in_vllm()


def planned_turn(original):
    """Generation of one batch at its planned lengths; HF pads finished rows, so their tails are cut."""

    def generate_single_turn(self, prompt_ids, *args, **kwargs):
        lengths = job().lengths
        if self.use_vllm:
            return original(self, prompt_ids, *args, **kwargs)
        own, self.eos_token_ids, Lengths.planned = self.eos_token_ids, [-1], lengths  # no cut at an EOS inside
        try:
            result = original(self, prompt_ids, *args, **kwargs)
        finally:
            self.eos_token_ids, Lengths.planned = own, None
        responses = result[0] if isinstance(result, tuple) else result
        cut = [ids[:length] for ids, length in zip(responses, lengths)]
        return (cut, *result[1:]) if isinstance(result, tuple) else cut

    return generate_single_turn


def plan_lengths_in_vllm():
    """vLLM, in the trainer's process or behind TRL's client, gets one request per sample with its own max_tokens."""
    from trl.import_utils import is_vllm_available

    if not is_vllm_available():
        return
    from trl.generation.vllm_client import VLLMClient
    from trl.generation.vllm_generation import LLM

    def llm(original):
        def generate(self, prompts, sampling_params=None, **kwargs):
            lengths = _over_tensor_parallel_group(len(prompts))
            each = []
            for length in lengths:
                own = copy.deepcopy(sampling_params)
                own.max_tokens, own.ignore_eos = length, True
                each.append(own)
            return original(self, prompts, sampling_params=each, **kwargs)

        return generate

    def client(original):
        def generate(self, prompts, n=1, **kwargs):
            return _one_request_per_sample(functools.partial(original, self), prompts, n, kwargs)

        return generate

    replace(LLM, "generate", llm)
    replace(VLLMClient, "generate", client)


def _over_tensor_parallel_group(prompts):
    """This rank's lengths, or those of its whole tensor-parallel group, which generates together."""
    lengths = job().lengths
    if prompts == len(lengths):
        return lengths
    group = [None] * (prompts // len(lengths))
    torch.distributed.all_gather_object(group, lengths, group=job().trainer_object.vllm_generation.tp_group)
    return [length for part in group for length in part]


MOST_REQUESTS = 1024
"""Requests under way at once: as many as vLLM's scheduler takes by default (`max_num_seqs`) on the largest devices."""


def _one_request_per_sample(generate, prompts, n, kwargs):
    """The server takes one max_tokens per request. Rank 0 asks for all ranks: the step's rows in plan order."""
    from concurrent.futures import ThreadPoolExecutor

    plan = job().plan
    step = plan.rows[job().samples[0][0]]["step"]
    lengths = [length for row in plan.rows if row["step"] == step for length in row["response_tokens"]]
    kwargs["generation_kwargs"] = {**(kwargs.get("generation_kwargs") or {}), "ignore_eos": True}

    def one(index):
        return generate(prompts=[prompts[index // n]], n=1, **{**kwargs, "max_tokens": lengths[index]})

    with ThreadPoolExecutor(max_workers=min(len(lengths), MOST_REQUESTS)) as pool:
        answers = list(pool.map(one, range(len(lengths))))
    merged = {key: [item for answer in answers for item in answer[key]] for key in answers[0]}
    merged["prompt_ids"] = list(prompts)
    return merged


def install_ppo(module, *, replay, strict_order):
    """TRL 1.12's PPO module: plan order instead of its hard-coded shuffle; with `replay`, planned lengths.

    With `strict_order` also within a step, where it draws ``np.random.permutation`` over the samples for each epoch.
    """
    from torch.utils.data import DataLoader

    module.DataLoader = lambda dataset, *args, shuffle=False, **kwargs: DataLoader(dataset, *args, shuffle=False, **kwargs)
    if strict_order:
        module.np = SimpleNamespace(random=SimpleNamespace(permutation=module.np.arange))
    if not replay:
        return
    plan_lengths_in_generate()

    def rows_of(queries, pad):
        from rlmbench_plan import prompt_hash
        from rlmbench_probe import recorder

        return [job().plan.by_step_and_hash[(recorder.step, prompt_hash(ids[ids != pad].tolist()))] for ids in queries]

    def planned(original):
        def generate(model, queries, pad, config):
            Lengths.planned, Lengths.forbidden_token = [row["response_tokens"][0] for row in rows_of(queries, pad)], pad
            try:
                return original(model, queries, pad, config)
            finally:
                Lengths.planned = Lengths.forbidden_token = None

        return generate

    replace(module, "generate", planned)
