"""rlmbench: compare RL post-training frameworks on equal work.

The Python API, for notebooks and scripts::

    import rlmbench

    run = rlmbench.load("results/gsm8k_grpo/<run id>")
    run.manifest, run.steps, run.spans, run.samples, run.updates, run.native   # pandas frames, read when first asked for
    rlmbench.summarize(run).stages_s                                           # the figures that the reports print

Nothing heavy is imported before it is needed.
"""

from __future__ import annotations

TYPE_CHECKING = False  # not from typing: that import alone doubles the time of `rlmbench --help`
if TYPE_CHECKING:
    from pathlib import Path

    from rlmbench.metrics.figures import RunSummary
    from rlmbench.records.store import Run

__version__ = "0.1.0"

__all__ = ["__version__", "load", "summarize"]


def load(path: str | Path) -> Run:
    """The run whose folder is `path`.

    Raises:
        rlmbench.errors.UserError: there is no run.
    """
    from rlmbench.records.store import load as load_run

    return load_run(path)


def summarize(run: Run) -> RunSummary:
    """The figures of `run`, derived from what it recorded (units and definitions: rlmbench.metrics)."""
    from rlmbench.metrics.summary import summarize as summarize_run

    return summarize_run(run)
