"""A synthetic run, made by hand: nothing here was measured.

4 steps (the first is warm-up) of 1 s each, on one process; 2 prompts x 2 samples a step, micro-batches of 2, one optimizer
step. In every step, milliseconds from its start:

    0 data 50 generation (decode 100-500) 550 reward 600 actor_update (forward 600-700, backward 700-900, optimizer 900-950) 950
    bookkeeping 990, and 10 ms in which nothing ran: coverage 0.99.

Row r (0 to 7, two a step) has 10 + r prompt tokens, responses of 3 + r and 5 + r tokens, rewards 0.25 and 0.75.
"""

import json

import pytest

from rlmbench.records.store import Run
from rlmbench.records.tables import tables_from_events

MS = 1_000_000
FIRST_STEP_NS = 10_000 * MS
STEPS = 4
EXPERIMENT = {
    "model": {"shape": "tiny"},
    "workload": {
        "prompts_per_step": 2,
        "max_prompt_tokens": 64,
        "max_response_tokens": 12,
        "replay": {"lengths": {"kind": "fixed", "tokens": 5}},
    },
    "optimization": {"algorithm": "grpo", "group_size": 2, "mini_batch_samples": 4, "micro_batch_samples": 2},
    "measurement": {"steps": STEPS},
}
# (stage, substage, start ms, end ms, index of the span around it)
SPANS = [
    ("data", None, 0, 50, None),
    ("generation", None, 50, 550, None),
    ("generation", "decode", 100, 500, 1),
    ("reward", None, 550, 600, None),
    ("actor_update", None, 600, 950, None),
    ("actor_update", "forward", 600, 700, 4),
    ("actor_update", "backward", 700, 900, 4),
    ("actor_update", "optimizer", 900, 950, 4),
    ("bookkeeping", None, 950, 990, None),
]


def plan_row(row):
    return {
        "row": row, "step": row // 2 + 1, "problem": row, "question": "?", "answer": "1", "prompt_hash": f"{row:016x}",
        "prompt_ids": [1] * (10 + row), "prompt_tokens": 10 + row, "visit": 0, "response_tokens": [3 + row, 5 + row], "rewards": [0.25, 0.75],
    }  # fmt: skip


