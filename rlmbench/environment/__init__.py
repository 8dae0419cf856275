"""Isolated virtual environments for the frameworks, and facts about the machine they run on.

A framework is never imported by rlmbench itself: `ensure` builds the environment that its adapter describes (an
`rlmbench.adapter.EnvironmentSpec`) and hands back an interpreter; `use_python` takes one that the user already has.
"""

from rlmbench.environment.build import ensure
from rlmbench.environment.cache import Environment, State, cache_root, find, folder_of, remove, state
from rlmbench.environment.check import check, use_python
from rlmbench.environment.host import default_device, devices, gpus, host_facts, visible_count, visible_devices, why_fewer

__all__ = [
    "Environment",
    "State",
    "cache_root",
    "check",
    "default_device",
    "devices",
    "ensure",
    "find",
    "folder_of",
    "gpus",
    "host_facts",
    "remove",
    "state",
    "use_python",
    "visible_count",
    "visible_devices",
    "why_fewer",
]
