"""The example of docs/adapters.md keeps every promise, and the document shows it word for word. Its trainer is made up."""

from __future__ import annotations

import ast
import copy
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rlmbench.adapter import Adapter, RunInputs, Translation
from rlmbench.conformance import static_checks
from rlmbench.environment.lockfiles import pins
from rlmbench.experiment import Experiment
from rlmbench.experiment.load import build_experiment, load_suite
from rlmbench.metrics.audit import audit
from rlmbench.probe import probe_environment
from rlmbench.records.tables import Tables, tables_from_events
from rlmbench.workload.plan import TokenizedPrompt, draw_plan, write_plan

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "minimal_adapter"
DOCUMENT = (ROOT / "docs" / "adapters.md").read_text()
SHOWN = re.findall(r"^`(?:examples/minimal_adapter/)([^`]+)`:\n```\w+\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL)
SIGNATURES = {
    "rlmbench/adapter.py": ["Adapter", "EnvironmentSpec", "Translation", "RunInputs", "Launch", "Process", "LedgerEntry"],
    "rlmbench/ledger.py": ["Ledger", "leaves", "missing"],
    "rlmbench/ray_cluster.py": ["RayCluster", "ray_cluster"],
    "rlmbench/probe/inject/rlmbench_probe/patching.py": ["Hook", "Gap", "AsyncHook"],
    "rlmbench/probe/inject/rlmbench_probe/recorder.py": ["Recorder"],
    "rlmbench/probe/inject/rlmbench_plan/__init__.py": ["Job", "Plan", "prompt_hash"],
}
Definition = ast.ClassDef | ast.FunctionDef


def definitions(source: str) -> dict[str, Definition]:
    return {node.name: node for node in ast.parse(source).body if isinstance(node, Definition)}


def parameters(function: ast.FunctionDef) -> str:
    """Names, order, kinds and defaults; not their types, which the document may leave out."""
    arguments = copy.deepcopy(function.args)
    for one in (*arguments.args, *arguments.kwonlyargs):
        one.annotation = None
    return ast.unparse(arguments)


def fields(node: ast.ClassDef) -> dict[str, str]:
    return {
        one.target.id: ast.unparse(one.annotation)
        for one in node.body
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
    }


def methods(node: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    return {one.name: one for one in node.body if isinstance(one, ast.FunctionDef)}


@pytest.fixture(scope="module")
def adapter() -> Adapter:
    sys.path.insert(0, str(EXAMPLE))
    try:
        from rlmbench_pretend import adapter
    finally:
        sys.path.remove(str(EXAMPLE))
    return adapter


@pytest.fixture(scope="module")
def ran(adapter: Adapter, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Experiment, Translation, Tables]:
    """The example's own launch, with the probe, in this interpreter: a run of three steps."""
    run_dir = tmp_path_factory.mktemp("pretend")
    for name in ("probe", "native", "scratch"):
        (run_dir / name).mkdir()
    experiment = build_experiment(load_suite("gsm8k_grpo"), "tiny")
    experiment = experiment.model_copy(update={"measurement": experiment.measurement.model_copy(update={"steps": 3})})
    plan = draw_plan(experiment, [TokenizedPrompt(number, "?", "0", (1, 2, number)) for number in range(30)])
    write_plan(plan, run_dir / "plan.json")
    translation = adapter.translate(experiment, "cpu")
    launch = adapter.launch(translation, experiment, RunInputs(run_dir, run_dir, run_dir / "plan.json", Path(sys.executable), "cpu"))
    probe = probe_environment(run_dir / "probe", adapter.probe_module(), enabled=True, synchronize=False, roots=[adapter.probe_path()])
    (process,) = launch.processes
    done = subprocess.run(
        process.argv, env={**os.environ, **probe, **process.env}, cwd=run_dir, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return plan, experiment, translation, tables_from_events(run_dir)


def test_it_passes_every_static_check(adapter):
    failed = [f"{found.check}: {found.evidence}" for found in static_checks(adapter) if not found.ok]
    assert failed == []


def test_its_events_pass_the_audit(ran):
    plan, experiment, translation, tables = ran
    seen = audit(plan, tables, experiment, translation.expected_facts)
    assert seen.mismatches == []
    assert (seen.steps, seen.samples, seen.optimizer_steps) == (3, 3 * 8 * 4, 3 * 2)


def test_the_audit_looks_at_them(ran):
    """Another reward and another length in the plan are told, so that the events are really compared with it."""
    plan, experiment, translation, tables = ran
    other = json.loads(json.dumps(plan))
    other["rows"][0]["rewards"][1] += 1
    other["rows"][9]["response_tokens"][2] += 1
    seen = audit(other, tables, experiment, translation.expected_facts)
    assert [sentence.partition(" has ")[0].partition(" was ")[0] for sentence in seen.mismatches] == [
        "step 1: sample 1 of row 0",
        "step 2: sample 2 of row 9",
    ]


def test_its_hooks_attach_and_spans_say_every_stage(ran):
    tables = ran[3]
    assert tables.hooks[~tables.hooks["attached"]].empty
    assert len(tables.hooks) == 11
    steps = tables.spans[tables.spans["step"] > 0]
    assert set(steps["stage"]) == {"data", "generation", "reward", "advantage", "actor_update", "bookkeeping"}
    assert len(steps[steps["stage"] == "advantage"]) == 3
    assert (tables.spans[tables.spans["name"] == "score_one"]["thread"] < 0).all()


def test_its_lock_holds_what_it_promises(adapter):
    (spec,) = adapter.environments()
    assert {name: pins(spec.lock_dir)[name] for name in spec.versions} == {name: {version} for name, version in spec.versions.items()}


def test_the_document_shows_the_files_word_for_word():
    worker = "rlmbench_pretend/inject/rlmbench_pretend_worker"
    files = [
        "pyproject.toml",
        *(f"rlmbench_pretend/{name}.py" for name in ("__init__", "adapter", "translate")),
        f"{worker}/train.py",
        f"{worker}/hooks.py",
    ]
    assert [path for path, _ in SHOWN] == files
    for path, text in SHOWN:
        assert text == (EXAMPLE / path).read_text(), path


@pytest.mark.parametrize(("path", "names"), SIGNATURES.items(), ids=SIGNATURES)
def test_the_document_gives_the_signatures_of_the_code(path, names):
    code = definitions((ROOT / path).read_text())
    blocks = re.findall(r"^```python\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL)
    shown = {text for _, text in SHOWN}
    documented = {name: node for block in blocks if block not in shown for name, node in definitions(block).items()}
    for name in names:
        real, told = code[name], documented[name]
        if isinstance(real, ast.FunctionDef):
            assert isinstance(told, ast.FunctionDef)
            assert parameters(told) == parameters(real), name
            continue
        assert isinstance(told, ast.ClassDef)
        for method, signature in methods(told).items():
            assert parameters(signature) == parameters(methods(real)[method]), f"{name}.{method}"
        if declared := fields(real):  # a data class, or the interface itself: all of it
            assert fields(told) == declared, name
            assert name != "Adapter" or methods(told).keys() == methods(real).keys()
