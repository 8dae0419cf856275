"""A SYNTHETIC run for tests of the report: invented figures in the on-disk form of docs/records.md.

No framework produced any of this. A two-rank GRPO run whose step holds every kind of thing the page must show: nested
spans, time no span covers, ranks that wait for each other, padded tokens, memory, hooks that did not attach,
approximated ledger entries and native figures that disagree with ours.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlmbench.adapter import find_adapter
from rlmbench.records import EnvironmentRecord, Failure, Manifest, ProcessLaunch, Run, Times, Versions, load, write_manifest

MS = 1_000_000
START_NS = 5_000_000_000_000
STARTUP_NS = 4_000 * MS
REAL_NS = 1_790_000_002_600_000_000
GIB = 1024**3


class _Process:
    """Events of one process of the run, with span ids that count up."""

    def __init__(self, rank: int, world_size: int, accelerator: bool) -> None:
        self.rank = rank
        self.accelerator = accelerator
        self.pid = 4000 + rank
        self.events: list[dict[str, Any]] = [
            {
                "ev": "process",
                "schema": 1,
                "pid": self.pid,
                "ppid": 3999,
                "rank": rank,
                "local_rank": rank,
                "world_size": world_size,
                "role": "driver" if rank == 0 else "worker",
                "host": "synthetic-host",
                "boot_id": "00000000-0000-4000-8000-000000000000",
                "mono_ns": START_NS,
                "real_ns": REAL_NS,
                "argv": ["python", "train.py"],
            }
        ]
        self._next = 0

    def span(self, stage: str, name: str, step: int, start: int, end: int, parent: int | None = None, **more: Any) -> int:
        self._next += 1
        self.events.append(
            {
                "ev": "span",
                "id": self._next,
                "parent": parent,
                "stage": stage,
                "substage": more.pop("substage", None),
                "name": name,
                "step": step,
                "thread": self.pid,
                "start_ns": start,
                "end_ns": end,
                **more,
            }
        )
        return self._next


def plan(steps: int, prompts_per_step: int, group_size: int, seed: int = 0) -> dict[str, Any]:
    """A replay plan with lognormal lengths (p50 48, p99 200, cap 256) and rewards in multiples of 1/64."""
    draw = random.Random(seed)
    sigma = math.log(200 / 48) / 2.326
    rows = []
    for row in range(steps * prompts_per_step):
        ids = [draw.randrange(500) for _ in range(draw.randrange(60, 130))]
        rows.append(
            {
                "row": row,
                "step": row // prompts_per_step + 1,
                "problem": row,
                "question": f"Synthetic problem {row}?",
                "answer": "72",
                "prompt_hash": hashlib.sha256(",".join(map(str, ids)).encode()).hexdigest()[:16],
                "prompt_ids": ids,
                "prompt_tokens": len(ids),
                "visit": 0,
                "response_tokens": [min(256, max(1, round(48 * math.exp(draw.gauss(0, sigma))))) for _ in range(group_size)],
                "rewards": [draw.randrange(65) / 64 for _ in range(group_size)],
            }
        )
    return {
        "schema_version": 1,
        "mode": "replay",
        "seed": seed,
        "group_size": group_size,
        "prompts_per_step": prompts_per_step,
        "steps": steps,
        "rows": rows,
    }


def _step(process: _Process, step: int, start: int, rows: list[dict[str, Any]], micro_batches: int, draw: random.Random, lost: bool) -> int:
    """Events of one step on one rank; answers when the step ended."""
    at = start
    samples = [(row, index) for row in rows for index in range(len(row["response_tokens"]))]
    prompt_tokens = sum(row["prompt_tokens"] for row, _ in samples)
    response_tokens = sum(row["response_tokens"][index] for row, index in samples)
    width = max(row["prompt_tokens"] for row in rows) + max(max(row["response_tokens"]) for row in rows)
    work = {"samples": len(samples), "prompt_tokens": prompt_tokens, "response_tokens": response_tokens}

    def memory(allocated: float, reserved: float) -> dict[str, int]:
        host = 2.1 if process.accelerator else 2.1 + allocated
        figures = {
            "rss_bytes": round(2.1 * GIB) + (step + step % 2) * 2**18,
            "rss_peak_bytes": round(host * GIB) + step * 2**18,
        }
        if process.accelerator:
            figures |= {"torch_allocated_peak_bytes": round(allocated * GIB), "torch_reserved_peak_bytes": round(reserved * GIB)}
        return figures

    def lasting(milliseconds: float) -> int:
        return round(milliseconds * draw.uniform(0.96, 1.05) * MS)

    def stage(stage: str, name: str, milliseconds: float, gap: float = 0.3, **more: Any) -> tuple[int, int]:
        nonlocal at
        begin = at
        at += lasting(milliseconds)
        span = process.span(stage, name, step, begin, at, **more)
        at += round(gap * MS)
        return span, begin

    slow = 1.4 if step == 1 else 1.0
    stage("data", "next batch", 2.1)
    span, begin = stage("generation", "generate", 360 * slow, **work, valid_tokens=prompt_tokens + response_tokens,
                        computed_tokens=len(samples) * width, **memory(0.9, 1.2))  # fmt: skip
    cut = begin + 42 * MS
    process.span("generation", "prefill", step, begin + MS, cut, span, substage="prefill")
    process.span("generation", "decode", step, cut, at - MS, span, substage="decode")
    stage("reward", "gsm8k verifier", 18, samples=len(samples), **memory(0.4, 1.2))
    stage("reference_logprob", "reference forward", 64, valid_tokens=prompt_tokens + response_tokens,
          computed_tokens=len(samples) * width, **memory(0.8, 1.4))  # fmt: skip
    stage("old_logprob", "policy forward", 66, valid_tokens=prompt_tokens + response_tokens,
          computed_tokens=len(samples) * width, **memory(0.8, 1.4))  # fmt: skip
    stage("advantage", "advantages", 1.4)
    begin = at
    parts: list[tuple[str, str, int, int]] = []
    for index in range(micro_batches):
        for substage, milliseconds in (("forward", 90 / micro_batches), ("backward", 165 / micro_batches)):
            stop = at + lasting(milliseconds)
            parts.append((f"{substage} {index}", substage, at, stop))
            at = stop
    stop = at + lasting(21)
    parts.append(("optimizer", "optimizer", at, stop))
    at = stop + MS
    update = process.span("actor_update", "actor update", step, begin, at, valid_tokens=prompt_tokens + response_tokens,
                          computed_tokens=round(len(samples) * width * 1.05), **memory(2.6, 3.1))  # fmt: skip
    for name, substage, left, right in parts:
        process.span("actor_update", name, step, left, right, update, substage=substage)
    if process.rank:
        stage("wait", "gradient all-reduce", 9)
    stage("bookkeeping", "log metrics", 3.0)
    at += lasting(2.2)

    per_batch = math.ceil(len(samples) / micro_batches)
    kept = samples[:-1] if lost else samples
    for index in range(0, len(kept), per_batch):
        batch = kept[index : index + per_batch]
        process.events.append(
            {
                "ev": "loss",
                "step": step,
                "update": step,
                "t_ns": begin,
                "computed_tokens": len(batch) * width,
                "rows": [[r["row"], i, r["prompt_hash"], r["prompt_tokens"], r["response_tokens"][i]] for r, i in batch],
            }
        )
    process.events.append({"ev": "reward", "step": step, "t_ns": begin, "rows": [[r["row"], i, r["rewards"][i]] for r, i in samples]})
    return at


def events(
    drawn: dict[str, Any],
    *,
    ranks: int = 2,
    micro_batches: int = 4,
    until_step: int | None = None,
    cut: bool = False,
    lost_in_step: int = 0,
    accelerator: bool = False,
    hostile_name: str = "",
) -> Iterator[_Process]:
    """Every process's events. `until_step` is the last step begun; `cut` leaves it unfinished; one sample is lost in `lost_in_step`."""
    last = drawn["steps"] if until_step is None else until_step
    processes = [_Process(rank, ranks, accelerator) for rank in range(ranks)]
    draw = random.Random(1)
    for process in processes:
        process.events += [
            {"ev": "hook", "name": "generation", "target": "GRPOTrainer._generate_single_turn", "attached": True, "reason": None},
            {"ev": "hook", "name": "actor_update", "target": "Accelerator.backward", "attached": True, "reason": None},
            {
                "ev": "hook",
                "name": "weight_sync",
                "target": "VLLMGeneration.sync_weights",
                "attached": False,
                "reason": "vLLM is not used by this run",
            },
            {"ev": "fact", "name": "world_size", "value": ranks},
            {"ev": "fact", "name": "model_wrapper", "value": "DistributedDataParallel"},
        ]
        process.span("startup", "load model", 0, START_NS + 900 * MS, START_NS + STARTUP_NS - 20 * MS)
    start = START_NS + STARTUP_NS
    for step in range(1, last + 1):
        rows = [row for row in drawn["rows"] if row["step"] == step]
        shares = [rows[rank::ranks] for rank in range(ranks)]
        ends = []
        if hostile_name:
            processes[0].span("data", hostile_name, step, start, start + MS)
        for process, mine in zip(processes, shares, strict=True):
            lost = step == lost_in_step and process.rank == ranks - 1
            ends.append(_step(process, step, start, mine, micro_batches, draw, lost))
        if cut and step == last:
            for process in processes:
                process.events = [e for e in process.events if e.get("step") != step or e.get("stage") in ("data", "reward")]
            break
        end = max(ends) + MS
        driver = processes[0]
        rewards = [value for row in rows for value in row["rewards"]]
        mean = sum(rewards) / len(rewards)
        tokens = sum(row["prompt_tokens"] * len(row["rewards"]) + sum(row["response_tokens"]) for row in rows)
        driver.events += [
            {"ev": "update", "step": step, "update": step, "t_ns": end - 3 * MS, "role": "actor", "learning_rate": 1e-6,
             "grad_norm": 0.8 + 0.05 * math.sin(step), "weights_changed": True},
            {"ev": "native", "step": step, "t_ns": end - 2 * MS,
             "values": {"reward": mean, "kl": 0.0004 * step, "entropy": 5.9 - 0.01 * step, "clip_ratio/region_mean": 0.001,
                        "step_time": (end - start) / 1e9 * 0.76, "num_tokens": tokens * step}},
            {"ev": "step", "step": step, "start_ns": start, "end_ns": end, "probe_ns": round((end - start) * 0.0021)},
        ]  # fmt: skip
        start = end
    if not cut:
        for process in processes:
            process.events.append({"ev": "end", "t_ns": start + 100 * MS, "probe_ns": 40 * MS})
    yield from processes


