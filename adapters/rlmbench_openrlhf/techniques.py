"""How far OpenRLHF goes with each technique of `rlmbench.taxonomy`, as this adapter drives it (docs/frameworks/openrlhf.md)."""

from __future__ import annotations

from collections.abc import Mapping

from rlmbench.taxonomy import Support, Technique

TECHNIQUES: Mapping[str, Technique] = {
    "data": Technique(Support.RUN, "DeepSpeed ranks, with ZeRO-2 or ZeRO-3."),
    "zero1": Technique(Support.TRANSLATED, "ds.zero_stage 1."),
    "zero2": Technique(Support.RUN, "ds.zero_stage 2; two ranks."),
    "zero3": Technique(Support.RUN, "ds.zero_stage 3; two ranks."),
    "tensor": Technique(Support.TRANSLATED, "DeepSpeed's AutoTP, up to ZeRO-2, on GPUs."),
    "rollout_tensor": Technique(Support.TRANSLATED, "vLLM's tensor parallelism."),
    "sequence": Technique(Support.ABSENT, "AutoTP does not split sequences."),
    "context": Technique(Support.TRANSLATED, "ring attention; needs flash attention and packed sequences."),
    "expert": Technique(Support.ABSENT, "OpenRLHF has no expert parallelism."),
    "pipeline": Technique(Support.ABSENT, "OpenRLHF has no pipeline parallelism."),
    "colocation": Technique(Support.RUN, "actor, reference, critic and vLLM engines on the same devices."),
    "shared_actor_critic": Technique(Support.ABSENT, "actor and critic are Ray actors with a model each."),
    "disaggregation": Technique(Support.RUN, "vLLM engines on devices of their own; a critic gets its own too."),
    "fusion_reward": Technique(Support.RUN, "an agent computes a sample's reward when it ends, beside the generation of the others."),
    "fusion_training": Technique(Support.ABSENT, "log-probs and training wait for the batch."),
    "hybrid_layouts": Technique(Support.TRANSLATED, "vLLM splits what DeepSpeed shards."),
    "one_step_off": Technique(Support.RUN, "the asynchronous trainer, one step ahead; without a critic."),
    "bounded_asynchrony": Technique(Support.RUN, "the same, up to two steps ahead; without a critic."),
}
