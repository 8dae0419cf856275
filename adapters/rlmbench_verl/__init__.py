"""verl behind rlmbench's interface: verl 0.9.1, FSDP training and vLLM rollouts, driven by its V1 trainer on Ray."""

from rlmbench_verl.adapter import VerlAdapter

adapter = VerlAdapter()

__all__ = ["VerlAdapter", "adapter"]