def write_events(folder: Path, drawn: dict[str, Any], **kinds: Any) -> None:
    """Write `plan.json`, `probe/*.jsonl` and a log below `folder`."""
    (folder / "probe").mkdir(parents=True, exist_ok=True)
    (folder / "logs").mkdir(exist_ok=True)
    (folder / "plan.json").write_text(json.dumps(drawn), encoding="utf-8")
    for process in events(drawn, **kinds):
        lines = "".join(json.dumps(event) + "\n" for event in process.events)
        (folder / "probe" / f"{process.pid}.jsonl").write_text(lines, encoding="utf-8")
    log = "".join(f"SYNTHETIC log line {line}\n" for line in range(1, 31))
    (folder / "logs" / "train.log").write_text(log, encoding="utf-8")


LEDGER = [
    ("model.shape", "qwen2.5-0.5b", "exact", "model", "model", ""),
    ("workload.prompts_per_step", 8, "exact", "generation_batch_size", 32, ""),
    ("workload.sampling.temperature", 1.0, "exact", "temperature", 1.0, ""),
    ("optimization.group_size", 4, "exact", "num_generations", 4, ""),
    ("optimization.mini_batch_samples", 32, "exact", "gradient_accumulation_steps", 4, ""),
    ("optimization.loss_aggregation", "token_mean", "exact", "loss_type", "dapo", ""),
    ("optimization.learning_rate", 1e-6, "exact", "learning_rate", 1e-6, ""),
    ("model.dtype", "bfloat16", "approximated", "bf16", True, "weights stay in float32 and autocast computes in bfloat16"),
    ("optimization.advantage_scaling", "group", "approximated", "scale_rewards", "group",
     "divides by the standard deviation plus 1e-4, where verl adds 1e-6"),
    ("measurement.wall_timeout_s", 3600.0, "exact", None, None, "rlmbench sees to it"),
]  # fmt: skip
"""Field, value, fidelity, native key, native value, reason."""


