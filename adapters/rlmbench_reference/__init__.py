"""A simulated framework behind rlmbench's interface: a scripted schedule of known durations, no training. It tests the measurement."""

from rlmbench_reference.adapter import ReferenceAdapter

adapter = ReferenceAdapter()

__all__ = ["ReferenceAdapter", "adapter"]
