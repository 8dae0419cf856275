"""The profile pass with real frameworks and the real torch.profiler, and its traces in the real TensorBoard plugin."""

from __future__ import annotations

import gzip
import json
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from rlmbench.records import Run
from tests.frameworks.conftest import All

PLUGIN = """
import json, sys, time
from types import SimpleNamespace
from torch_tb_profiler.plugin import TorchProfilerPlugin
from werkzeug.test import Client
from werkzeug.wrappers import Response

def main():
    apps = TorchProfilerPlugin(SimpleNamespace(logdir=sys.argv[1])).get_plugin_apps()
    def get(route, **query):
        answer = Client(apps[route], Response).get("/", query_string=query)
        assert answer.status_code == 200, (route, query, answer.data)
        return json.loads(answer.data)
    found = get("/runs")
    while found["loading"] or not found["runs"]:
        time.sleep(0.1)
        found = get("/runs")
    (run,) = found["runs"]
    workers = get("/workers", run=run, view="Overview")
    overviews = {}
    for worker in workers:
        (span,) = get("/spans", run=run, worker=worker)
        overviews[worker] = get("/overview", run=run, worker=worker, span=span, view="Overview")
    print(json.dumps({"run": run, "views": get("/views", run=run), "workers": workers, "overviews": overviews}))

if __name__ == "__main__":
    main()
"""
"""Asks the plugin's own web application what TensorBoard's page would ask it; in a process of its own, as it leaves threads behind."""


class Profiled:
    """A profile run: figures, record, and what each process said of its trace."""

    def __init__(self, figures: dict[str, Any], run: Run) -> None:
        self.figures, self.run = figures, run
        facts = run.facts[run.facts["name"] == "torch_trace"]
        self.told = {process: json.loads(text) for process, text in zip(facts["process"], facts["value"], strict=True)}
        self.compared: set[str] = set()

    def disagreements(self) -> list[str]:
        """Stages of processes whose annotations are not as long as the probe's spans, call by call.

        An annotation encloses its span, by at most 5% or half a millisecond in the call in which it does so best: on a busy machine a thread
        may wait a moment for its turn between the two. Compared are stages whose calls pair: inline code has spans and no annotation (`Gap`).
        """
        return [line for process, told in self.told.items() for line in self._apart(process, told)]

    def _apart(self, process: str, told: dict[str, Any]) -> list[str]:
        document = json.loads(gzip.decompress((self.run.path / "traces" / told["file"]).read_bytes()))
        annotated: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for event in document["traceEvents"]:
            if event.get("cat") == "user_annotation" and event["name"].startswith("rlmbench:"):
                annotated[event["name"].removeprefix("rlmbench:")].append((event["ts"], event["dur"] / 1e6))
        spans = self.run.spans
        within = spans["start_ns"].ge(told["start_ns"]) & spans["end_ns"].le(told["end_ns"]) & (spans["thread"] > 0)
        own = spans[(spans["process"] == process) & within].fillna({"substage": ""}).sort_values("start_ns")
        apart = []
        for (stage, substage), of_stage in own.groupby(["stage", "substage"]):
            name = f"{stage}.{substage}" if substage else stage
            spans_s = ((of_stage["end_ns"] - of_stage["start_ns"]) / 1e9).tolist()
            traced_s = [seconds for _, seconds in sorted(annotated[name])]
            if len(spans_s) == len(traced_s):
                self.compared.add(name)
                difference = min(traced - span for traced, span in zip(traced_s, spans_s, strict=True))
                if abs(difference) > max(0.05 * statistics.median(spans_s), 0.0005):
                    apart.append(f"{told['file']}: {name}: {difference} s over {statistics.median(spans_s)} s")
        return apart


FRAMEWORKS = ("openrlhf", "trl", "verl")
STAGES = {
    "trl": {
        "generation.decode",
        "reference_logprob",
        "old_logprob",
        "actor_update.forward",
        "actor_update.backward",
        "actor_update.optimizer",
    },
    "verl": {"generation.decode", "reference_logprob", "old_logprob", "actor_update", "actor_update.optimizer", "weight_sync"},
    "openrlhf": {"generation.decode", "reference_logprob", "old_logprob", "actor_update.forward", "actor_update.backward", "weight_sync"},
}
"""Among what each framework's processes do in a step."""
ROLES = {"trl": {"driver"}, "verl": {"driver", "trainer", "engine"}, "openrlhf": {"driver", "trainer", "engine"}}


@pytest.fixture(scope="module", params=FRAMEWORKS)
def profiled(request: pytest.FixtureRequest, all_grpo: All) -> Profiled:
    return Profiled(*all_grpo.profiles[request.param])


def test_the_profile_runs_stand_apart(all_grpo: All) -> None:
    assert tuple(sorted(all_grpo.profiles)) == FRAMEWORKS
    for name, (figures, record) in all_grpo.profiles.items():
        measured = all_grpo.records[name]
        assert (figures["status"], figures["audit"]["ok"], figures["completed_steps"]) == ("ok", True, 3)
        manifest = json.loads((record.path / "manifest.json").read_text())
        assert (manifest["pass"], manifest["profile"]) == ("profile", {"steps": [2], "extras": []})
        assert not (measured.path / "traces").exists()
        assert f"rlmbench show {figures['id']}" in (measured.path / "report.html").read_text()


def test_every_process_that_worked_in_the_step_has_its_trace(profiled: Profiled) -> None:
    spans, step = profiled.run.spans, profiled.run.steps.set_index("step").loc[2]
    worked = spans[spans["start_ns"].ge(step["start_ns"]) & spans["end_ns"].le(step["end_ns"]) & (spans["thread"] > 0)]
    assert set(worked["process"]) <= set(profiled.told)
    assert profiled.figures["profile"]["missing"] == []
    workers = profiled.figures["profile"]["workers"]
    assert len(workers) == len(profiled.told)
    assert {worker["role"].removesuffix(" rank") for worker in workers} >= ROLES[profiled.figures["framework"]]
    assert {worker["via"] for worker in workers} == {"probe"}


def test_annotations_are_as_long_as_the_probes_spans(profiled: Profiled) -> None:
    assert profiled.disagreements() == []
    expected = STAGES[profiled.figures["framework"]]
    assert expected <= {stage["stage"] for worker in profiled.figures["profile"]["workers"] for stage in worker["cpu"]["stages"]}
    assert expected <= profiled.compared


def test_the_tensorboard_plugin_lists_each_worker(all_grpo: All, tmp_path: Path) -> None:
    figures, record = all_grpo.profiles["openrlhf"]
    (tmp_path / "ask.py").write_text(PLUGIN)
    command = [sys.executable, str(tmp_path / "ask.py"), str(record.path / "traces")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    workers = sorted(worker["worker"] for worker in figures["profile"]["workers"])
    assert (found["run"], sorted(found["workers"])) == ("traces", workers)
    assert {"Overview", "Operator", "Trace"} <= set(found["views"])
    steps = {worker: [row[0] for row in found["overviews"][worker]["steps"]["rows"]] for worker in workers}
    assert steps == {worker: ["2"] for worker in workers}  # the traced step, by its number