def experiment(steps: int, prompts_per_step: int, group_size: int, warmup_steps: int) -> dict[str, Any]:
    samples = prompts_per_step * group_size
    return {
        "model": {"shape": "qwen2.5-0.5b"},
        "workload": {
            "prompts_per_step": prompts_per_step,
            "max_prompt_tokens": 256,
            "max_response_tokens": 256,
            "replay": {"lengths": {"kind": "lognormal", "p50_tokens": 48, "p99_tokens": 200}},
        },
        "optimization": {
            "algorithm": "grpo",
            "group_size": group_size,
            "mini_batch_samples": samples,
            "micro_batch_samples": samples // 8 or 1,
            "kl": {"coefficient": 0.001},
        },
        "parallelism": {"data": 2},
        "measurement": {"steps": steps, "warmup_steps": warmup_steps},
    }


def manifest(run_id: str, recipe: dict[str, Any], **changes: Any) -> Manifest:
    """A manifest around the experiment `recipe`; `changes` replaces fields."""
    keys = ("field", "value", "fidelity", "native_key", "native_value", "reason")
    fields: dict[str, Any] = {
        "run_id": run_id,
        "campaign_id": "synthetic-campaign",
        "suite": "gsm8k_grpo",
        "scale": "tiny",
        "scale_reason": "no GPU here, 2 CPU cores: the scale written for a CPU",
        "framework": "trl",
        "status": "ok",
        "experiment": recipe,
        "ledger": [dict(zip(keys, entry, strict=True)) for entry in LEDGER],
        "native_metrics": find_adapter("trl").native_metrics(),
        "native": {"loss_type": "dapo", "num_generations": 4, "bf16": True, "max_steps": recipe["measurement"]["steps"]},
        "launch": [
            ProcessLaunch(
                name="train", argv=["/opt/env/bin/python", "-m", "torch.distributed.run", "--nproc-per-node=2", "train.py"],
                env={"OMP_NUM_THREADS": "1"}
            )
        ],
        "environment": EnvironmentRecord(
            name="trl", device="cpu", key="synthetic", python="/opt/env/bin/python",
            packages={"trl": "1.16.0", "torch": "2.13.0", "transformers": "5.24.0", "accelerate": "1.15.0"},
        ),
        "host": {"name": "synthetic-host", "cpu": "Synthetic CPU @ 3.0 GHz", "cores": 2, "memory_bytes": 8 * GIB, "kernel": "6.1"},
        "devices": [],
        "times": Times(created_unix_s=1_790_000_000.0, started_unix_s=1_790_000_002.0, ended_unix_s=1_790_000_040.5, wall_s=38.5),
        "versions": Versions(rlmbench="0.1.0", commit="0123456789abcdef0123456789abcdef01234567"),
    }  # fmt: skip
    return Manifest(**(fields | changes))


