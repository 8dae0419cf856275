"""What can be seen without starting a framework: environments, translation, ledger, launch, hooks."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError

from rlmbench.adapter import Adapter, Fidelity, RunInputs, Translation
from rlmbench.conformance.finding import Finding, finding
from rlmbench.environment.lockfiles import HASHED, requirement_lines
from rlmbench.errors import UserError
from rlmbench.experiment import Experiment
from rlmbench.experiment.load import build_experiment, load_suite, suite_files
from rlmbench.ledger import missing
from rlmbench.metrics.learning import NATIVE_SANITY
from rlmbench.probe import INJECT
from rlmbench.records.vocabulary import STAGES, STARTUP
from rlmbench.taxonomy import disagreements


@dataclass(frozen=True)
class Case:
    """An experiment to translate, and where it comes from."""

    name: str
    experiment: Experiment
    device: str


def static_checks(adapter: Adapter) -> Iterator[Finding]:
    """Every check that needs no framework, one after the other."""
    yield _environments(adapter)
    cases = _cases()
    translated: list[tuple[Case, Translation]] = []
    raised = []
    for case in cases:
        try:
            translated.append((case, adapter.translate(case.experiment, case.device)))
        except Exception as error:  # noqa: BLE001  # an adapter may do anything; it is to refuse in its ledger
            raised.append(f"{case.name}: {type(error).__name__}: {error}")
    yield finding("translate never raises", raised, f"{len(cases)} experiments: every suite and scale, and every choice of every field")
    yield finding("the ledger accounts for every field", list(_unaccounted(translated)), f"in {len(translated)} translations")
    yield finding("what is not exact has a reason", list(_without_reason(translated)), f"in {len(translated)} translations")
    yield finding("the native configuration is plain data", list(_not_plain(translated)), "it survives JSON")
    yield finding("each translation names an environment that exists", list(_without_environment(adapter, translated)), "for its device")
    runnable = [(case, translation) for case, translation in translated if not translation.unsupported]
    on_cpu = [case.name for case, _ in runnable if case.device == "cpu" and " with " not in case.name]
    yield finding("a suite runs on a CPU", [] if on_cpu else ["every tiny cell is refused"], ", ".join(on_cpu))
    yield finding("the run is asked to prove what it is", list(_without_facts(runnable)), "expected facts with each translation")
    yield finding("launch says what to start", list(_bad_launches(adapter, runnable)), f"for {len(runnable)} experiments")
    yield finding("stated techniques are those of the translation", [] if raised else disagreements(adapter), "docs/taxonomy.md")
    yield _hooks(adapter)
    yield finding("native figures are explained", _bad_native_metrics(adapter), f"{len(adapter.native_metrics())} of the framework's own")


@cache
def _cases() -> tuple[Case, ...]:
    return (*shipped_cases(), *variations())


def _environments(adapter: Adapter) -> Finding:
    wrong, seen = [], []
    for spec in adapter.environments():
        name = f"{spec.name} for {spec.device}"
        if name in seen:
            wrong.append(f"{name} is given twice")
        seen.append(name)
        if spec.device not in ("cpu", "cuda"):
            wrong.append(f"{name}: device is cpu or cuda")
        wrong += [f"{name}: no {file} in {spec.lock_dir}" for file in ("requirements.txt",) if not (spec.lock_dir / file).is_file()]
        needed = ("summary", "check_imports", *(("versions",) if _locks_something(spec.lock_dir) else ()))
        wrong += [f"{name}: no {what}" for what in needed if not getattr(spec, what)]
    return finding("environments have lock files", wrong if seen else ["no environment"], ", ".join(seen))


def _locks_something(lock_dir: Path) -> bool:
    """An environment of nothing but Python has no version to promise."""
    return not (lock_dir / HASHED).is_file() or bool(requirement_lines(lock_dir / HASHED))


def shipped_cases() -> Iterator[Case]:
    """Every suite at every scale."""
    for path in sorted(suite_files()):
        suite = load_suite(path)
        for scale, settings in suite.scales.items():
            for variant in ("", *suite.variants_at(scale)):
                name = f"{suite.name}{variant and f' {variant}'} at {scale}"
                yield Case(name, build_experiment(suite, scale, variant=variant), "cuda" if settings.devices else "cpu")


def variations() -> Iterator[Case]:
    """A tiny GRPO and a tiny PPO with each choice of each field in turn, as far as an experiment may be so."""
    for name in ("gsm8k_grpo", "gsm8k_ppo"):
        base = build_experiment(load_suite(name), "tiny")
        for path, value in _choices(base):
            changed = _with(base, path, value)
            if changed is not None:
                yield Case(f"{name} with {'.'.join(path)}={value}", changed, "cpu")


def _choices(model: BaseModel, prefix: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Path and value of every choice that a field of `model` names: literals, enumerations, true and false; 2 for a degree."""
    for name, field in type(model).model_fields.items():
        value, annotation = getattr(model, name), field.annotation
        path = (*prefix, name)
        if isinstance(value, BaseModel):
            yield from _choices(value, path)
        elif get_origin(annotation) is Literal:
            yield from ((path, choice) for choice in get_args(annotation))
        elif isinstance(annotation, type) and issubclass(annotation, Enum):
            yield from ((path, choice.value) for choice in annotation)
        elif annotation is bool:
            yield from ((path, choice) for choice in (False, True))
        elif prefix == ("parallelism",) and isinstance(value, int):
            yield path, 2


def _with(base: Experiment, path: tuple[str, ...], value: Any) -> Experiment | None:
    """`base` with one field changed; None where no such experiment may be."""
    data = base.model_dump(mode="json")
    section = data
    for name in path[:-1]:
        section = section[name]
    section[path[-1]] = value
    try:
        return Experiment.model_validate(data)
    except ValidationError:
        return None


