"""What rlmbench itself costs a run, measured by paired runs; a record cites the latest such measurement of its machine."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class HarnessOverhead(BaseModel):
    """Median ratio of step times, measured over not measured, over interleaved pairs of runs."""

    model_config = ConfigDict(frozen=True)

    framework: str
    suite: str
    scale: str
    device: str
    ratios: list[float] = Field(description="Per pair: median step seconds with probe and collector over those without.")
    ratio: float = Field(description="Median of `ratios`.")
    low: float | None = Field(description="Lower end of a 95% interval of the median; null below 6 pairs, of which none can be given.")
    high: float | None
    steps: int = Field(description="Steps of each run, warm-up included.")
    overrides: list[str] = Field(default_factory=list, description="What --set changed.")
    measured_unix_s: float
    rlmbench: str = Field(description="The version that measured.")
