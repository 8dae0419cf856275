"""A gate for CI: is something slower than its baseline? What could not be judged, or is no longer there, does not pass."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlmbench.comparison.figures import Alone, Comparison, Gate, GateOutcome, GatePair, Pair
from rlmbench.comparison.wording import ratio
from rlmbench.errors import UserError

SLOWER = "slower"


def parse_fail_on(text: str) -> float | None:
    """The share in ``slower:5%`` (also ``slower:0.05``); None in ``slower``.

    Raises:
        UserError: it is neither.
    """
    found = re.fullmatch(rf"{SLOWER}(?::(\d+(?:\.\d+)?)(%?))?", text.strip())
    if not found:
        raise UserError(f"--fail-on {text}: give slower, or slower:SHARE such as slower:5%")
    if found.group(1) is None:
        return None
    share = float(found.group(1)) / (100 if found.group(2) else 1)
    if not 0 <= share < 1:
        meant = f"; did you mean slower:{found.group(1)}%?" if not found.group(2) and share < 100 else ", such as slower:5%"
        raise UserError(f"--fail-on {text}: the share must be below 100%{meant}")
    return share


def gated(comparison: Comparison, *, allow_missing: bool = False) -> Comparison:
    """`comparison` with the gate's outcome. Each pair's `a` is what is judged, `b` its baseline; the share is the minimum effect.

    A configuration that stands beside nothing fails the gate: a framework that no longer runs at all is worse than a slower one.
    """
    pairs = [GatePair(a=pair.a, b=pair.b, outcome=_outcome(pair), sentence=_sentence(pair, comparison)) for pair in comparison.pairs]
    missing = [] if allow_missing else comparison.alone
    gate = Gate(fail_on=SLOWER, share=comparison.minimum_effect, outcome=_worst(pairs, missing), pairs=pairs, missing=missing)
    return comparison.model_copy(update={"gate": gate})


def _worst(pairs: Sequence[GatePair], missing: Sequence[Alone]) -> GateOutcome:
    """With nothing to judge, nothing has passed."""
    outcomes = {pair.outcome for pair in pairs}
    if "slower" in outcomes:
        return "slower"
    return "missing" if missing else "not judged" if "not judged" in outcomes or not outcomes else "passed"


def _outcome(pair: Pair) -> GateOutcome:
    if pair.verdict == "not comparable" or pair.speed is None or pair.speed.verdict == "too few runs":
        return "not judged"
    return "slower" if pair.speed.verdict == "slower" else "passed"


def _sentence(pair: Pair, comparison: Comparison) -> str:
    """The outcome with its evidence, and what could have been missed."""
    speed, baseline = pair.speed, f"the baseline {pair.b}"
    if pair.verdict == "not comparable":
        return f"{pair.a} was not judged beside {baseline}: {pair.reasons[0].sentence}"
    assert speed is not None
    evidence = f"{ratio(speed.ratio)} its tokens/s"
    if speed.verdict == "too few runs" or speed.low is None or speed.high is None:
        return f"{pair.a} was not judged beside {baseline}: too few runs ({speed.runs_a} and {speed.runs_b}) to show anything; so far {evidence}"
    evidence += f" (95% interval {ratio(speed.low)} to {ratio(speed.high)}, p {speed.p:.2g})"
    if speed.verdict == "slower":
        return f"{pair.a} is slower than {baseline}: {evidence}"
    missed = f"a loss of up to {1 - speed.low:.1%} is not ruled out" if speed.low < 1 else "a loss is ruled out"
    lost = [reason.sentence for reason in pair.reasons if reason.kind == "failed_runs"]
    return "; ".join(
        [f"{pair.a} is not shown to be slower than {baseline} by {100 * comparison.minimum_effect:g}% or more: {evidence}", missed, *lost]
    )
