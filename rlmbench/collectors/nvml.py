"""Calling NVML (nvidia-ml-py), with its error codes turned into exceptions of ours: here and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlmbench.collectors.devices import (
    DeviceError,
    DeviceLost,
    DeviceNotFound,
    DriverMismatch,
    DriverMissing,
    NoPermission,
    NotReady,
    NotSupported,
)

_ERRORS: Mapping[str, type[DeviceError]] = {
    "UNINITIALIZED": DriverMissing,
    "DRIVER_NOT_LOADED": DriverMissing,
    "LIBRARY_NOT_FOUND": DriverMissing,
    "LIB_RM_VERSION_MISMATCH": DriverMismatch,
    "NOT_SUPPORTED": NotSupported,
    "FUNCTION_NOT_FOUND": NotSupported,
    "ARGUMENT_VERSION_MISMATCH": NotSupported,
    "DEPRECATED": NotSupported,
    "INVALID_ARGUMENT": NotSupported,
    "NO_PERMISSION": NoPermission,
    "NOT_FOUND": DeviceNotFound,
    "GPU_NOT_FOUND": DeviceNotFound,
    "GPU_IS_LOST": DeviceLost,
    "RESET_REQUIRED": DeviceLost,
    "TIMEOUT": NotReady,
    "NO_DATA": NotReady,
    "NOT_READY": NotReady,
    "IN_USE": NotReady,
    "INSUFFICIENT_SIZE": NotReady,
}
"""NVML_ERROR_<name> -> our exception; any other code is a plain DeviceError."""
FIXES: Mapping[type[DeviceError], str] = {
    DriverMissing: "install NVIDIA's driver, or give it to this container (--gpus all, NVIDIA_DRIVER_CAPABILITIES with utility)",
    DriverMismatch: "restart the machine, or load the driver's new modules",
    NoPermission: "root has it, and a container with --cap-add SYS_ADMIN",
    DeviceLost: "reset it (nvidia-smi --gpu-reset), or restart the machine",
}
RENEW = "a newer driver may have it"


class Nvml:
    """NVML with errors as exceptions of ours. `library` is the module pynvml, or what stands in for it."""

    def __init__(self, library: Any) -> None:
        self.library = library
        self._kinds = {getattr(library, f"NVML_ERROR_{name}", None): kind for name, kind in _ERRORS.items()}

    def __call__(self, name: str, *arguments: Any, **named: Any) -> Any:
        """Call the function `name`.

        Raises:
            DeviceError: of the kind that fits NVML's error code; an old binding without this function is NotSupported.
        """
        function = getattr(self.library, name, None)
        if function is None:
            raise NotSupported(f"this nvidia-ml-py has no {name}: pip install --upgrade nvidia-ml-py")
        try:
            return function(*arguments, **named)
        except self.library.NVMLError as error:
            kind = self._kinds.get(error.value, DeviceError)
            fix = RENEW if error.value == self.library.NVML_ERROR_FUNCTION_NOT_FOUND else FIXES.get(kind)
            raise kind(f"NVML: {error}{f'; {fix}' if fix else ''}") from None
