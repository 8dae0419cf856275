"""NVML as it answers on a real GPU, beside what nvidia-smi prints: run it with ``scripts/test -m gpu`` on a machine with an NVIDIA GPU."""

from __future__ import annotations

import subprocess

import pytest

from rlmbench.collectors.devices import open_drivers


def smi(*fields: str) -> dict[str, list[str]]:
    """UUID -> these fields, by nvidia-smi."""
    command = ["nvidia-smi", f"--query-gpu={','.join(('uuid', *fields))}", "--format=csv,noheader,nounits"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return {uuid: values for uuid, *values in ([word.strip() for word in line.split(",")] for line in lines)}


def test_samples_agree_with_nvidia_smi() -> None:
    drivers, found = open_drivers()
    if not drivers:
        pytest.skip(f"no GPU: {found[0].reason}")
    devices = drivers[0].devices()
    told = smi("memory.used", "temperature.gpu", "memory.total")
    whole = [device for device in devices if device.uuid.startswith("GPU-")]
    assert {device.uuid for device in whole} <= told.keys()
    for device in whole:
        used_mib, celsius, total_mib = map(float, told[device.uuid])
        sample = device.sample()
        assert abs(int(sample["memory_used_bytes"] or 0) / 2**20 - used_mib) <= 0.02 * total_mib
        assert abs(float(sample["temperature_c"] or 0) - celsius) <= 10
        available = {one.name for one in device.capabilities() if one.available}
        if "energy" in available:
            assert float(sample["energy_j"] or 0) > 0
        if "gpm.sm_active" in available:
            assert 0 <= float(device.sample().get("sm_active") or 0) <= 1
    drivers[0].close()
