"""Speed where response lengths were left to the model: at equal tokens, since the work was not equal."""

from __future__ import annotations

from collections.abc import Sequence

from rlmbench.comparison.configurations import Group
from rlmbench.comparison.evidence import Evidence, is_natural
from rlmbench.metrics.covariates import AtEqualTokens, Steps, at_equal_tokens


def adjusted(a: Group, b: Group, minimum_effect: float) -> AtEqualTokens | None:
    """The two at equal tokens; None under replay, and where steps are too few or too much alike to tell what a token costs."""
    if not all(is_natural(run.summary) for one in (a, b) for run in one.ok):
        return None
    return at_equal_tokens(_steps(a.ok), _steps(b.ok), minimum_effect)


def _steps(runs: Sequence[Evidence]) -> list[Steps]:
    """Of each run the measured steps whose tokens were counted; of none, where some run has no such step."""
    made = []
    for run in runs:
        tokens, longest = run.step_tokens, run.longest_response
        measured = [step for step in run.summary.steps if step.excluded is None and tokens.get(step.step) and longest.get(step.step)]
        made.append(
            Steps([step.step_s for step in measured], [tokens[step.step] for step in measured], [longest[step.step] for step in measured])
        )
    return made if all(run.seconds for run in made) else []
