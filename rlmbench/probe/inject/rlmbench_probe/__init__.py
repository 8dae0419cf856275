"""rlmbench's probe: spans, counters and facts of one process, appended to one file. Standard library only."""

from rlmbench_probe import logprobs, weights
from rlmbench_probe.patching import AsyncHook, Gap, Hook, after_import, replace
from rlmbench_probe.recorder import recorder

__all__ = ["AsyncHook", "Gap", "Hook", "after_import", "logprobs", "recorder", "replace", "weights"]
