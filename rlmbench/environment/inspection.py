"""Runs in the interpreter under inspection, not in rlmbench's: imports the modules named on the command line and describes itself.

Standard library only, any Python from 3.9. Prints one JSON object as its last line.
"""

import importlib
import importlib.metadata
import json
import platform
import sys
import traceback


def _torch_facts():
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    activities = sorted(str(activity).rpartition(".")[2].lower() for activity in torch.profiler.supported_activities())
    return {"version": torch.__version__, "cuda": torch.version.cuda, "profiler_activities": activities}


def _describe(modules):
    # Before any import: some packages put folders of their own on the import path, with distributions in them.
    packages = {}  # type: dict[str, str]
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"]
        if name:
            packages.setdefault(name.lower().replace("_", "-").replace(".", "-"), distribution.version)
    failures = {}
    for module in modules:
        print("importing " + module, flush=True)
        try:
            importlib.import_module(module)
        except BaseException as error:  # noqa: BLE001  (an import may raise anything, SystemExit included: that is the finding)
            failures[module] = {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
    return {
        "python_version": platform.python_version(),
        "packages": dict(sorted(packages.items())),
        "failures": failures,
        "torch": _torch_facts(),
    }


if __name__ == "__main__":
    print(json.dumps(_describe(sys.argv[1:])))