def _unaccounted(translated: list[tuple[Case, Translation]]) -> Iterator[str]:
    for case, translation in translated:
        if lacking := missing(case.experiment, translation.ledger):
            yield f"{case.name}: {', '.join(lacking[:3])} not in the ledger"
        fields = [entry.field for entry in translation.ledger]
        if twice := {field for field in fields if fields.count(field) > 1}:
            yield f"{case.name}: {', '.join(sorted(twice))} in the ledger twice"


def _without_reason(translated: list[tuple[Case, Translation]]) -> Iterator[str]:
    for case, translation in translated:
        for entry in translation.ledger:
            silent = not entry.reason.strip()
            if silent and (entry.fidelity is not Fidelity.EXACT or entry.native_key is None):
                yield f"{case.name}: {entry.field} is {entry.fidelity.value} without a reason or a native key"


def _not_plain(translated: list[tuple[Case, Translation]]) -> Iterator[str]:
    for case, translation in translated:
        native = dict(translation.native)
        try:
            same = json.loads(json.dumps(native)) == native
        except (TypeError, ValueError) as error:
            yield f"{case.name}: {error}"
        else:
            if not same:
                yield f"{case.name}: JSON gives something else back (tuples, keys that are no text?)"


def _without_environment(adapter: Adapter, translated: list[tuple[Case, Translation]]) -> Iterator[str]:
    have = {(spec.name, spec.device) for spec in adapter.environments()}
    for case, translation in translated:
        if not translation.unsupported and (translation.environment, case.device) not in have:
            yield f"{case.name}: environment {translation.environment!r} for {case.device} is none of the adapter's"


def _without_facts(runnable: list[tuple[Case, Translation]]) -> Iterator[str]:
    for case, translation in runnable:
        if "world_size" not in translation.expected_facts:
            yield f"{case.name}: world_size is not among the expected facts"


def _bad_launches(adapter: Adapter, runnable: list[tuple[Case, Translation]]) -> Iterator[str]:
    for case, translation in runnable:
        with tempfile.TemporaryDirectory() as folder:
            run_dir = Path(folder, "run")
            for part in (run_dir, run_dir / "native", run_dir / "scratch"):
                part.mkdir()
            inputs = RunInputs(run_dir, Path("/model"), run_dir / "plan.json", Path("/environment/bin/python"), case.device)
            try:
                launch = adapter.launch(translation, case.experiment, inputs)
            except (UserError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                yield f"{case.name}: launch raises {type(error).__name__}: {error}"
                continue
            if not launch.processes:
                yield f"{case.name}: nothing to start"
            for process in launch.processes:
                if not process.argv or not Path(process.argv[0]).is_absolute():
                    yield f"{case.name}: {process.name} does not begin with an absolute path"
                if not all(isinstance(text, str) for pair in process.env.items() for text in pair):
                    yield f"{case.name}: the environment of {process.name} holds something that is no text"
            if strangers := [path.name for path in Path(folder).iterdir() if path != run_dir]:
                yield f"{case.name}: launch wrote outside the run's folder: {', '.join(strangers)}"


LIST_HOOKS = """
import importlib, json, sys
module = importlib.import_module(sys.argv[1])
role = module.role()
hooks = [
    {
        "target": hook.target,
        "stage": hook.stage if isinstance(hook.stage, str) else None,
        "spans": bool(hook.stage),
        "is_gap_before": type(hook).__name__ == "Gap" and hook.before is not None,
    }
    for hook in module.hooks()
]
print(json.dumps({"role": role, "hooks": hooks}))
"""


def _hooks(adapter: Adapter) -> Finding:
    """The hook module, imported as in a process of the run that holds nothing but Python."""
    check = "hooks can be listed before the framework is imported"
    if not adapter.probe_path().is_dir():
        return Finding(check, False, f"{adapter.probe_path()} is no folder")
    paths = [str(INJECT), str(adapter.probe_path())]
    # -S leaves site-packages out, and -E our own variables: standard library and injected code alone.
    program = f"import sys; sys.path[:0] = {paths!r}\n{LIST_HOOKS}"
    done = subprocess.run(
        [sys.executable, "-S", "-E", "-c", program, adapter.probe_module()], capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode:
        return Finding(check, False, (done.stderr.strip().splitlines() or ["no output"])[-1])
    listed = json.loads(done.stdout.strip().splitlines()[-1])
    stages = {hook["stage"] for hook in listed["hooks"] if hook["stage"]}
    wrong = [f"stage {stage!r} is none of the vocabulary" for stage in sorted(stages - {*STAGES, STARTUP})]
    if not isinstance(listed["role"], str):
        wrong.append("role() gives no text")
    if not listed["hooks"]:
        wrong.append("no hook")
    for place, hook in enumerate(listed["hooks"]):
        # Later hooks are wrapped around earlier ones: a gap that ends inside the span of its own function would cross it.
        if hook["is_gap_before"] and any(later["target"] == hook["target"] and later["spans"] for later in listed["hooks"][place:]):
            wrong.append(f"the gap before {hook['target']} must be listed after that function's hook")
    return finding(check, wrong, f"{len(listed['hooks'])} hooks, {len(stages)} stages")


def _bad_native_metrics(adapter: Adapter) -> list[str]:
    wrong = []
    for key, metric in adapter.native_metrics().items():
        if not metric.meaning.strip():
            wrong.append(f"{key}: no text")
        if metric.sanity not in (None, *NATIVE_SANITY):
            wrong.append(f"{key}: sanity {metric.sanity!r} is none of {', '.join(NATIVE_SANITY)}")
    return wrong
