"""Cells of the shipped suites, with single fields changed, for the adapters' tests."""

from __future__ import annotations

from typing import Any

from rlmbench.experiment import Experiment
from rlmbench.experiment.load import build_experiment, load_suite, suite_files

CELLS = [(suite, scale) for suite in sorted(suite_files()) for scale in load_suite(suite).scales]


def experiment(suite: str = "gsm8k_grpo", scale: str = "tiny", **changes: Any) -> Experiment:
    """The experiment of a suite; in the names of `changes` a double underscore stands for a dot."""
    fields = build_experiment(load_suite(suite), scale).model_dump(mode="json")
    for name, value in changes.items():
        *path, last = name.split("__")
        section = fields
        for part in path:
            section = section[part]
        section[last] = value
    return Experiment.model_validate(fields)
