"""How far verl goes with each technique of `rlmbench.taxonomy`, as this adapter drives it (docs/frameworks/verl.md)."""

from __future__ import annotations

from collections.abc import Mapping

from rlmbench.taxonomy import Support, Technique

_MEGATRON = "Megatron, which needs GPUs and packages that are not in rlmbench's environment."

TECHNIQUES: Mapping[str, Technique] = {
    "data": Technique(Support.RUN, "FSDP2 ranks, which shard as well."),
    "zero1": Technique(Support.TRANSLATED, f"the distributed optimizer of {_MEGATRON} FSDP2 shards everything."),
    "zero2": Technique(Support.RUN, "FSDP2 with reshard_after_forward=False: parameters stay gathered; two ranks."),
    "zero3": Technique(Support.RUN, "FSDP2."),
    "tensor": Technique(Support.TRANSLATED, _MEGATRON),
    "rollout_tensor": Technique(Support.RUN, "vLLM's tensor parallelism; two ranks."),
    "sequence": Technique(Support.TRANSLATED, f"sequence_parallel, verl's default with {_MEGATRON}"),
    "context": Technique(Support.TRANSLATED, "Ulysses under FSDP2, Megatron's context parallelism else; needs packed sequences."),
    "expert": Technique(Support.TRANSLATED, _MEGATRON),
    "pipeline": Technique(Support.TRANSLATED, _MEGATRON),
    "colocation": Technique(Support.RUN, "the V1 trainer `sync` and V0: vLLM servers on the training devices."),
    "shared_actor_critic": Technique(Support.ABSENT, "actor and critic are workers with a model each."),
    "disaggregation": Technique(Support.TRANSLATED, "the V1 trainer `separate_async` with nothing sent ahead; weights go by NCCL."),
    "fusion_reward": Technique(Support.RUN, "a sample's reward is computed when it ends, beside the generation of the others."),
    "fusion_training": Technique(Support.TRANSLATED, "the fully asynchronous trainer: samples stream from rollout into training."),
    "hybrid_layouts": Technique(Support.RUN, "vLLM TP=2 on two FSDP2 ranks, resharded each step."),
    "one_step_off": Technique(
        Support.RUN, "the V1 trainer `colocate_async`; the one-step-off trainer with devices of its own was not run."
    ),
    "bounded_asynchrony": Technique(
        Support.RUN, "`colocate_async`, two steps ahead; the fully asynchronous trainer (its bound is on prompts under way) was not run."
    ),
}
