"""OpenRLHF 0.11.2 where flash-attn is not installed: ``openrlhf/models/ring_attn_utils.py`` imports it in any case.

Its functions are called with packed samples only, which are not asked for then (`translate._model`); if they were, the
stand-ins say so. Can go when OpenRLHF imports flash-attn where it uses it.
"""

import importlib.util
import sys
import types
from importlib.machinery import ModuleSpec

USED = {
    "flash_attn": (),
    "flash_attn.bert_padding": ("index_first_axis", "pad_input", "rearrange", "unpad_input"),
    "flash_attn.utils": (),
    "flash_attn.utils.distributed": ("all_gather",),
}


def install():
    """Stand-ins for the modules that OpenRLHF imports; where flash-attn is there, nothing."""
    if "flash_attn" in sys.modules or importlib.util.find_spec("flash_attn") is not None:
        return
    for name, functions in USED.items():
        module = types.ModuleType(name)
        module.__spec__ = ModuleSpec(name, None, is_package=not functions)
        if not functions:
            module.__path__ = []
        for function in functions:
            setattr(module, function, missing)
        sys.modules[name] = module


def missing(*args, **kwargs):
    raise RuntimeError("flash-attn is not installed: no packed samples and no ring attention")
