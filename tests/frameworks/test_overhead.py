"""What measuring costs, by real pairs of runs of the simulated reference framework, whose steps take what its script says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from rlmbench.records.store import find_run


def rlmbench(*words: str, cwd: Path) -> dict[str, Any]:
    environment = {**os.environ, "RLMBENCH_CACHE": str(cwd / "cache")}
    done = subprocess.run(
        [sys.executable, "-m", "rlmbench", *words, "--json"], check=False, cwd=cwd, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_the_cost_of_measuring_is_kept_and_cited(tmp_path: Path) -> None:
    common = ("gsm8k_grpo", "-f", "reference", "--scale", "tiny", "--set", "measurement.steps=3")
    [found] = rlmbench("overhead", *common, "--pairs", "1", cwd=tmp_path)["overhead"]
    assert (found["framework"], found["device"], found["scale"], found["steps"], len(found["ratios"])) == ("reference", "cpu", "tiny", 3, 1)
    assert found["ratio"] == found["ratios"][0]
    assert 0.5 < found["ratio"] < 2, "both runs of the pair follow the same script of 0.445 s a step"
    assert (found["low"], found["high"]) == (None, None), "one pair gives no interval"
    rlmbench("run", *common, cwd=tmp_path)
    assert find_run("latest", tmp_path / "results").manifest.harness_overhead.ratios == found["ratios"]
