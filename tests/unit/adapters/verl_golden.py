"""Golden files of verl's native configuration: ``golden/verl/<case>.json``.

Each file holds what is asked (`asked`: as on the command line) and what verl is given for it. To add a case, write a file
with `asked` alone; then, and after a change of the translation, run

    python -m tests.unit.adapters.verl_golden

and read the differences against verl's own files (``verl/trainer/config``). ``tests/frameworks/test_verl.py`` composes them there.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rlmbench.adapter import Fidelity
from rlmbench.experiment import Experiment
from rlmbench.experiment.load import build_experiment, load_suite
from rlmbench_verl.placement import configuration, main_module
from rlmbench_verl.translate import translate

FOLDER = Path(__file__).parent / "golden" / "verl"


def golden_files() -> list[Path]:
    return sorted(FOLDER.glob("*.json"))


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def cell(asked: dict[str, Any]) -> tuple[Experiment, str]:
    """The experiment of a case, and its device."""
    return build_experiment(load_suite(asked["suite"]), asked["scale"], asked["set"]), asked["device"]


def given(asked: dict[str, Any]) -> dict[str, Any]:
    """What verl is given for a case: module, hydra configuration, overrides; and what is not exact, or was never run."""
    experiment, device = cell(asked)
    translation = translate(experiment, device)
    inexact = {entry.field: entry.reason for entry in translation.ledger if entry.fidelity is Fidelity.APPROXIMATED}
    return {
        "main_module": main_module(experiment),
        "configuration": list(configuration(experiment)),
        "expected_facts": dict(sorted(translation.expected_facts.items())),
        "untested": list(translation.untested),
        "unsupported": [entry.field for entry in translation.unsupported],
        "approximated": inexact,
        "native": dict(sorted(translation.native.items(), key=lambda item: item[0].lstrip("+"))),
    }


def main() -> None:
    for path in golden_files():
        asked = read(path)["asked"]
        path.write_text(json.dumps({"asked": asked, **given(asked)}, indent=1) + "\n")


if __name__ == "__main__":
    main()
