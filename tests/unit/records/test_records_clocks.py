"""Workers do not know the step: it follows from the time, on the driver's clock."""

from __future__ import annotations

import json

import pandas as pd

from rlmbench.records.clocks import clock_offsets_ns, node_offsets_ns
from rlmbench.records.tables import tables_from_events

SECOND = 1_000_000_000


def write(folder, name, events):
    (folder / "probe").mkdir(exist_ok=True)
    (folder / "probe" / f"{name}.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))


def process(role, boot_id, mono_s=0, real_s=100):
    return {
        "ev": "process", "schema": 1, "pid": 1, "ppid": 0, "rank": 0, "local_rank": 0, "world_size": 1, "role": role, "host": "h",
        "boot_id": boot_id, "mono_ns": mono_s * SECOND, "real_ns": real_s * SECOND, "argv": ["python"],
    }  # fmt: skip


def driver(folder):
    """Step 1 from 10 s to 20 s, step 2 from 20 s to 30 s."""
    steps = [{"ev": "step", "step": k, "start_ns": 10 * k * SECOND, "end_ns": 10 * (k + 1) * SECOND, "probe_ns": 0} for k in (1, 2)]
    write(folder, "driver", [process("worker", "boot"), {"ev": "role", "role": "driver"}, *steps])


def worker_events(*times_s):
    for t in times_s:
        rows = [[None, None, f"prompt-{t}", 5, 7]]
        yield {"ev": "loss", "step": 0, "update": 1, "t_ns": t * SECOND, "computed_tokens": 12, "rows": rows}
        yield {"ev": "update", "step": 0, "update": 1, "t_ns": t * SECOND, "role": "actor", "learning_rate": 0.1, "weights_changed": True}
        span = {"ev": "span", "id": t, "parent": None, "stage": "actor_update", "substage": None, "name": "n", "step": 0, "thread": 1}
        yield {**span, "start_ns": t * SECOND, "end_ns": (t + 1) * SECOND}


def test_events_of_workers_get_the_step_they_happened_in(tmp_path):
    driver(tmp_path)
    write(tmp_path, "worker", [process("worker", "boot"), *worker_events(5, 10, 19, 20, 31)])
    tables = tables_from_events(tmp_path)
    expected = [0, 1, 1, 2, 0]  # before the first step, at its very start, in it, at the next one's start, after the last
    assert tables.spans["step"].tolist() == expected
    assert tables.updates["step"].tolist() == expected
    assert tables.microbatches["step"].tolist() == expected
    assert dict(zip(tables.samples["prompt_hash"], tables.samples["step"], strict=True)) == {
        "prompt-5": 0, "prompt-10": 1, "prompt-19": 1, "prompt-20": 2, "prompt-31": 0,
    }  # fmt: skip
    assert dict(zip(tables.processes["process"], tables.processes["role"], strict=True)) == {"driver": "driver", "worker": "worker"}


def test_another_machines_clock_is_shifted_by_the_real_time(tmp_path):
    """The other machine booted 1000 s earlier: its 1015 s are the driver's 15 s."""
    driver(tmp_path)
    write(tmp_path, "worker", [process("worker", "other boot", mono_s=1000, real_s=100), *worker_events(1015, 1025)])
    assert tables_from_events(tmp_path).spans["step"].tolist() == [1, 2]


def test_a_wall_clock_that_is_set_while_processes_start_does_not_part_them(tmp_path):
    """Two of the other machine's three workers start before its clock is set back by 50 s. All of them were at work from its 1015 s on."""
    driver(tmp_path)
    for number, (mono_s, real_s) in enumerate(((1000, 100), (1002, 102), (1005, 55))):
        write(tmp_path, f"worker-{number}", [process("worker", "other boot", mono_s=mono_s, real_s=real_s), *worker_events(1015)])
    tables = tables_from_events(tmp_path)
    assert tables.spans["step"].tolist() == [1, 1, 1]
    offsets = clock_offsets_ns(tables.processes, "driver")
    assert offsets == {"driver": 0, **{f"worker-{number}": -1000 * SECOND for number in range(3)}}
    collector = pd.DataFrame([("n", "other boot", 1006 * SECOND, 56 * SECOND), ("m", "third", 7, 100 * SECOND)])
    collector.columns = ["node", "boot_id", "mono_ns", "real_ns"]
    assert node_offsets_ns(collector, tables.processes, "driver") == {"n": -1000 * SECOND, "m": -7}
    assert node_offsets_ns(collector, tables.processes, "nobody") == clock_offsets_ns(tables.processes, "nobody") == {}


def test_a_worker_that_comes_to_count_steps_itself_keeps_its_samples_apart(tmp_path):
    """Its first micro-batch of step 2 has the number of the one from before it counted."""
    driver(tmp_path)
    counted = {"ev": "loss", "step": 2, "update": 1, "t_ns": 25 * SECOND, "computed_tokens": 12, "rows": [[None, None, "prompt-25", 5, 7]]}
    for name, events in (("worker", [*worker_events(15), counted]), ("other", [counted, *worker_events(15)])):
        write(tmp_path, name, [process("worker", "boot"), *events])
    samples = tables_from_events(tmp_path).samples
    assert sorted(zip(samples["prompt_hash"], samples["step"], strict=True)) == [("prompt-15", 1)] * 2 + [("prompt-25", 2)] * 2
