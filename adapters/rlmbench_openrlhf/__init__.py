"""OpenRLHF behind rlmbench's interface: OpenRLHF 0.11.2, DeepSpeed training and vLLM rollouts, driven by its Ray trainer."""

from rlmbench_openrlhf.adapter import OpenRLHFAdapter

adapter = OpenRLHFAdapter()

__all__ = ["OpenRLHFAdapter", "adapter"]
