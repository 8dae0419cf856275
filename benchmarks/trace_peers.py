"""One trace read by one reader, in a process of its own: `python benchmarks/trace_peers.py READER FILE`, called by trace_readers.py and by tests.

Prints one line of JSON: the figures, and what the process took: wall and CPU seconds of reading (imports left out, child processes
included) and its peak RSS. Runs in whatever interpreter has the reader; imports nothing of rlmbench's for the two others.
"""

import json
import logging
import resource
import sys
import time
from pathlib import Path
from typing import Any


def rlmbench(path: str) -> dict[str, Any]:
    from dataclasses import asdict

    from rlmbench.traces import read_trace

    def run() -> Any:
        trace = asdict(read_trace(path))
        return {"devices": trace["devices"], "layout": trace["layout"]}

    return measured(run)


def rlmbench_hta(path: str) -> dict[str, Any]:
    from dataclasses import asdict

    from rlmbench.traces import hta_breakdown

    return measured(lambda: asdict(hta_breakdown(path)))


def rlmbench_tensorboard(path: str) -> dict[str, Any]:
    from dataclasses import asdict

    from rlmbench.traces import tensorboard_overall

    return measured(lambda: [asdict(step) for step in tensorboard_overall(path)])


def hta(path: str) -> dict[str, Any]:
    """HolisticTraceAnalysis: load, temporal breakdown, overlap, idle time."""
    logging.disable(logging.CRITICAL)
    from hta.trace_analysis import TraceAnalysis

    def run() -> Any:
        analysis = TraceAnalysis(trace_files={0: path}, trace_dir="/")
        temporal = analysis.get_temporal_breakdown(visualize=False).iloc[0]
        overlap = analysis.get_comm_comp_overlap(visualize=False).iloc[0]
        idle = analysis.get_idle_time_breakdown(ranks=[0], visualize=False)[0]
        return {
            "idle_us": int(temporal["idle_time(us)"]),
            "compute_us": int(temporal["compute_time(us)"]),
            "non_compute_us": int(temporal["non_compute_time(us)"]),
            "kernel_us": int(temporal["kernel_time(us)"]),
            "overlap_percent": float(overlap["comp_comm_overlap_pctg"]),
            "streams": [[int(row.stream), str(row.idle_category), int(row.idle_time)] for row in idle.itertuples()],
        }

    return measured(run)


def tensorboard(path: str) -> dict[str, Any]:
    """torch-tb-profiler: what the plugin does with one worker's file."""
    logging.disable(logging.CRITICAL)
    import tempfile

    from torch_tb_profiler.profiler.data import RunProfileData

    def run() -> Any:
        with tempfile.TemporaryDirectory() as cache:
            data = RunProfileData.parse("worker", "span", path, cache)
        names = ["kernel", "memcpy", "memset", "communication", "runtime", "data_loader", "cpu_exec", "other", "total"]
        return [
            {"name": name, **dict(zip(names, (float(cost) for cost in costs.costs), strict=True))}
            for name, costs in zip(data.steps_names, data.steps_costs, strict=True)
        ]

    return measured(run)


def measured(run: Any) -> dict[str, Any]:
    wall, cpu = time.perf_counter(), cpu_seconds()
    figures = run()
    return {"wall_s": time.perf_counter() - wall, "cpu_s": cpu_seconds() - cpu, "peak_rss_bytes": peak_rss_bytes(), "figures": figures}


def peak_rss_bytes() -> int:
    """This process's own peak since it was loaded (none of the readers starts others for one file). ru_maxrss would begin at its parent's."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def cpu_seconds() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


READERS = {
    "rlmbench": rlmbench,
    "rlmbench --definitions hta": rlmbench_hta,
    "rlmbench --definitions tensorboard": rlmbench_tensorboard,
    "HolisticTraceAnalysis": hta,
    "torch-tb-profiler": tensorboard,
}

if __name__ == "__main__":
    print(json.dumps(READERS[sys.argv[1]](sys.argv[2])))
