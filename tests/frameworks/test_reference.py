"""Ground truth: what is reported of a scripted schedule, against the script and against what its processes saw themselves.

Every step is held to the processes' own clock readings around each part, however late the operating system was. Steps that went by the
script, by those readings, are held to it by closed forms, within 1% or 2 ms; of up to four runs the first that has such steps is taken.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from statistics import mean, median
from typing import Any

import pytest

from rlmbench.metrics.idle import roles_waiting
from rlmbench.metrics.stages import Window, windows_of, worker_busy
from rlmbench_reference.expected import seconds
from tests.frameworks.conftest import run_command
from tests.reference import Reference, run_reference

MIB = 1 << 20
EIGHT = {"parallelism__data": 8, "optimization__micro_batch_samples": 2}
FOUR = {"parallelism__data": 4, "optimization__micro_batch_samples": 4}
APART = {"placement__mode": "disaggregated", "placement__rollout_devices": 1}
ONE_STEP_OFF = {"placement__mode": "async", "placement__max_staleness": 1, "placement__rollout_devices": 1}
ASYNCHRONOUS = {"placement__mode": "async", "placement__max_staleness": 2, "placement__rollout_devices": 1}
FOUR_ROLLOUTS = {"placement__rollout_devices": 4}
FUSED = "schedule: fused\n"
STEPS, WARM_UP = 6, 2
LAYOUTS: dict[str, dict[str, Any]] = {
    "colocated": {},
    "colocated, 8 processes": EIGHT,
    "fused": {"native": FUSED},
    "fused, 8 processes": {"native": FUSED, **EIGHT},
    "disaggregated": APART,
    "disaggregated, 8 processes": {**APART, **FOUR, **FOUR_ROLLOUTS},
    "one step off": ONE_STEP_OFF,
    "one step off, 8 processes": {**ONE_STEP_OFF, **FOUR, **FOUR_ROLLOUTS},
    "asynchronous": ASYNCHRONOUS,
    "asynchronous, 8 processes": {**ASYNCHRONOUS, **FOUR, **FOUR_ROLLOUTS},
}


def within(value: float, wanted: float) -> bool:
    return abs(value - wanted) <= max(0.01 * abs(wanted), 0.002)


def compare(found: dict[Any, float], wanted: dict[Any, float]) -> None:
    """Every one of them, those that one side lacks at 0."""
    wrong = {
        name: (found.get(name, 0.0), wanted.get(name, 0.0))
        for name in {**found, **wanted}
        if not within(found.get(name, 0.0), wanted.get(name, 0.0))
    }
    assert wrong == {}


def steady_steps(one: Reference) -> list[int]:
    """Measured steps in which rollouts still have something to do, as they have not in the last ones of an asynchronous run."""
    return [step for step in one.measured if step <= STEPS - one.schedule.max_staleness]


def kept_steps(one: Reference) -> list[int]:
    """The steady steps in which the machine let the processes do what they were told, by their own clocks, whichever way they are read."""
    return [step for step in steady_steps(one) if _kept(one, step)]


def _kept(one: Reference, step: int) -> bool:
    wanted = {"step": one.expected.step_s, "overlap": one.expected.overlap_s, **one.expected.stages_s, **scripted_substages(one)}
    found = {"step": one.step(step), "overlap": one.overlap(step), **one.stages(step), **one.substages(step)}
    return all(within(bounds.low, wanted.get(name, 0.0)) and within(bounds.high, wanted.get(name, 0.0)) for name, bounds in found.items())


def scripted_substages(one: Reference) -> dict[str, float]:
    """The script gives forward 4, backward 5 and the optimizer 1 of 10 parts of the update."""
    update = seconds(one.schedule.parts["actor_update"], 0, one.schedule.ranks)
    return {"forward": 0.4 * update, "backward": 0.5 * update, "optimizer": 0.1 * update}


def kept_windows(one: Reference) -> list[Window]:
    return [window for window in windows_of(one.run.steps) if window.step in kept_steps(one)]


@pytest.fixture(scope="module")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Reference]:
    """The run of a layout, made once."""
    made: dict[str, Reference] = {}

    def find(layout: str) -> Reference:
        for _ in range(4):
            if layout in made and kept_steps(made[layout]):
                break
            fields = {"measurement__steps": STEPS, "measurement__warmup_steps": WARM_UP, **LAYOUTS[layout]}
            made[layout] = run_reference(tmp_path_factory.mktemp("reference"), **fields)
            assert made[layout].summary.failure is None
        return made[layout]

    return find


@pytest.fixture(params=LAYOUTS, scope="module")
def one(request: pytest.FixtureRequest, run_of: Callable[[str], Reference]) -> Reference:
    return run_of(request.param)


def test_the_run_is_sound(one):
    summary = one.summary
    assert (summary.status, summary.violations, summary.hooks.missing, summary.damaged_lines) == ("ok", [], [], 0)
    assert one.measured == [3, 4, 5, 6]
    assert one.run.manifest.simulated == "simulated: a scripted schedule, no training"
    assert not (one.run.tables.facts["name"] == "probe_error").any()


def test_each_step_is_what_its_processes_saw(one):
    """Seconds of step and stages, what overlaps, and what no stage covers."""
    for step in one.summary.steps:
        allowed = {"step": one.step(step.step), "overlap": one.overlap(step.step), **one.stages(step.step)}
        found = {"step": step.step_s, "overlap": step.overlap_s, **step.stages_s}
        wrong = {name: (found.get(name, 0.0), bounds) for name, bounds in allowed.items() if not bounds.allow(found.get(name, 0.0))}
        assert wrong == {}
        assert set(found) <= set(allowed)
        covered = sum(step.stages_s.values()) - step.overlap_s
        assert step.unattributed_s == pytest.approx(step.step_s - covered, abs=1e-6)
    steps = [step for step in one.summary.steps if step.excluded is None]
    assert one.summary.step_s.median == pytest.approx(median(step.step_s for step in steps))
    for stage, found_s in one.summary.stages_s.items():
        assert found_s == pytest.approx(median(step.stages_s.get(stage, 0.0) for step in steps))


def test_steps_are_the_scripts(one):
    kept = [step for step in one.summary.steps if step.step in kept_steps(one)]
    assert kept, "this machine kept the script in no step of four runs: too much else runs on it"
    for step in kept:
        wanted = {"step": one.expected.step_s, "overlap": one.expected.overlap_s, **one.expected.stages_s}
        compare({"step": step.step_s, "overlap": step.overlap_s, **step.stages_s}, wanted)
        assert step.coverage >= 0.99


def test_substages_divide_the_update(one):
    """In each step as its process saw it, and as the script has it where the machine kept it."""
    spans = one.run.spans
    own = spans[(spans["process"].map(one.names) == "trainer-0") & spans["substage"].notna()]
    for step, of_step in own.groupby("step"):
        parts = {name: sum(part["end_ns"] - part["start_ns"]) / 1e9 for name, part in of_step.groupby("substage")}
        seen = one.substages(int(step))
        assert {name: bounds.allow(parts.get(name, 0.0)) for name, bounds in seen.items()} == dict.fromkeys(scripted_substages(one), True)
        if step in kept_steps(one):
            compare(parts, scripted_substages(one))
    names = {f"actor_update.{name}" for name in ("forward", "backward", "optimizer")}
    assert set(one.summary.substages_s) == names


def test_who_waits(one):
    """Of each process and role: what no part of its own covers, by the truth over the measured steps, and by closed form."""
    idle = {role.role: role for role in one.summary.idle.roles}
    found = {one.names[name]: share for role in idle.values() for name, share in role.process_waiting.items()}
    found |= {role: one_role.role_waiting for role, one_role in idle.items()}
    assert set(found) == {*one.expected.busy_s, *one.expected.role_waiting}
    wrong = {
        name: (share, bounds)
        for name, share in found.items()
        if not (bounds := one.waiting(name, one.measured)).low - 0.01 <= share <= bounds.high + 0.01
    }
    assert wrong == {}
    closed = {role.role: role for role in roles_waiting(one.run.spans, _roles(one), {}, kept_windows(one))}
    assert {role: of_role.role_waiting for role, of_role in closed.items()} == pytest.approx(dict(one.expected.role_waiting), abs=0.01)
    each = {one.names[name]: share for role in closed.values() for name, share in role.process_waiting.items()}
    assert each == pytest.approx(dict(one.expected.waiting), abs=0.02)


def test_bubbles_are_what_the_other_role_takes(run_of):
    """Disaggregated, a step by the script: trainers stand still once, for load and generation, 0.02 + 0.15; rollouts for all the rest."""
    one = run_of("disaggregated")
    bubbles = {role.role: role.bubbles for role in roles_waiting(one.run.spans, _roles(one), {}, kept_windows(one))}
    assert bubbles["trainer"].per_step == 1
    assert within(bubbles["trainer"].s_per_step, 0.17)
    assert within(bubbles["trainer"].longest_s, 0.17)
    assert within(bubbles["rollout"].s_per_step, one.expected.step_s - 0.17)


def _roles(one: Reference) -> dict[str, str]:
    return {name: ours.partition("-")[0] for name, ours in one.names.items()}


def test_how_far_the_processes_differ(one):
    """Least, mean and most seconds of a stage over the processes that run it; the script has the first process as the fastest."""
    figures = {(worker.stage, worker.role): worker for worker in one.summary.workers}
    if one.schedule.ranks + one.schedule.rollouts == 1:
        assert figures == {}
        return
    assert not one.schedule.rollouts or ("generation", "trainer") not in figures  # trainers only await it
    windows = kept_windows(one)
    busy = worker_busy(one.run.spans, _roles(one), {}, windows, asynchronous=one.schedule.max_staleness > 0)
    for stage, role in (("generation", "rollout" if one.schedule.rollouts else "trainer"), ("actor_update", "trainer")):
        count, part = {"trainer": one.schedule.ranks, "rollout": one.schedule.rollouts}[role], one.schedule.parts[stage]
        script = [seconds(part, rank, count) for rank in range(count)]
        steps = [busy[window.step][stage, role] for window in windows]
        mine = {
            "min": median(x.minimum_s for x in steps),
            "mean": median(x.mean_s for x in steps),
            "max": median(x.maximum_s for x in steps),
        }
        assert figures[stage, role].processes == count
        assert mine == pytest.approx({"min": min(script), "mean": mean(script), "max": max(script)}, rel=0.01, abs=0.002)
        assert median(x.skew for x in steps) == pytest.approx(one.expected.skew.get(stage, 0.0), abs=0.01)
        truth = [[one.parts(f"{role}-{rank}", stage, step) for rank in range(count)] for step in one.measured]
        lengths = [[[sum(end - start for start, end in side) / 1e9 for side in rank] for rank in step] for step in truth]
        least, most = (median(max(rank[side] for rank in step) for step in lengths) for side in (0, 1))
        assert least - 1e-4 <= figures[stage, role].max_s <= most + 1e-4


def test_tokens_are_the_plans(one):
    rows = one.run.plan["rows"]
    audit, rates = one.summary.audit, one.summary.throughput
    assert audit.ok
    assert (audit.samples, audit.response_tokens) == (32 * STEPS, sum(sum(row["response_tokens"]) for row in rows))
    planned = {step: [row for row in rows if row["step"] == step] for step in one.measured}
    responses = {step: sum(sum(row["response_tokens"]) for row in of_step) for step, of_step in planned.items()}
    prompts = {step: sum(4 * row["prompt_tokens"] for row in of_step) for step, of_step in planned.items()}
    assert (rates.response_tokens, rates.tokens) == (sum(responses.values()), sum(responses.values()) + sum(prompts.values()))
    # Generation belongs to the step that trains on it, whenever it ran, and its rate is over its own time.
    spans = one.run.spans
    made = spans[(spans["stage"] == "generation") & spans["response_tokens"].notna() & spans["step"].isin(one.measured)]
    assert made.groupby("step")["response_tokens"].sum().to_dict() == responses
    makers = "rollout" if one.schedule.rollouts else "trainer-0"  # of several trainers the driver's own, as of any stage
    least, most = ([one.parts(makers, "generation", step)[side] for step in one.measured] for side in (0, 1))
    shortest, longest = (sum(end - start for step in side for start, end in step) / 1e9 for side in (least, most))
    assert rates.response_tokens / longest * 0.99 <= rates.generation_tokens_per_s <= rates.response_tokens / shortest * 1.01


def test_computed_tokens_hold_the_padding(one):
    """Micro-batches are padded to their longest sample; which samples share one follows from plan order, ranks and sizes."""
    experiment, valid, computed = one.run.experiment, 0, 0
    rows = [row for row in one.run.plan["rows"] if row["step"] in one.measured]
    samples = [row["prompt_tokens"] + tokens for row in rows for tokens in row["response_tokens"]]
    size = experiment.optimization.micro_batch_samples
    for start in range(0, len(samples), size):  # every rank's part of a mini-batch is consecutive, and holds whole micro-batches
        micro_batch = samples[start : start + size]
        valid, computed = valid + sum(micro_batch), computed + size * max(micro_batch)
    found = one.summary.padding["actor_update"]
    assert (found.valid_tokens, found.computed_tokens) == (valid, computed)


def test_staleness_is_how_many_versions_lie_between(one):
    logged = one.run.native[one.run.native["key"] == "staleness"].set_index("step")["value"].to_dict()
    used = {
        step: [row["version"] for row in one.truth if row["stage"] == "generation" and "version" in row and row["step"] == step]
        for step in logged
    }
    assert logged == {step: step - 1 - min(versions) for step, versions in used.items()}
    assert max(logged.values()) <= one.schedule.max_staleness
    assert {logged[step] for step in one.measured} == {one.expected.staleness}


def test_the_long_tail_follows_from_the_lengths(run_of):
    """A sample of n tokens is in flight for n / longest of 0.95 of the script's time; the tail begins when 3 of 32 are left. By when the
    framework saw each of them end; and by the script, in steps in which the machine woke them in time."""
    one = run_of("colocated")
    lengths = {
        step: sorted(tokens for row in one.run.plan["rows"] if row["step"] == step for tokens in row["response_tokens"])
        for step in one.measured
    }
    ends = {row["step"]: sorted(row["sample_ends_ns"]) for row in one.truth if row.get("sample_ends_ns")}
    seen = {step: (ends[step][-1] - ends[step][-4]) / 1e9 for step in one.measured}
    assert one.summary.idle.tail.tail_s == pytest.approx(median(seen.values()), abs=0.001)
    scripted = {step: 0.95 * 0.15 * (of_step[-1] - of_step[-4]) / of_step[-1] for step, of_step in lengths.items()}
    assert min(abs(seen[step] - scripted[step]) for step in one.measured) <= 0.003  # asyncio wakes up to 1 ms late


BURNING = """
stages:
  generation: {seconds: 1.5, burn: 0.5, allocate_mib: 200}
  old_logprob: {seconds: 0.4, burn: 0.2, threads: 2}
