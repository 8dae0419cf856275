"""Starts rlmbench's probe in each Python process of a run, then hands over to the sitecustomize it shadows."""

import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))

if os.environ.get("RLMBENCH_PROBE_DIR"):
    try:
        from rlmbench_probe.boot import start

        start()
    except Exception as error:  # a broken probe must never stop the framework
        print(f"rlmbench probe did not start: {error!r}", file=sys.stderr)


def _run_shadowed():
    """An environment may have a sitecustomize of its own, which ours hides because PYTHONPATH comes first."""
    for folder in sys.path:
        path = os.path.join(folder, "sitecustomize.py")
        if os.path.abspath(folder or ".") != _HERE and os.path.isfile(path):
            spec = importlib.util.spec_from_file_location("shadowed_sitecustomize", path)
            spec.loader.exec_module(importlib.util.module_from_spec(spec))
            return


_run_shadowed()
