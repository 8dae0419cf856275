"""Records of asynchronous runs on paper: the reference framework's schedules, acted out by hand, in the on-disk form of docs/records.md.

The times follow from the schedule and from how its processes wait for each other (`reference_framework.trainer` and `.rollout`): nothing here
is `rlmbench.whatif`'s, nor the closed forms that its results are held against.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import synthetic_run

from rlmbench.records import Run, load, write_manifest
from rlmbench_reference.expected import seconds
from rlmbench_reference.schedule import LOAD, Part, Schedule

START_NS, REAL_NS = 5_000_000_000_000, 1_790_000_002_600_000_000
ORDER = ("reward", "reference_logprob", "old_logprob", "values", "advantage", "critic_update", "actor_update")
SAMPLES_WITHIN = 0.95
"""The reference framework's longest sample ends at this share of its stage."""
PROMPTS, GROUP = 4, 2


class Process:
    """A process's events; times in seconds from the start."""

    def __init__(self, role: str, rank: int, pid: int) -> None:
        self.pid, self.ids = pid, 0
        self.events: list[dict[str, Any]] = [
            {"ev": "process", "schema": 1, "pid": pid, "ppid": 1, "rank": rank, "world_size": 1, "role": role, "host": "paper",
             "boot_id": "one", "mono_ns": START_NS, "real_ns": REAL_NS, "argv": ["python"]}
        ]  # fmt: skip

    def span(self, stage: str, step: int, start_s: float, end_s: float, thread: int = 1, **more: Any) -> None:
        self.ids += 1
        self.events.append(
            {"ev": "span", "id": self.ids, "parent": None, "stage": stage, "substage": None, "name": stage, "step": step, "thread": thread,
             "start_ns": at(start_s), "end_ns": at(end_s), **more}
        )  # fmt: skip


def at(moment_s: float) -> int:
    return START_NS + round(moment_s * 1e9)


