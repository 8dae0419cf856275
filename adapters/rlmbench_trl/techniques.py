"""How far TRL goes with each technique of `rlmbench.taxonomy`, as this adapter drives it (docs/frameworks/trl.md)."""

from __future__ import annotations

from collections.abc import Mapping

from rlmbench.taxonomy import Support, Technique

_NO_SPLIT = "TRL's trainers wrap whole models: no field reaches such a split."

TECHNIQUES: Mapping[str, Technique] = {
    "data": Technique(Support.RUN, "DistributedDataParallel by accelerate, ranks started by torchrun."),
    "zero1": Technique(Support.ABSENT, "FSDP has no optimizer-only sharding, and this adapter does not drive DeepSpeed."),
    "zero2": Technique(Support.TRANSLATED, "FSDP shard_grad_op; on a CPU TRL would silently stay with DDP."),
    "zero3": Technique(Support.TRANSLATED, "FSDP full_shard."),
    "tensor": Technique(Support.ABSENT, _NO_SPLIT),
    "rollout_tensor": Technique(Support.TRANSLATED, "vLLM's tensor_parallel_size, co-located or server."),
    "sequence": Technique(Support.ABSENT, _NO_SPLIT),
    "context": Technique(Support.ABSENT, _NO_SPLIT),
    "expert": Technique(Support.ABSENT, _NO_SPLIT),
    "pipeline": Technique(Support.ABSENT, _NO_SPLIT),
    "colocation": Technique(Support.RUN, "transformers' generate in the training process, or vLLM in it."),
    "shared_actor_critic": Technique(Support.ABSENT, "PPO's joint loss updates both, but policy and critic have a backbone each."),
    "disaggregation": Technique(Support.RUN, "a vLLM server; on a CPU its weights come through a folder."),
    "fusion_reward": Technique(Support.ABSENT, "the batch's rewards are computed when its generation has ended."),
    "fusion_training": Technique(Support.ABSENT, "stages follow each other in one process."),
    "hybrid_layouts": Technique(Support.TRANSLATED, "vLLM splits what DDP replicates."),
    "one_step_off": Technique(Support.ABSENT, "TRL's experimental AsyncGRPO is not driven by this adapter."),
    "bounded_asynchrony": Technique(Support.ABSENT, "TRL's experimental AsyncGRPO is not driven by this adapter."),
}
