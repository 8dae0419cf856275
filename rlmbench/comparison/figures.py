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
    replaced: list[str] = Field(
        default_factory=list,
        description="Ids of interrupted attempts of the same campaign that it was made in place of; they count as no runs.",
    )


class StageFigures(Figures):
    """Driver seconds in a stage per measured step, mean over steps, then over runs; its tokens likewise. Means, so that they add up: all
    stages + unattributed_s - overlap_s = step_s."""

    seconds: float
    share: float = Field(description="Of the step.")
    valid_tokens: float | None = Field(description="Per step; null where the stage counts none.")
    computed_tokens: float | None = Field(description="Per step, padding included.")
    peak_bytes: int | None = Field(description="Highest of any run: the device's reserved memory, or the host's resident set.")
    model_flops: float | None = Field(
        default=None, description="Per step, mean over runs; null where the stage computes nothing, or is unknown."
    )
    achieved_flops_per_s: float | None = Field(default=None, description="model_flops over the stage's seconds, all devices together.")
    mfu: float | None = Field(default=None, description="Against the basis that the configuration names.")
    cpu_idle: float | None = Field(default=None, description="While any process runs the stage, over all nodes; mean over runs.")
    host_rss_peak_bytes: float | None = Field(
        default=None, description="Resident sets of all processes of a node at once; highest of any run."
    )
    device_peak_bytes: float | None = Field(default=None, description="Memory in use on a device, by the device; highest of any run.")
    energy_j: float | None = Field(default=None, description="Of all devices, per step; mean over runs.")


class Reason(Figures):
    """Why a pair is not simply comparable: one sentence with its evidence. `kind` is a name for programs."""

    kind: str
    severity: Severity
    sentence: str


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
    reasons: list[Reason] = Field(
        default=[], description="What its own runs say against its figures, whatever it is compared with; each of its pairs has them, too."
    )
    step_model_flops: float | None = Field(default=None, description="Mean over runs.")
    step_mfu: float | None = Field(default=None, description="Mean over runs; null where the device is unknown and nothing was measured.")
    mfu_basis: str | None = Field(default=None, description="datasheet where the device is known, else measured.")
    work_depth_ratio: float | None = Field(default=None, description="Measured step over the least one of the placement; mean over runs.")
    cpu_idle: float | None = Field(default=None, description="Mean over runs, as are the next four; null where none recorded it.")
    others_cpu_cores: float | None = Field(default=None, description="Cores kept busy by others than the run, over all nodes.")
    low_sm: float | None = None
    energy_j_per_step: float | None = None
    energy_j_per_1000_response_tokens: float | None = None
    host_pss_peak_bytes: float | None = Field(
        default=None, description="All processes of a node at once, shared pages counted once, in measured steps; highest of any run."
    )
    device_peak_bytes: float | None = Field(default=None, description="Memory in use on a device, by the device; highest of any run.")
    unattributed_s: float | None
    overlap_s: float | None = Field(
        default=None, description="Seconds of a step in which a stage ran beside another, and is counted in both; mean over runs."
    )
    peak_bytes: int | None = Field(
        description="Highest of any run: the device's reserved memory of one process, else host memory of all processes at once (of one, in older records)."
    )


class Difference(Figures):
    """One thing in which two configurations differ in effect."""

    subject: str = Field(description="For a person.")
    name: str = Field(description="For a program: field.<name>, trait.<name>, fact.<name>, stage.<name>, or a measured figure.")
    a: str
    b: str
    changes: Effect = Field(description="work: what is computed; numbers: what the optimizer sees; neither: how the same is done.")
    why: str
    unify: str | None = Field(description="How both could get the same; null where nothing can be set.")


class Slope(Figures):
    """By how many per cent seconds grow with 1% more of a covariate, within a run, with its 95% interval."""

    value: float
    low: float | None
    high: float | None


class Adjustment(Figures):
    """How rates were moved to equal tokens, where response lengths were left to the model (docs/comparison.md)."""

    slopes: dict[str, Slope] = Field(
        description="By covariate: tokens of a step, longest response of a step; one that does not vary is left out."
    )
    at_tokens: float = Field(description="Tokens of a step at which the two are compared.")
    tokens_a: float = Field(description="Tokens of a step that a made, geometric mean.")
    tokens_b: float
    unadjusted_ratio: float = Field(description="Mean tokens/s of a over that of b as they were.")


class WithoutWaits(Figures):
    """What a ratio would be about, if those that wait for at least a tenth of their step (stage `wait`) did not."""

    of: dict[str, float] = Field(description="Those that wait so long, each with the share of its step.")
    ratio: float = Field(description="The pair's ratio, with each of their steps shorter by its mean wait.")


class Speed(Figures):
    """How fast a is beside b, by tokens per second over runs."""

    ratio: float = Field(description="Mean tokens/s of a over that of b; at equal tokens where `adjustment` is given.")
    low: float | None = Field(description="95% interval; null unless both have two runs.")
    high: float | None
    p: float = Field(description="Exact permutation test over runs, two-sided.")
    attainable_p: float = Field(description="The smallest p that so many runs can give.")
    runs_a: int
    runs_b: int
    verdict: SpeedVerdict = Field(description="About a.")
    within_minimum_effect: bool = Field(description="The whole interval lies within the minimum effect: no difference worth the name.")
    adjustment: Adjustment | None = Field(default=None, description="Null where the work was equal, or could not be made so.")
    without_waits: WithoutWaits | None = Field(default=None, description="Null where neither waits for at least a tenth of its step.")


class Pair(Figures):
    """Two configurations beside each other."""

    a: str
    b: str
    verdict: Verdict
    reasons: list[Reason]
    speed: Speed | None = Field(description="Null where a speed claim is refused.")
    differences: list[Difference]


class Alone(Figures):
    """A configuration that nothing stands beside, though a baseline was given."""

    key: str
    sentence: str = Field(description="What there is no run of.")


GateOutcome = Literal["passed", "slower", "missing", "not judged"]


class GatePair(Figures):
    """One configuration before the gate: `a` is judged, `b` is its baseline."""

    a: str
    b: str
    outcome: GateOutcome
    sentence: str


class Gate(Figures):
    """What `--fail-on` came to."""

    fail_on: Literal["slower"]
    share: float = Field(description="Fewer tokens/s than the baseline's divided by 1 + share count as slower, where shown.")
    outcome: GateOutcome = Field(description="The worst: something slower, else something missing, else something not judged, else passed.")
    pairs: list[GatePair]
    missing: list[Alone] = Field(description="What stands beside nothing, so that nobody knows whether it is slower; empty when allowed.")


class Comparison(Figures):
    """What `rlmbench compare --json` prints."""

    schema_version: Literal[1] = COMPARISON_SCHEMA_VERSION
    minimum_effect: float
    alpha: float
    configurations: list[Configuration]
    baseline: list[str] = Field(
        default=[], description="Keys of the configurations that others are compared with; empty where all are with all."
    )
    pairs: list[Pair]
    pairs_left_out: int = Field(default=0, description="Pairs of one suite and scale that are not told, where configurations are many.")
    alone: list[Alone] = Field(
        default=[],
        description="With a baseline: configurations that only the baseline has, only the new runs, or of a suite that it lacks.",
    )
    gate: Gate | None = Field(default=None, description="Null unless asked for with --fail-on.")

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
