"""Peak memory of this process per span: host RSS from the kernel's high-water mark, device memory from torch."""

import os
import resource
import sys

_PAGE = os.sysconf("SC_PAGE_SIZE")


class HostMemory:
    """Resident set size now and its peak since the last reset. None where /proc does not allow it."""

    def __init__(self):
        try:
            self._statm = os.open("/proc/self/statm", os.O_RDONLY)
            self._clear = os.open("/proc/self/clear_refs", os.O_WRONLY)
            self.reset()
            self._inherited = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        except OSError:
            self._statm = self._clear = None

    def close(self):
        for descriptor in (self._statm, self._clear):
            if descriptor is not None:
                os.close(descriptor)
        self._statm = self._clear = None

    def reset(self):
        """Start a new peak: writing 5 resets the high-water mark and touches no page (proc(5), clear_refs)."""
        if self._clear is not None:
            os.pwrite(self._clear, b"5", 0)

    def peak_bytes(self):
        """Highest RSS since the last reset.

        getrusage reads the mark far cheaper than /proc/self/status, but never says less than the program that this
        process was before its exec; below that, the file is asked.
        """
        if self._clear is None:
            return None
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return (peak if peak > self._inherited else _high_water_kib()) * 1024

    def now_bytes(self):
        return int(os.pread(self._statm, 64, 0).split()[1]) * _PAGE if self._statm is not None else None


def _high_water_kib():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))


def cuda():
    """``torch.cuda`` once the framework itself has imported torch and started CUDA, else None."""
    torch = sys.modules.get("torch")
    device = getattr(torch, "cuda", None)
    return device if device is not None and device.is_initialized() else None


def uuid_of(device, index):
    """The UUID, as NVML says it, of the device that torch.cuda (`device`) calls `index`; empty where torch does not tell."""
    properties = device.get_device_properties(index)
    uuid = str(getattr(properties, "uuid", ""))
    kind = "MIG" if " MIG " in getattr(properties, "name", "") else "GPU"
    return uuid if not uuid or uuid.startswith(("GPU-", "MIG-")) else f"{kind}-{uuid}"
