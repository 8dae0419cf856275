"""rlmbench's trace reader beside HolisticTraceAnalysis and torch-tb-profiler: wall, CPU and memory on the same generated traces.

    python benchmarks/trace_readers.py [--megabytes 50 500] [--python PATH] [--repeats 3] [--json]

Each reader reads each file in a process of its own (benchmarks/trace_peers.py); imports are not counted, except in the peak memory. rlmbench's
readers take the median of `--repeats` runs, the two others run once per file. `--python` is an interpreter that has them (`pip install HolisticTraceAnalysis
tensorboard torch-tb-profiler`, which the test tools include); without one of them, its rows say why. Files lie in a temporary folder (`--folder`), and are
removed: 500 MB need 1.2 GB of disk, 3 GB of memory (HTA) and about 8 minutes.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.generate_trace import Generator, Planted

PEERS = Path(__file__).with_name("trace_peers.py")
OURS = ("rlmbench", "rlmbench --definitions hta", "rlmbench --definitions tensorboard")
THEIRS = {"HolisticTraceAnalysis": OURS[1], "torch-tb-profiler": OURS[2]}
"""Each with the reader of ours that gives the same figures."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, nargs="+", default=[50, 500])
    parser.add_argument("--python", default=sys.executable, help="an interpreter with HolisticTraceAnalysis and torch-tb-profiler")
    parser.add_argument("--repeats", type=int, default=3, help="of rlmbench's readers")
    parser.add_argument("--layout", choices=("torch 2.13", "older"), default="torch 2.13")
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where the files are written, in a folder of their own")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for megabytes in options.megabytes:
            for path, truth in traces(Path(folder), megabytes, options):
                for row in measure(path, truth, megabytes, options):
                    rows.append(row)
                    if not options.json:
                        show(row, first=len(rows) == 1)
                path.unlink()
    if options.json:
        print(json.dumps({"layout": options.layout, "devices": options.devices, "repeats": options.repeats, "rows": rows}))
    return 0


def traces(folder: Path, megabytes: float, options: argparse.Namespace) -> Iterator[tuple[Path, Planted]]:
    """The same trace as plain JSON, gzipped, and re-written without its line breaks."""
    plain = folder / f"{megabytes:g}MB.json"
    truth = Generator(seed=1, devices=options.devices, layout=options.layout).write(plain, megabytes, steps=4)
    zipped, compact = plain.with_suffix(".json.gz"), plain.with_suffix(".compact.json")
    with plain.open("rb") as source, gzip.open(zipped, "wb", compresslevel=5) as target:
        shutil.copyfileobj(source, target, 1 << 20)
    with plain.open("rb") as lines, compact.open("wb", buffering=1 << 20) as out:
        out.writelines(line.strip() for line in lines)
    yield plain, truth
    yield zipped, truth
    yield compact, truth


def measure(path: Path, truth: Planted, megabytes: float, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    ours: dict[str, dict[str, Any]] = {}
    for reader in OURS:
        runs = [run(sys.executable, reader, path) for _ in range(options.repeats)]
        ours[reader] = {key: statistics.median(one[key] for one in runs) for key in ("wall_s", "cpu_s", "peak_rss_bytes")}
        row = {"file": path.name, "megabytes": megabytes, "reader": reader, **ours[reader]}
        if reader == "rlmbench":
            row["error_ns"] = error_ns(runs[0]["figures"]["devices"], truth)
            row["layout"] = runs[0]["figures"]["layout"]
        yield row
    if ".compact" in path.suffixes:
        return
    for reader, same in THEIRS.items():
        found = run(options.python, reader, path)
        row = {"file": path.name, "megabytes": megabytes, "reader": reader}
        if "skipped" in found:
            yield row | found
            continue
        del found["figures"]
        yield (
            row
            | found
            | {
                "cpu_over_rlmbench": found["cpu_s"] / ours["rlmbench"]["cpu_s"],
                "cpu_over_same_figures": found["cpu_s"] / ours[same]["cpu_s"],
            }
        )


def run(python: str, reader: str, path: Path) -> dict[str, Any]:
    done = subprocess.run([python, str(PEERS), reader, str(path.resolve())], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return json.loads(done.stdout.splitlines()[-1])
    reason = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
    if reader in OURS:
        raise SystemExit(f"{reader} {path}: {reason}")
    return {"skipped": reason}


def error_ns(devices: list[dict[str, Any]], truth: Planted) -> int:
    """The largest difference from what was planted, over every figure of every device, step and stage."""
    worst = 0
    for device in devices:
        planted = truth.devices[int(device["device"])]
        pairs = [(device["usage"], planted["usage"]), *zip(device["steps"], planted["steps"], strict=True)]
        for stage in device["stages"]:
            pairs += [(stage["during"], planted["during"][stage["stage"]]), (stage["launched"], planted["launched"][stage["stage"]])]
        worst = max(worst, *(abs(found[key] - value) for found, its in pairs for key, value in its.items()))
    return worst


def show(row: dict[str, Any], *, first: bool) -> None:
    if first:
        print(f"{'file':<20} {'reader':<35} {'wall s':>7} {'CPU s':>7} {'peak MB':>8}  CPU over rlmbench's (same figures)", flush=True)
    if "skipped" in row:
        print(f"{row['file']:<20} {row['reader']:<35} skipped: {row['skipped']}", flush=True)
        return
    ratio = f"{row['cpu_over_rlmbench']:.1f}x ({row['cpu_over_same_figures']:.1f}x)" if "cpu_over_rlmbench" in row else ""
    if "error_ns" in row:
        ratio = f"{row['error_ns']} ns from the truth, layout {row['layout']}"
    numbers = f"{row['wall_s']:>7.2f} {row['cpu_s']:>7.2f} {row['peak_rss_bytes'] / 1e6:>8.1f}"
    print(f"{row['file']:<20} {row['reader']:<35} {numbers}  {ratio}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
