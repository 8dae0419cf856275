"""Start of the probe in one process: open its file, and hand the adapter's hooks to the importer."""

import atexit
import importlib
import os

from rlmbench_probe.patching import after_import, attach, never_imported
from rlmbench_probe.recorder import recorder


def start():
    """Called by sitecustomize. Raises nothing that the caller does not catch."""
    folder = os.environ["RLMBENCH_PROBE_DIR"]
    spans = os.environ.get("RLMBENCH_PROBE_SPANS") != "0"
    # The module imports nothing of the framework. It knows its processes by how they were started, and lists the
    # hooks; it may also call `after_import` for changes of its own.
    adapter = importlib.import_module(os.environ["RLMBENCH_PROBE_MODULE"])
    recorder.open(folder, role=adapter.role(), spans=spans, synchronize=os.environ.get("RLMBENCH_PROBE_SYNC") != "0")
    if os.environ.get("RLMBENCH_PROFILE"):
        from rlmbench_probe import profiling

        profiling.install(recorder)
    waiting = {}
    for hook in adapter.hooks():
        waiting.setdefault(hook.module, []).append(hook)
    for name, hooks in waiting.items():
        after_import(name, lambda imported, hooks=hooks: [attach(hook, imported) for hook in hooks])
    atexit.register(_report_missing, waiting)


def _report_missing(waiting):
    if not recorder.spans_seen():
        return  # a helper process of the framework: nothing was expected of it
    for name in never_imported():
        for hook in waiting.get(name, ()):
            recorder.event(
                "hook", name=hook.name, target=hook.target, attached=False, reason="module was not imported", optional=hook.optional
            )
