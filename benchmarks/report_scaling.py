"""Time and memory of `rlmbench report` over many runs: synthetic copies of one record, 10, 100 and 1,000 of them.

    python benchmarks/report_scaling.py                              # of an invented record of 20 steps
    python benchmarks/report_scaling.py --record results/gsm8k_grpo/<run id>

The copies are dealt to `--configurations` of one suite, so that each has many repetitions; their figures vary by a few per
cent. Each page is written by a process of its own. Time is wall clock, and the process's own seconds on a core beside it (on a
busy machine the first is longer); memory is its highest resident set.
The bar is 15 s and 1 GB at 1,000 runs; with `--check` the exit code says whether it was met.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

BAR_S = 15.0
BAR_BYTES = 1_000_000_000
KEPT = (".parquet", "plan.json")
"""Files of a record that a report reads and a copy may share; events and logs are left out."""


def invented_record(folder: Path) -> Path:
    """The record that the tests of the report are made from, finished as a run finishes it: with tables and figures."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "unit" / "report"))
    import synthetic_run

    from rlmbench.metrics import summarize, write_summary
    from rlmbench.records.tables import write_tables

    run = synthetic_run.write_run(folder, steps=20)
    write_tables(run.path, run.tables)
    write_summary(run.path, summarize(run))
    return run.path


def copies(record: Path, into: Path, count: int, configurations: int) -> None:
    """`count` runs like `record` below `into`, each a few per cent faster or slower; large files are shared."""
    manifest = json.loads((record / "manifest.json").read_bytes())
    summary = json.loads((record / "summary.json").read_bytes())
    draw = random.Random(0)
    for number in range(count):
        place = into / f"copy-{number:05}"
        place.mkdir(parents=True)
        for file in record.iterdir():
            if file.name.endswith(KEPT):
                os.link(file, place / file.name)
        (place / "manifest.json").write_text(json.dumps(_manifest(manifest, place.name, number, configurations)))
        factor = (1 + 0.1 * (number % configurations)) * draw.uniform(0.97, 1.03)
        (place / "summary.json").write_text(json.dumps(_summary(summary, place, factor)))


def _manifest(of: dict[str, Any], run_id: str, number: int, configurations: int) -> dict[str, Any]:
    experiment = {**of["experiment"], "measurement": {**of["experiment"]["measurement"], "seed": number % configurations}}
    times = {**of["times"], "created_unix_s": of["times"]["created_unix_s"] + number}
    return {**of, "run_id": run_id, "experiment": experiment, "times": times}


def _summary(of: dict[str, Any], place: Path, factor: float) -> dict[str, Any]:
    run = json.loads(json.dumps(of["runs"][0]))
    run |= {"id": place.name, "path": str(place)}
    for name in ("step_tokens_per_s", "step_tokens_per_s_per_device", "response_tokens_per_s", "samples_per_s"):
        run["throughput"][name] *= factor
    run["throughput"]["seconds"] /= factor
    for step in run["steps"]:
        for name in ("step_s", "unattributed_s", "overlap_s"):
            step[name] /= factor
        step["stages_s"] = {stage: seconds / factor for stage, seconds in step["stages_s"].items()}
    return {**of, "runs": [run]}


def measured(folder: Path, page: Path) -> tuple[float, float, int]:
    """Wall seconds, seconds on a core and highest resident bytes of one `rlmbench report`."""
    command = [sys.executable, "-m", "rlmbench", "report", str(folder), "-o", str(page)]
    start = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - start
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"{' '.join(command)}: exit code {child.returncode}")
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", type=Path, help="a finished run's folder; an invented one where none is given")
    parser.add_argument("--runs", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--configurations", type=int, default=5)
    parser.add_argument("--check", action="store_true", help="exit code 1 where the largest number of runs misses the bar")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        record = options.record or invented_record(folder / "record")
        if not (record / "summary.json").is_file():
            sys.exit(f"{record}: no summary.json there: give the folder of a run that ended well")
        for count in options.runs:
            copies(record, folder / f"of-{count}" / "suite", count, min(options.configurations, count))
            page = folder / f"{count}.html"
            seconds, core_s, size = measured(folder / f"of-{count}" / "suite", page)
            page_size = page.stat().st_size
            figures = {"seconds": round(seconds, 2), "core_s": round(core_s, 2), "peak_rss_bytes": size, "page_bytes": page_size}
            rows.append({"runs": count, **figures})
            told = f"{seconds:6.2f} s ({core_s:.2f} s on a core), {size / 1e6:6.0f} MB, page of {page_size / 1e6:.2f} MB"
            print(f"{count:>6,} runs: {told}", file=sys.stderr)
            shutil.rmtree(folder / f"of-{count}")
    last = rows[-1]
    within = last["seconds"] <= BAR_S and last["peak_rss_bytes"] <= BAR_BYTES
    print(json.dumps({"configurations": options.configurations, "rows": rows, "within_bar": within}))
    return 1 if options.check and not within else 0


if __name__ == "__main__":
    sys.exit(main())