def write_run(
    folder: Path,
    schedule: Schedule,
    steps: int = 8,
    *,
    meets: bool = False,
    named: bool = True,
    rollouts_recorded: bool = True,
    engine: Literal["none", "goes on", "stops"] = "none",
) -> Run:
    """A run of `schedule`, asynchronous. `meets`: its sync waits until nothing generates, and the next batch waits for it, as OpenRLHF's.
    Not `named`: rollouts do not know which step trains on what they generate, and name the driver's step instead. `engine`: a process of
    its own decodes for the first rollout, and goes on or stops in each sync.
    """
    parts, ranks, count = schedule.parts, schedule.ranks, schedule.rollouts
    trainers = [Process("worker" if rank else "driver", rank, 100 + rank) for rank in range(ranks)]
    rollouts = [Process("rollout", rank, 200 + rank) for rank in range(count)]
    decoder = Process("engine", 0, 300)
    plan = synthetic_run.plan(steps, PROMPTS, GROUP)
    for row in plan["rows"]:
        row["response_tokens"] = [20 + 10 * (row["row"] % PROMPTS)] * GROUP  # the same lengths in every step
    now, free, generated = [0.0] * ranks, [0.0] * count, [0.0] * count
    asked: dict[int, float] = {}
    published, loaded, begins = [0.0], [0] * count, [0.0]
    flights: list[tuple[int, int, float, float, float]] = []

    def generate(step: int) -> float:
        """When the last rollout has ended the batch of `step`."""
        for rank in range(count):
            begin = max(free[rank], asked[step])
            version = sum(moment <= begin for moment in published) - 1
            start = begin + (parts[LOAD].seconds if version > loaded[rank] and LOAD in parts else 0.0)
            loaded[rank] = version
            free[rank] = generated[rank] = start + seconds(parts["generation"], rank, count)
            flights.append((rank, step, begin, start, free[rank]))
        return max(generated)

    for step in range(1, steps + 1):
        began = now[0]
        for rank, trainer in enumerate(trainers):
            trainer.span("data", step, now[rank], now[rank] + parts["data"].seconds)
            now[rank] += parts["data"].seconds
        for ahead in range(step, min(step + schedule.max_staleness, steps) + 1):
            asked.setdefault(ahead, now[0])
        # Where both sides meet, the batch of every step but the first was begun beside the training before it.
        arrived = max(generated) if meets and step > 1 else generate(step)
        for rank, trainer in enumerate(trainers):
            if arrived > now[rank]:
                trainer.span("generation", step, now[rank], arrived, awaits="generation weight_sync")
            now[rank] = max(now[rank], arrived)
            for stage in ORDER:
                if stage in parts:
                    lasts = seconds(parts[stage], rank, ranks)
                    trainer.span(stage, step, now[rank], now[rank] + lasts)
                    now[rank] += lasts
        if meets and step < steps:
            generate(step + 1)
        together = max([*now, *generated] if meets else now)
        for rank, trainer in enumerate(trainers):
            if together > now[rank]:
                trainer.span("wait", step, now[rank], together)
            trainer.span("weight_sync", step, together, together + parts["weight_sync"].seconds)
            done = together + parts["weight_sync"].seconds
            trainer.span("bookkeeping", step, done, done + parts["bookkeeping"].seconds)
            now[rank] = done + parts["bookkeeping"].seconds
        published.append(together + parts["weight_sync"].seconds)
        if meets:
            free = [published[-1]] * count
        begins.append(now[0])
        trainers[0].events += _work(plan, step, at(now[0]))
        trainers[0].events.append({"ev": "step", "step": step, "start_ns": at(began), "end_ns": at(now[0]), "probe_ns": 0})
    syncs = [moment - parts["weight_sync"].seconds for moment in published[1:]]
    for rank, step, begin, start, end in flights:
        if engine != "none" and rank == 0:
            stops = [moment for moment in syncs if start < moment < end] if engine == "stops" else []
            edges = [start, *(edge for moment in stops for edge in (moment, min(moment + parts["weight_sync"].seconds, end))), end]
            for begun, ended in zip(edges[::2], edges[1::2], strict=True):
                decoder.span("generation", step, begun, ended)
        label = step if named else max(sum(moment <= start for moment in begins), 1)
        if start > begin:
            rollouts[rank].span("weight_sync", label, begin, start)
        rollouts[rank].span("generation", label, start, end)
        lengths = [length for row in plan["rows"] if row["step"] == step for length in row["response_tokens"]]
        own = lengths[rank * len(lengths) // count : (rank + 1) * len(lengths) // count]
        for lane, length in enumerate(own, start=1):
            until = start + SAMPLES_WITHIN * (end - start) * length / max(own)
            rollouts[rank].span("generation", label, start, until, thread=-lane, **({} if named else {"name": "sample"}))
    decoders = [] if engine == "none" else [decoder]
    return _written(folder, schedule, steps, plan, [*trainers, *(rollouts if rollouts_recorded else []), *decoders])


def _work(plan: Mapping[str, Any], step: int, t_ns: int) -> list[dict[str, Any]]:
    """What reached the loss in the step."""
    rows = [row for row in plan["rows"] if row["step"] == step]
    seen = [[row["row"], i, row["prompt_hash"], row["prompt_tokens"], row["response_tokens"][i]] for row in rows for i in range(GROUP)]
    rewards = [[row["row"], i, row["rewards"][i]] for row in rows for i in range(GROUP)]
    update = {"step": step, "update": step, "t_ns": t_ns}
    return [
        {"ev": "loss", **update, "computed_tokens": 1000, "rows": seen},
        {"ev": "reward", "step": step, "t_ns": t_ns, "rows": rewards},
        {"ev": "update", **update, "role": "actor", "learning_rate": 1e-6, "grad_norm": None, "weights_changed": True},
    ]


def _written(folder: Path, schedule: Schedule, steps: int, plan: Mapping[str, Any], processes: list[Process]) -> Run:
    recipe = synthetic_run.experiment(steps, PROMPTS, GROUP, 1)
    recipe["parallelism"] = {"data": schedule.ranks}
    recipe["optimization"]["micro_batch_samples"] = 1
    recipe["placement"] = {"mode": "async", "rollout_devices": schedule.rollouts, "max_staleness": schedule.max_staleness}
    (folder / "probe").mkdir(parents=True)
    write_manifest(folder, synthetic_run.manifest(folder.name, recipe, framework="reference", native_metrics={}))
    (folder / "plan.json").write_text(json.dumps(plan))
    for process in processes:
        lines = "".join(json.dumps(event) + "\n" for event in process.events)
        (folder / "probe" / f"{process.pid}.jsonl").write_text(lines)
    return load(folder)


def parts_with(parts: Mapping[str, Part], *stages: str) -> dict[str, Part]:
    """Those that run, with the rollouts' loading of weights where rollouts have one."""
    return {stage: parts[stage] for stage in (*stages, LOAD) if stage in parts}
