"""What to run: suites and experiments."""

from rlmbench.experiment.models import (
    KL,
    Algorithm,
    Critic,
    Experiment,
    FixedLengths,
    LognormalLengths,
    Measurement,
    Model,
    Optimization,
    Parallelism,
    Placement,
    Prompts,
    Replay,
    Sampling,
    Scale,
    Suite,
    TraceLengths,
    Workload,
    merge,
)

__all__ = [
    "KL", "Algorithm", "Critic", "Experiment", "FixedLengths", "LognormalLengths", "Measurement", "Model", "Optimization",
    "Parallelism", "Placement", "Prompts", "Replay", "Sampling", "Scale", "Suite", "TraceLengths", "Workload", "merge",
]
