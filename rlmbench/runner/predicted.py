"""The prediction of a cell before it runs: from its translation, and from what is known of this machine or of the device that is asked about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rlmbench.adapter import Translation
from rlmbench.costmodel.devices import Ceiling, Device, datasheet
from rlmbench.costmodel.prediction import Prediction, predict
from rlmbench.environment import ceilings, host_facts, visible_devices
from rlmbench.experiment import Experiment
from rlmbench.metrics.efficiency import ceilings_of
from rlmbench.workload.shapes import SHAPES


def prediction_of(
    experiment: Experiment,
    translation: Translation,
    device: str,
    *,
    device_type: Device | None = None,
    prompt_tokens: float | None = None,
) -> Prediction | None:
    """For `device` ("cpu" or "cuda") of this machine, or for devices of `device_type`. None where the model is no published shape."""
    shape = SHAPES.get(experiment.model.shape or "")
    if shape is None or translation.simulated:
        return None
    terms = as_mapping(translation)
    dtype = "bfloat16" if terms["expected_facts"].get("weights_dtype") == "bfloat16" else experiment.model.dtype
    known = (datasheet(device_type, dtype), float(device_type.memory_bytes)) if device_type else here(device, dtype)
    return predict(experiment, shape, terms, *known, prompt_tokens=prompt_tokens, one_machine=device == "cpu" and device_type is None)


def here(device: str, dtype: str) -> tuple[Ceiling | None, float | None]:
    """This machine's ceiling (the data sheet's, else the measured one; None when neither is known) and the memory of one device."""
    gpus = visible_devices() if device == "cuda" else []
    found = ceilings_of(gpus, ceilings.kept(device), dtype)
    ceiling = next((one for one in found if one.flops_per_s is not None), None)
    if device == "cuda":
        return ceiling, min((float(gpu["memory_bytes"]) for gpu in gpus if gpu["memory_bytes"]), default=None)
    host = host_facts()
    return ceiling, float(min(filter(None, (host["memory_bytes"], host["memory_limit_bytes"]))))


def as_mapping(translation: Translation) -> Mapping[str, Any]:
    """What a prediction needs of a translation, as a manifest holds it."""
    return {
        "traits": dict(translation.traits),
        "expected_facts": dict(translation.expected_facts),
        "ledger": [asdict(entry) for entry in translation.ledger],
    }