"""


@pytest.fixture(scope="module")
def burning(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    """Generation takes 200 MiB and half a core; old log-probs two threads with a fifth of a core each."""
    one = run_reference(tmp_path_factory.mktemp("burning"), native=BURNING, measurement__steps=3)
    assert one.summary.failure is None
    return one


def test_memory_peaks_are_the_allocations(burning):
    """The probe's mark of each stage, the collector's readings of the whole run ten times a second, and PSS, which is read rarely."""
    held = [row for row in burning.truth if row["stage"] == "generation"]
    rss, pss = (max(row[name] for row in held) for name in ("rss_bytes", "pss_bytes"))
    peaks = {stage: found["rss_peak_bytes"] for stage, found in burning.summary.memory.peak_bytes.items()}
    assert peaks["generation"] == pytest.approx(rss, rel=0.01)
    assert peaks["generation"] - peaks["reward"] == pytest.approx(200 * MIB, rel=0.01)
    assert max(peaks[stage] for stage in peaks if stage != "generation") < 100 * MIB
    (host,) = burning.summary.host
    assert host.rss_bytes.peak == pytest.approx(rss, rel=0.01)
    assert host.stages["generation"].rss_bytes.peak == pytest.approx(rss, rel=0.01)
    assert host.stages["actor_update"].rss_bytes.peak < 100 * MIB
    looks = burning.run.tables.tree_samples.dropna(subset=["pss_bytes"])
    while_held = looks[[any(row["held_ns"] <= t_ns <= row["end_ns"] for row in held) for t_ns in looks["t_ns"]]]
    assert while_held["pss_bytes"].tolist() == pytest.approx([pss] * len(while_held), rel=0.01)
    # The peak of the run is the higher of what the collector and the supervisor saw, each at moments of its own.
    assert looks["pss_bytes"].max() <= burning.summary.memory.run_peak_pss_bytes <= 1.01 * pss


def test_cpu_seconds_are_what_was_burnt(burning):
    """By the kernel's account, in ticks of 10 ms, read ten times a second: within its own bounds, and idle time within a point."""
    (host,) = burning.summary.host
    steps = len(burning.measured)
    spent = {
        stage: sum(row["cpu_s"] for row in burning.truth if row["stage"] == stage and row["step"] in burning.measured) / steps
        for stage in burning.schedule.parts
    }
    tick = 0.01
    for stage, wanted in (("generation", 0.75), ("old_logprob", 0.16)):
        found = host.stages[stage].cpu_s
        assert found.low - tick <= spent[stage] <= found.high + tick
        assert found.low - tick <= wanted * 1.03  # what else the process does there is little
    step_s = burning.summary.step_s.mean
    assert host.cpu_s.low - tick <= sum(spent.values()) <= host.cpu_s.high + tick
    assert burning.summary.idle.cpu_idle == pytest.approx(1 - host.cpu_s.value / host.cores / step_s, abs=0.002)
    assert burning.summary.idle.cpu_idle == pytest.approx(1 - sum(spent.values()) / host.cores / step_s, abs=0.03)


def test_a_newcomer_sees_the_tool_and_that_nothing_is_trained(tmp_path: Path):
    """The command of the README: seconds, a page, and the word simulated wherever figures stand."""
    result = run_command(tmp_path, ["gsm8k_grpo", "--framework", "reference", "--set", "measurement.steps=3", "--allow-busy"], None, 120)
    record = result.ok().record
    assert "reference: note: simulated: a scripted schedule, no training" in result.stderr
    assert "(simulated)" in result.stderr  # in the framework's column
    page = (tmp_path / "reports" / f"{record.id}.html").read_text()
    assert "simulated: a scripted schedule, no training" in page
    assert json.loads((record.path / "manifest.json").read_text())["simulated"] == "simulated: a scripted schedule, no training"
