"""TRL behind rlmbench's interface: GRPO and RLOO with TRL 1.16, PPO with TRL 1.12 (the last with a PPO trainer)."""

from rlmbench_trl.adapter import TRLAdapter

adapter = TRLAdapter()

__all__ = ["TRLAdapter", "adapter"]
