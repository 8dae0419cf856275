"""Which scale of a suite this machine can run."""

from __future__ import annotations

from rlmbench.errors import UserError, did_you_mean
from rlmbench.experiment.models import Scale, Suite

GIB = 1024**3
# Cards report less than the size they are sold by: a 24 GB card has 22.5 GiB, an 80 GB one 79.6 GiB.
NOMINAL_MEMORY_SHARE = 0.92


def require_scale(suite: Suite, name: str) -> Scale:
    """The scale called `name`.

    Raises:
        UserError: the suite has no such scale.
    """
    for known, scale in suite.scales.items():
        if known == name:
            return scale
    names = list(suite.scales)
    raise UserError(f"--scale {name}: unknown scale{did_you_mean(name, [*names, 'auto'])}; suite {suite.name} has {', '.join(names)}")


def choose_scale(suite: Suite, gpus: int, gpu_memory_bytes: int | None, requested: str = "auto", *, force: bool = False) -> tuple[str, str]:
    """The scale to run on `gpus` GPUs of `gpu_memory_bytes` each (None: not known), and a sentence that says why.

    `requested` is a scale's name, or "auto" for the largest that fits. `force` takes a named scale even where the
    machine is too small for it, for looking at a configuration without running it.

    Raises:
        UserError: an unknown scale, one that this machine lacks the GPUs for, or nothing that fits.
    """
    if requested != "auto":
        scale = require_scale(suite, requested)
        if scale.devices > gpus and not force:
            raise UserError(
                f"--scale {requested}: needs {_gpus(scale.devices)}, this machine has {_machine(gpus, gpu_memory_bytes)}; --scale auto picks one that fits"
            )
        return requested, _asked_for(requested, scale, gpus, gpu_memory_bytes)
    by_size = sorted(suite.scales.items(), key=lambda item: item[1].devices, reverse=True)
    too_large: list[str] = []
    for name, scale in by_size:
        lack = _lack(scale, gpus, gpu_memory_bytes)
        if lack is None:
            why = f"{name} is the largest scale that fits {_machine(gpus, gpu_memory_bytes)}"
            return name, f"{why}: {too_large[-1]}" if too_large else why
        too_large.append(f"{name} needs {lack}")
    raise UserError(f"no scale of suite {suite.name} fits {_machine(gpus, gpu_memory_bytes)}: {too_large[-1]}")


def _asked_for(name: str, scale: Scale, gpus: int, memory: int | None) -> str:
    lack = _lack(scale, gpus, memory)
    return f"{name} was asked for" + (f", although it needs {lack} and this machine has {_machine(gpus, memory)}" if lack else "")


def _lack(scale: Scale, gpus: int, memory: int | None) -> str | None:
    """What the machine lacks for `scale`, or None if it fits."""
    if scale.devices > gpus:
        return _gpus(scale.devices)
    if scale.devices and memory is not None and memory < NOMINAL_MEMORY_SHARE * scale.device_memory_gib * GIB:
        return f"{scale.device_memory_gib:g} GiB of memory per GPU"
    return None


def _machine(gpus: int, memory: int | None) -> str:
    if gpus == 0:
        return "a CPU (no GPU was found)"
    return _gpus(gpus) + ("" if memory is None else f" of {memory / GIB:.1f} GiB")


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"