class SyntheticRun:
    """Events and plan, to be changed by a test before they are written."""

    def __init__(self, folder):
        self.folder = folder
        self.experiment = json.loads(json.dumps(EXPERIMENT))
        self.plan = {
            "schema_version": 1, "mode": "replay", "seed": 0, "group_size": 2, "prompts_per_step": 2, "steps": STEPS,
            "rows": [plan_row(row) for row in range(2 * STEPS)],
        }  # fmt: skip
        self.manifest = {
            "run_id": folder.name, "suite": "gsm8k_grpo", "scale": "tiny", "framework": "trl", "status": "ok",
            "times": {"created_unix_s": 999.0, "started_unix_s": 1000.0, "ended_unix_s": 1016.0, "wall_s": 16.0}, "versions": {"rlmbench": "0.1.0"},
            "native_metrics": {
                "step_time": {"meaning": "its own clock", "canonical": "update_s"}, "reward": {"meaning": "mean reward", "canonical": "reward_mean"},
                "kl": {"meaning": "KL to the reference", "sanity": "kl"},
            },
        }  # fmt: skip
        # The driver's probe begins 1 s after the run and 9 s before step 1, by both of its clocks.
        process = {"ev": "process", "schema": 1, "pid": 1, "ppid": 0, "rank": 0, "local_rank": 0, "world_size": 1, "role": "driver"}
        clocks = {"host": "h", "boot_id": "b", "mono_ns": FIRST_STEP_NS - 9000 * MS, "real_ns": 1001 * 1000 * MS, "argv": ["python"]}
        startup = {"stage": "startup", "name": "load model", "start_ns": FIRST_STEP_NS - 6000 * MS, "end_ns": FIRST_STEP_NS - 2000 * MS}
        self.events = [
            {**process, **clocks},
            {"ev": "hook", "name": "generation", "target": "trl", "attached": True, "reason": None},
            {"ev": "hook", "name": "weight_sync", "target": "trl", "attached": False, "reason": "no vLLM"},
            {"ev": "hook", "name": "critic", "target": "trl", "attached": False, "reason": "module was not imported", "optional": True},
            {"ev": "span", "id": 1, "parent": None, "substage": None, "step": 0, "thread": 1, **startup},
        ]
        for step in range(1, STEPS + 1):
            self.events += self._step(step)

    def _step(self, step):
        start = FIRST_STEP_NS + (step - 1) * 1000 * MS
        rows = (2 * step - 2, 2 * step - 1)
        yield {"ev": "reward", "step": step, "t_ns": start, "rows": [[row, n, (0.25, 0.75)[n]] for row in rows for n in (0, 1)]}
        for row in rows:
            samples = [[row, n, f"{row:016x}", 10 + row, (3 + row, 5 + row)[n]] for n in (0, 1)]
            yield {"ev": "loss", "step": step, "update": 0, "t_ns": start, "computed_tokens": 2 * (10 + row + 12), "rows": samples}
        actor = {"role": "actor", "learning_rate": 1e-6, "grad_norm": 0.5, "weights_changed": True}
        yield {"ev": "update", "step": step, "update": 0, "t_ns": start, **actor}
        yield {"ev": "native", "step": step, "t_ns": start, "values": {"kl": 0.25, "reward": 0.5, "step_time": 0.875}}
        for index, (stage, substage, begin, end, parent) in enumerate(SPANS):
            ids = {"id": 100 * step + index, "parent": None if parent is None else 100 * step + parent, "step": step, "thread": 1}
            memory = {"rss_bytes": 1000 + 10 * step, "rss_peak_bytes": 2000 + begin}
            yield {
                "ev": "span",
                **ids,
                "stage": stage,
                "substage": substage,
                "name": stage,
                "start_ns": start + begin * MS,
                "end_ns": start + end * MS,
                **memory,
            }
        yield {"ev": "step", "step": step, "start_ns": start, "end_ns": start + 1000 * MS, "probe_ns": 2 * MS}

    def only(self, ev, step=None):
        """The events of one kind (and step), to be changed in place."""
        return [event for event in self.events if event["ev"] == ev and step in (None, event.get("step"))]

    def drop(self, unwanted):
        self.events = [event for event in self.events if event not in unwanted]

    def write(self):
        probe = self.folder / "probe"
        probe.mkdir(parents=True, exist_ok=True)
        (probe / "driver-1.jsonl").write_text("".join(json.dumps(event) + "\n" for event in self.events))
        (self.folder / "plan.json").write_text(json.dumps(self.plan))
        (self.folder / "manifest.json").write_text(json.dumps({**self.manifest, "experiment": self.experiment}))
        return Run(self.folder)


@pytest.fixture
def synthetic(tmp_path):
    return SyntheticRun(tmp_path / "synthetic-run")


@pytest.fixture(scope="session")
def unchanged_run(tmp_path_factory):
    """The synthetic run as it is, for tests that only read."""
    return SyntheticRun(tmp_path_factory.mktemp("runs") / "synthetic-run").write()


@pytest.fixture
def tables_of(tmp_path):
    """Tables from event dicts; tables_of(event, ...) or tables_of({"process": [event, ...], ...})."""

    def make(*events):
        files = events[0] if events and "ev" not in events[0] else {"driver-1": events}
        probe = tmp_path / "probe"
        probe.mkdir(exist_ok=True)
        for process, lines in files.items():
            (probe / f"{process}.jsonl").write_text("".join(json.dumps(event) + "\n" for event in lines))
        tables = tables_from_events(tmp_path)
        assert tables.processes["damaged_lines"].sum() == 0, "a test's own events must be whole"
        return tables

    return make


@pytest.fixture
def span():
    """A span event: span("generation", 10, 30, thread=2)."""

    def make(stage, start_ns, end_ns, **fields):
        event = {"ev": "span", "id": start_ns, "parent": None, "substage": None, "name": stage, "step": 1, "thread": 1}
        return {**event, "stage": stage, "start_ns": start_ns, "end_ns": end_ns, **fields}

    return make
