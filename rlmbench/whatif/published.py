"""Published pairs of step times: the second of each predicted from the first alone, with the tool's own defaults, and never fitted.

Sources, read in the projects' own documentation: verl docs/advance/one_step_off.md and docs/advance/fully_async.md (Qwen2.5-Math-7B,
FSDP2, H20), NeMo-RL's performance summary v0.6 (Qwen3-30B-A3B, H100). None prints response lengths or how generation scales, so
`latency_share` is the default of `rlmbench.whatif.assumptions`, and the range over its two extremes is given beside. NeMo-RL prints no
stages: they are taken in the shares of verl's co-located step in the first pair.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rlmbench.whatif.assumptions import Assumptions
from rlmbench.whatif.inputs import Inputs, fixed_inputs
from rlmbench.whatif.modes import Layout, Prediction, draw, predict
from rlmbench.whatif.search import best_split


@dataclass(frozen=True)
class Pair:
    """A measured co-located step, and what the same authors measured in another mode. `rollout` 0: the split was not published."""

    name: str
    inputs: Inputs
    devices: int
    rollout: int
    mode: str
    staleness: int
    published_s: float


@dataclass(frozen=True)
class Outcome:
    """The prediction of a pair's second figure, its relative error, and the predictions with a latency share of 0 and of 1."""

    pair: Pair
    predicted_s: float
    error: float
    split: str
    low_s: float
    high_s: float


def _verl(generation_s: float, old_logprob_s: float, update_s: float, step_s: float, devices: int) -> Inputs:
    rest = step_s - generation_s - old_logprob_s - update_s
    return fixed_inputs(
        generation_s, {"old_logprob": old_logprob_s}, {"actor_update": update_s}, devices=devices, other_s=rest, samples=8192
    )


def _nemo() -> Inputs:
    """192 s on 32 devices in the shares of verl's 749 s."""
    share = 192 / 749
    return _verl(321 * share, 88 * share, 286 * share, 192, 32)


PAIRS = (
    Pair("verl, 16 devices, one step off", _verl(321, 88, 286, 749, 16), 16, 4, "one_step_off", 1, 520),
    Pair("verl, 32 devices, fully asynchronous", _verl(357.41, 107.71, 313.81, 790.10, 32), 32, 16, "bounded_asynchrony", 1, 294.77),
    Pair("verl, 64 devices, fully asynchronous", _verl(150.72, 70.26, 133.41, 365.28, 64), 64, 32, "bounded_asynchrony", 1, 189.26),
    Pair("verl, 128 devices, fully asynchronous", _verl(177.85, 53.92, 113.81, 356.30, 128), 128, 64, "bounded_asynchrony", 1, 150.63),
    Pair("NeMo-RL, 32 devices, one step off", _nemo(), 32, 0, "one_step_off", 1, 152),
    Pair("NeMo-RL, 192 devices, eight steps off", _nemo(), 192, 0, "bounded_asynchrony", 8, 34.5),
)
"""verl's asynchronous trainer takes old log-probs from the rollout: the recomputation is dropped for it, as its documentation says."""


def outcomes() -> list[Outcome]:
    """Every pair's prediction."""
    return [_outcome(pair) for pair in PAIRS]


def _outcome(pair: Pair) -> Outcome:
    found = _predicted(pair, Assumptions())
    extremes = [_predicted(pair, Assumptions(latency_share=share)).step_s for share in (0.0, 1.0)]
    split = f"{found.layout.rollout}:{found.layout.training}" + ("" if pair.rollout else " (best)")
    return Outcome(pair, found.step_s, found.step_s / pair.published_s - 1, split, min(extremes), max(extremes))


def _predicted(pair: Pair, assumptions: Assumptions) -> Prediction:
    inputs = pair.inputs
    if pair.mode == "bounded_asynchrony" and pair.rollout:
        inputs = replace(inputs, assessment_s={})
    drawn = draw(inputs, assumptions, 40)
    layout = Layout(pair.devices, pair.rollout, pair.devices - pair.rollout, pair.staleness)
    return predict(drawn, pair.mode, layout) if pair.rollout else best_split(drawn, pair.mode, layout)
