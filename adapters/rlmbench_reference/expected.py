"""What a schedule must come to, by hand: closed forms in seconds, for a steady step. Nothing here is read by the processes of a run.

With D, L, G and R for data, load, generation and reward, and C for all that a trainer does in a step (weight_sync included):

    colocated      step = sum of all parts
    fused          half of R runs beside the second half of G: step = sum - min(G, R) / 2
    disaggregated  trainers wait for L + G: step = C + L + G
    one step off,  generation of later batches runs beside training: step = max(C, L + G); who is faster waits
    asynchronous

A process that is faster by its skew waits for the slowest: the trainers before weight_sync, the rollouts until the next batch is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rlmbench_reference.schedule import LOAD, Part, Schedule


@dataclass(frozen=True)
class Expected:
    """A steady step. `stages_s` are the driver's (trainer-0), with what it awaits under the stage that runs meanwhile, and the time in
    which it waits for slower ranks under ``wait``. `busy_s` and `waiting` are of each process; `role_waiting` is the share of the step in
    which no process of the role runs a stage. `skew` is (maximum - mean) / maximum over the processes that run a stage.
    `staleness`: versions published between a batch's weights and its training.
    """

    step_s: float
    stages_s: Mapping[str, float]
    overlap_s: float
    busy_s: Mapping[str, float]
    waiting: Mapping[str, float]
    role_waiting: Mapping[str, float]
    skew: Mapping[str, float]
    staleness: int


def seconds(part: Part, rank: int, processes: int) -> float:
    """How long `part` takes in one of several processes: the last is the slowest, the first the fastest."""
    return part.seconds * (1 - part.skew * (processes - 1 - rank) / (processes - 1)) if processes > 1 else part.seconds


def expected(schedule: Schedule) -> Expected:
    """The closed form of `schedule`."""
    parts, ranks, rollouts = schedule.parts, schedule.ranks, schedule.rollouts
    trained = {stage: part for stage, part in parts.items() if stage != LOAD and not (rollouts and stage == "generation")}
    own = {stage: seconds(part, 0, ranks) for stage, part in trained.items()}
    overlap = min(parts["generation"].seconds, parts["reward"].seconds) / 2 if schedule.overlapped else 0.0
    beside = min(own["generation"], own["reward"]) / 2 if schedule.overlapped else 0.0
    trainer_s = sum(part.seconds for part in trained.values()) - overlap
    rollout_s = parts[LOAD].seconds + parts["generation"].seconds if rollouts else 0.0
    stages, loading = dict(own), 0.0
    if slower := trainer_s - (sum(own.values()) - beside):
        stages["wait"] = slower
    if not rollouts:
        step, staleness = trainer_s, 0
    elif schedule.max_staleness == 0:
        step, staleness = trainer_s + rollout_s, 0
        stages |= {"generation": parts["generation"].seconds, "weight_sync": own["weight_sync"] + parts[LOAD].seconds}
    else:
        step = max(trainer_s, rollout_s)
        staleness = schedule.max_staleness if trainer_s >= rollout_s else 1
        stages["generation"] = step - trainer_s
        if rollouts > 1 and parts["generation"].skew:
            # Who is faster has waited for the request, and loads while the driver awaits the slowest: the request's moment is the same.
            loading = min(parts[LOAD].seconds, step - trainer_s)
            stages["weight_sync"] += loading
    busy = {f"trainer-{rank}": _trainer_busy(schedule, trained, rank) for rank in range(ranks)}
    busy |= {
        f"rollout-{rank}": seconds(parts[LOAD], rank, rollouts) + seconds(parts["generation"], rank, rollouts) for rank in range(rollouts)
    }
    roles = {"trainer": trainer_s, **({"rollout": rollout_s} if rollouts else {})}
    return Expected(
        step_s=step,
        stages_s=stages,
        overlap_s=beside + loading,
        busy_s=busy,
        waiting={process: 1 - of_process / step for process, of_process in busy.items()},
        role_waiting={role: 1 - of_role / step for role, of_role in roles.items()},
        skew={stage: part.skew / 2 for stage, part in parts.items() if (rollouts if stage == "generation" and rollouts else ranks) > 1},
        staleness=staleness,
    )


def _trainer_busy(schedule: Schedule, trained: Mapping[str, Part], rank: int) -> float:
    own = {stage: seconds(part, rank, schedule.ranks) for stage, part in trained.items()}
    return sum(own.values()) - (min(own["generation"], own["reward"]) / 2 if schedule.overlapped else 0.0)
