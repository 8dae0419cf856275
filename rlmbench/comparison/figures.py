"""A comparison as data: what every format prints, and what `rlmbench compare --json` is. docs/comparison.schema.json is made from this.

An absent figure is null, never 0.
"""

from __future__ import annotations

import json
from typing import Any, Final, Literal

from pydantic import Field

from rlmbench.comparison.knowledge import Effect
from rlmbench.metrics.figures import Figures
from rlmbench.metrics.statistics import SpeedVerdict

COMPARISON_SCHEMA_VERSION: Final = 1

Verdict = Literal["comparable", "comparable with reservations", "not comparable"]
VERDICTS: tuple[Verdict, ...] = ("comparable", "comparable with reservations", "not comparable")
"""Best first."""
Severity = Literal["reservation", "prevents"]


class Interval(Figures):
    """A mean with its 95% interval. `over` says what varies: other runs, or (with a single run) the steps of that run."""

    value: float
    low: float | None
    high: float | None
    n: int = Field(description="Runs, or steps of the single run.")
    over: Literal["runs", "steps"]


class RunFigures(Figures):
    """One run of a configuration. Figures are null for a run that did not end well."""

    id: str
    path: str
    status: str
    failure_class: str | None
    failure: str | None = Field(description="One line on why it did not end well.")
    measured_steps: int
    step_s: float | None = Field(description="Mean seconds of a measured step.")
    tokens_per_s: float | None = Field(description="Prompt and response tokens of trained samples over measured step seconds.")


class StageFigures(Figures):
    """Driver seconds in a stage per measured step, mean over steps, then over runs; its tokens likewise. Means, so that they add up."""

    seconds: float
    share: float = Field(description="Of the step.")
    valid_tokens: float | None = Field(description="Per step; null where the stage counts none.")
    computed_tokens: float | None = Field(description="Per step, padding included.")
    peak_bytes: int | None = Field(description="Highest of any run: the device's reserved memory, or the host's resident set.")


class Configuration(Figures):
    """Runs that were made alike: what `a` and `b` of a pair stand for."""

    key: str = Field(description="A, B, C, ...: in order of throughput, the fastest first.")
    name: str = Field(description="Framework and version, and what tells it from the others.")
    framework: str
    version: str | None
    division: str
    suite: str
    scale: str
    algorithm: str
    device: str = Field(description="Kind and number of devices.")
    environment: str | None
    runs: list[RunFigures]
    runs_ok: int
    step_s: Interval | None
    tokens_per_s: Interval | None
    tokens_per_s_per_device: float | None
    run_spread: float | None = Field(
        description="Standard deviation of tokens/s over runs, over its mean: the noise floor. Null below 2 runs."
    )
    stages: dict[str, StageFigures]
    unattributed_s: float | None
    peak_bytes: int | None = Field(
        description="Highest of any run: the device's reserved memory of one process, else host memory of all processes at once (of one, in older records)."
    )


class Reason(Figures):
    """Why a pair is not simply comparable: one sentence with its evidence. `kind` is a name for programs."""

    kind: str
    severity: Severity
    sentence: str


class Difference(Figures):
    """One thing in which two configurations differ in effect."""

    subject: str = Field(description="For a person.")
    name: str = Field(description="For a program: field.<name>, trait.<name>, fact.<name>, stage.<name>, or a measured figure.")
    a: str
    b: str
    changes: Effect = Field(description="work: what is computed; numbers: what the optimizer sees; neither: how the same is done.")
    why: str
    unify: str | None = Field(description="How both could get the same; null where nothing can be set.")


class Speed(Figures):
    """How fast a is beside b, by tokens per second over runs."""

    ratio: float = Field(description="Mean tokens/s of a over that of b.")
    low: float | None = Field(description="95% interval; null unless both have two runs.")
    high: float | None
    p: float = Field(description="Exact permutation test over runs, two-sided.")
    attainable_p: float = Field(description="The smallest p that so many runs can give.")
    runs_a: int
    runs_b: int
    verdict: SpeedVerdict = Field(description="About a.")
    within_minimum_effect: bool = Field(description="The whole interval lies within the minimum effect: no difference worth the name.")


class Pair(Figures):
    """Two configurations beside each other."""

    a: str
    b: str
    verdict: Verdict
    reasons: list[Reason]
    speed: Speed | None = Field(description="Null where a speed claim is refused.")
    differences: list[Difference]


class Comparison(Figures):
    """What `rlmbench compare --json` prints."""

    schema_version: Literal[1] = COMPARISON_SCHEMA_VERSION
    minimum_effect: float
    alpha: float
    configurations: list[Configuration]
    pairs: list[Pair]

    @property
    def worst(self) -> Verdict | None:
        """The worst verdict of any pair; None without a pair."""
        return max((pair.verdict for pair in self.pairs), key=VERDICTS.index, default=None)

    def configuration(self, key: str) -> Configuration:
        return next(one for one in self.configurations if one.key == key)


def comparison_schema() -> dict[str, Any]:
    """JSON Schema of the object that ``rlmbench compare --json`` prints."""
    schema = Comparison.model_json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def comparison_schema_text() -> str:
    """The content of docs/comparison.schema.json."""
    return json.dumps(comparison_schema(), indent=1) + "\n"
