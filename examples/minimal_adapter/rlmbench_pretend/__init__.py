"""A made-up trainer behind rlmbench's interface. It trains nothing: it is documentation (docs/adapters.md), and no framework."""

from rlmbench_pretend.adapter import PretendAdapter

adapter = PretendAdapter()

__all__ = ["PretendAdapter", "adapter"]
