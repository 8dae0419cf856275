"""From a suite's name or file to a validated experiment.

Everything that is wrong with a file is found before anything starts: every scale is validated when a suite is
loaded, and each problem becomes one line ``file:line: key.path: what is wrong``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlmbench.errors import UserError, did_you_mean
from rlmbench.experiment.models import Experiment, Suite, merge
from rlmbench.experiment.overrides import apply_overrides, override_path
from rlmbench.experiment.problems import Problem, validate
from rlmbench.experiment.scale import require_scale
from rlmbench.experiment.yaml_file import Document, KeyPath, dotted, read_yaml, shown

__all__ = ["apply_overrides", "build_experiment", "check_suite", "find_suite", "load_suite", "suite_dirs", "suite_files"]

SUFFIXES = (".yaml", ".yml")


def suite_dirs() -> list[Path]:
    """Where suites are looked for, first match wins: ``./suites``, then the checkout's or the wheel's own."""
    package = Path(__file__).resolve().parents[1]
    checkout = package.parent
    own = checkout / "suites" if (checkout / "pyproject.toml").is_file() else package / "data" / "suites"
    return [place for place in dict.fromkeys((Path.cwd() / "suites", own)) if place.is_dir()]


def suite_files() -> dict[str, Path]:
    """Every suite that can be named, by name."""
    found: dict[str, Path] = {}
    for folder in suite_dirs():
        for file in sorted(folder.iterdir()):
            if file.suffix in SUFFIXES and file.is_file():
                found.setdefault(file.stem, file)
    return found


def find_suite(name_or_path: str | Path) -> Path:
    """The file of a suite given by name (``gsm8k_grpo``), by path, or by path without suffix.

    ``suites/NAME`` also finds a suite that ships with rlmbench, so that the same command works without a checkout.

    Raises:
        UserError: there is no such suite; the message names the nearest.
    """
    asked = Path(name_or_path)
    known = suite_files()
    if asked.parent == Path() and asked.name in known:
        return known[asked.name]
    for candidate in (asked, *(asked.with_name(asked.name + suffix) for suffix in SUFFIXES if asked.name)):
        if candidate.is_file():
            return candidate
    name = asked.stem if asked.suffix in SUFFIXES else asked.name
    if asked.parent == Path("suites") and name in known:
        return known[name]
    what = "is a folder, not a suite file" if asked.is_dir() and asked.name else "no such suite"
    raise UserError(f"{name_or_path}: {what}{did_you_mean(name, known)}; known suites: {', '.join(known) or 'none'}")


def load_suite(name_or_path: str | Path) -> Suite:
    """The suite of that name or file, with all of its scales validated.

    Raises:
        UserError: not found or not valid. The message is the first problem, and says how many more there are.
    """
    path = find_suite(name_or_path)
    suite, problems = check_suite(path)
    if suite is None:
        more = f" (and {len(problems) - 1} more: rlmbench suites validate {shown(path)})" if len(problems) > 1 else ""
        raise UserError(problems[0] + more)
    return suite


def check_suite(path: Path) -> tuple[Suite | None, list[str]]:
    """The suite in a file, or every problem in it as one line each, in the file's order."""
    try:
        document = read_yaml(path)
    except UserError as error:
        return None, [str(error)]
    if not isinstance(document.data, dict):
        return None, [f"{shown(path)}:1: a suite is a mapping of keys (name, title, ...), not {_kind(document.data)}"]
    suite, problems = validate(Suite, document.data)
    found = {(document.line(problem.path), f"{dotted(problem.path)}: {problem.message}") for problem in problems}
    if suite is not None:
        if not suite.scales:
            found.add((document.line(("scales",)), "scales: has no scale; nothing could be run"))
        for name, scale in suite.scales.items():
            experiment, problems = validate(Experiment, merge(suite.experiment, scale.experiment))
            found |= {_in_scale(document, name, problem) for problem in problems}
            for variant, settings in suite.variants_at(name).items() if experiment is not None else ():
                found |= _in_variant(document, name, variant, merge(merge(suite.experiment, scale.experiment), settings))
            if experiment is not None and scale.devices and experiment.devices != scale.devices:
                devices: KeyPath = ("scales", name, "devices")
                found.add(
                    (document.line(devices), f"{dotted(devices)}: {scale.devices}, but the experiment is split over {experiment.devices}")
                )
    if suite is None or found:
        return None, [f"{shown(path)}:{line}: {text}" for line, text in sorted(found)]
    return suite, []


def build_experiment(suite: Suite, scale: str, overrides: Sequence[str] = (), variant: str = "") -> Experiment:
    """The experiment that `suite` describes at `scale`, with ``key.path=value`` settings from the command line.

    With `variant` that of the suite's sweep; without, what its variants are laid over.

    Raises:
        UserError: unknown scale or variant, unknown keys, or values that do not fit; a line names each setting.
    """
    base = merge(suite.experiment, require_scale(suite, scale).experiment)
    if variant:
        base = merge(base, suite.variants_at(scale)[variant])
    experiment, problems = validate(Experiment, apply_overrides(base, overrides))
    if experiment is None:
        raise UserError(*dict.fromkeys(_blame(problem, overrides) for problem in problems))
    return experiment


def _in_scale(document: Document, scale: str, problem: Problem) -> tuple[int, str]:
    """Line and text of a problem of a merged experiment: in the scale's own settings if they hold it, else in the base."""
    own: KeyPath = ("scales", scale, "experiment")
    base: KeyPath = ("experiment",)
    for length in range(len(problem.path), 0, -1):
        for place in (own, base):
            if (*place, *problem.path[:length]) in document.lines:
                return document.line((*place, *problem.path[:length])), f"{dotted((*place, *problem.path))}: {problem.message}"
    return document.line(own), f"{dotted((*own, *problem.path))}: {problem.message}"


def _in_variant(document: Document, scale: str, variant: str, settings: dict[str, Any]) -> set[tuple[int, str]]:
    """Line and text of each problem of a variant, in the suite's sweep or the scale's."""
    _, problems = validate(Experiment, settings)
    places: tuple[KeyPath, ...] = (("scales", scale, "sweep", variant), ("sweep", variant))
    found = set()
    for problem in problems:
        own = next((place for place in places if (*place, *problem.path) in document.lines), None)
        place = own or next(place for place in places if place in document.lines)
        line = document.line((*place, *problem.path)) if own else document.line(place)
        found.add((line, f"{dotted((*place, *problem.path))}: {problem.message}"))
    return found


def _blame(problem: Problem, overrides: Sequence[str]) -> str:
    """A line that names the setting which caused a problem, or all settings when it is their sum that does not fit."""
    for text in reversed(overrides):
        path = override_path(text)
        if problem.path[: len(path)] == path:
            rest = dotted(problem.path[len(path) :])
            return f"--set {dotted(path)}: {rest + ': ' if rest else ''}{problem.message}"
    where = f"{dotted(problem.path)}: " if problem.path else ""
    return f"{' '.join(f'--set {text}' for text in overrides)}: {where}{problem.message}"


def _kind(data: object) -> str:
    return "a list" if isinstance(data, list) else "plain text" if isinstance(data, str) else "a single value"