def write_run(
    results: Path,
    run_id: str = "gsm8k_grpo-tiny-trl-synthetic",
    *,
    steps: int = 6,
    prompts_per_step: int = 8,
    group_size: int = 4,
    warmup_steps: int = 1,
    changes: dict[str, Any] | None = None,
    **kinds: Any,
) -> Run:
    """A whole synthetic run below `results`. `kinds` goes to `events`, `changes` to the manifest."""
    folder = results / "gsm8k_grpo" / run_id
    folder.mkdir(parents=True)
    write_manifest(folder, manifest(run_id, experiment(steps, prompts_per_step, group_size, warmup_steps), **(changes or {})))
    write_events(folder, plan(steps, prompts_per_step, group_size), **kinds)
    return load(folder)


FAILURE = Failure(
    failure_class="out_of_memory_host",
    message="the kernel ended rank 1 for want of memory in step 3 (actor_update)",
    phase="running",
    step=3,
    stage="actor_update",
    first_cause="torch.OutOfMemoryError: DefaultCPUAllocator: can't allocate memory: you tried to allocate 1073741824 bytes",
    exit_code=-9,
    signal="SIGKILL",
    log_path="logs/train.log",
    tail=[f"SYNTHETIC log line {line}" for line in range(21, 31)],
    rerun_command="rlmbench run gsm8k_grpo --framework trl --scale tiny",
)


def write_failed_run(results: Path, run_id: str = "gsm8k_grpo-tiny-trl-synthetic-failed", until_step: int = 3) -> Run:
    """A run that ended by a signal in its third step (or before its first, with `until_step=1`)."""
    return write_run(results, run_id, until_step=until_step, cut=True, changes={"status": "failed", "failure": FAILURE})
