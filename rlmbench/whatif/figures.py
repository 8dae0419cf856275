"""A what-if as data: what `rlmbench whatif --json` prints. docs/whatif.schema.json is made from this.

The fields are those of `WhatIf`, `Prediction`, `Layout` and `Decode`; each says here what it is and in which unit.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final, Literal

from pydantic import Field

from rlmbench.metrics.figures import Figures
from rlmbench.whatif.result import WhatIf

WHATIF_SCHEMA_VERSION: Final = 1


class LayoutFigures(Figures):
    """Who runs where. Where a mode is not split, `rollout` and `training` are the same devices."""

    devices: int
    rollout: int = Field(description="Devices that generate.")
    training: int = Field(description="Devices that train.")
    staleness: int = Field(description="Policy versions that generation may lag behind training, in modes that run ahead.")
    tensor: int = Field(description="Devices of one rollout replica.")


class PredictionFigures(Figures):
    """One mode on one layout. Seconds are per step, over the simulated steps after the pipeline has filled."""

    mode: str
    layout: LayoutFigures
    steps: int = Field(description="Simulated steps that the figures are taken from.")
    step_s: float = Field(description="Mean.")
    p50_s: float
    p90_s: float
    p99_s: float
    ratio: float = Field(description="step_s over the measured mean, which is on `measured_devices`.")
    own_ratio: float | None = Field(
        description="step_s over that of the run's own mode on the same devices (`own`). null: that does not fit them, or this is `own` or `replay`."
    )
    tokens_per_s: float = Field(description="Prompt and response tokens.")
    tokens_per_s_per_device: float
    waiting: dict[str, float] = Field(description="Role -> share of the time in which its devices neither generate, assess nor train.")
    bubble_s: dict[str, float] = Field(description="The same in seconds per step.")
    staleness_mean: float = Field(description="Policy versions that the samples of a step are behind.")
    staleness_max: int
    memory_bytes: dict[str, int] = Field(description="Role -> bytes on one device; empty where nothing is known.")
    memory_source: Literal["measured", "cost model"] = Field(
        description="measured: the run's own peaks in the role's stages, not rescaled. cost model: what a device holds at least in this layout."
    )


class DecodeFigures(Figures):
    """What generation costs one replica: seconds per token of its longest response, per token, and per sample."""

    latency_s: float
    token_s: float
    sample_s: float
    is_static: bool = Field(description="A batch computes until its longest response has ended.")
    source: str = Field(description="How these came about.")


class AssumptionFigures(Figures):
    """One assumption, set by ``--assume NAME=VALUE`` or by default."""

    name: str
    value: bool | float | str | None = Field(description="An infinite number, which JSON lacks, as text. null: see the meaning.")
    meaning: str


class WhatIfFigures(Figures):
    """The predictions for one run."""

    run: str
    framework: str
    measured_mode: str = Field(description="The mode that the run is replayed in: its own.")
    measured_ahead: bool = Field(description="Generation ran ahead of training.")
    measured_devices: int
    measured_steps: int
    measured_step_s: float = Field(description="Mean over the measured steps.")
    replay: PredictionFigures = Field(description="The model's own word on the run as it was.")
    decode: DecodeFigures
    devices: int = Field(description="Devices that the predictions are for.")
    own: PredictionFigures | None = Field(description="The run's own mode on `devices`; null where it does not fit them.")
    predictions: list[PredictionFigures]
    impossible: dict[str, str] = Field(description="Mode -> why the run cannot tell about it.")
    best: str = Field(description="The fastest of the predictions' modes.")
    assumptions: list[AssumptionFigures] = Field(description="All of them, set or not.")
    notes: list[str]


class WhatIfDocument(Figures):
    """What ``rlmbench whatif --json`` prints as standard output's last line."""

    schema_version: Literal[1] = WHATIF_SCHEMA_VERSION
    whatif: list[WhatIfFigures]


def document(found: Sequence[WhatIf]) -> dict[str, Any]:
    """The JSON object for `found`."""
    return WhatIfDocument(whatif=[_figures(one) for one in found]).model_dump(mode="json")


def _figures(found: WhatIf) -> WhatIfFigures:
    stated = [{"name": name, "value": _finite(value), "meaning": meaning} for name, value, meaning in found.assumptions]
    return WhatIfFigures.model_validate({**asdict(found), "assumptions": stated})


def _finite(value: object) -> object:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def whatif_schema() -> dict[str, Any]:
    """JSON Schema of the object that ``rlmbench whatif --json`` prints."""
    schema = WhatIfDocument.model_json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def whatif_schema_text() -> str:
    """The content of docs/whatif.schema.json."""
    return json.dumps(whatif_schema(), indent=1) + "\n"
