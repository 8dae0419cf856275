"""Ceilings measured on a real GPU beside its data sheet: run it with ``scripts/test -m gpu`` on a machine with an NVIDIA GPU."""

from __future__ import annotations

import pytest

from rlmbench.adapter import find_adapter
from rlmbench.costmodel.devices import by_nvml_name
from rlmbench.environment import ceilings, devices, ensure


def test_measured_ceilings_lie_below_the_data_sheet_and_near_it(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = devices()
    if not gpus:
        pytest.skip("no GPU")
    monkeypatch.setattr(ceilings, "keep", lambda kind, name, text: None)
    spec = next(one for one in find_adapter("trl").environments() if (one.name, one.device) == ("trl", "cuda"))
    measured = ceilings.measure(ensure(spec), "trl", "cuda")
    assert len(measured) == len(gpus)
    for found in measured:
        assert found["device"] in {gpu["name"] for gpu in gpus}
        known = by_nvml_name(found["device"])
        if known is not None:
            assert 0.4 <= found["flops_per_s"]["bfloat16"] / known.flops_per_s["bfloat16"] <= 1.05
            assert 0.6 <= found["bytes_per_s"] / known.bytes_per_s <= 1.05
