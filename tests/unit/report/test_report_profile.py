"""A profile pass in the terminal and on the page: SYNTHETIC figures, nothing here was measured."""

from __future__ import annotations

import io
import json
import shutil

import pytest
from rich.console import Console

from rlmbench.metrics import summarize
from rlmbench.metrics.profile import ProfiledDevice, ProfileFigures, TracedCpu, TracedDevice, TracedStage, TracedWorker, Untraced
from rlmbench.records import Run
from rlmbench.report import vega
from rlmbench.report.html import render
from rlmbench.report.page import run_page
from rlmbench.report.profile import profile_run_of
from rlmbench.report.terminal import print_run_detail, print_runs
from rlmbench.whatif.guidelines import guidelines

STAGE = TracedStage(
    "generation.decode", 40, 1.0, no_kernel=0.25, exposed_communication=0.0, compute_s=0.7, communication_s=0.0, copy_s=0.05
)
SHARES = {"window_s": 2.0, "no_kernel": 0.4, "exposed_communication": 0.1, "compute_s": 1.0, "communication_s": 0.2, "copy_s": 0.1}


def worker(name: str, **traced: object) -> TracedWorker:
    file = f"traces/{name}.1.pt.trace.json.gz"
    return TracedWorker(name, "engine", 0, 1, file, "probe", [2], 1 << 20, 1 << 24, 0.5, **traced)  # type: ignore[arg-type]


def device(name: str, **changes: object) -> TracedDevice:
    return TracedDevice(name, "0", **SHARES, stages=[STAGE], **changes)  # type: ignore[arg-type]


FIGURES = ProfileFigures(
    steps=[2],
    extras=["stack"],
    bytes=3 << 20,
    workers=[
        worker("driver-rank0-pid4", cpu=TracedCpu("no device in this trace: a CPU", 2.0, 1.5, 0.25, [TracedStage("advantage", 3, 0.5, operator_s=0.25)])),
        worker("engine-rank0-pid3", devices=[device("GPU-a")]),
        worker("trainer-rank0-pid2", devices=[device("GPU-a", problem="3 of 9 graph launches have no kernel in the trace")]),
    ],
    devices=[ProfiledDevice("GPU-a", ["engine-rank0-pid3", "trainer-rank0-pid2"], **SHARES)],
    missing=[Untraced("worker-7", "another torch profiler runs in this process")],
)  # fmt: skip


@pytest.fixture
def profiled(finished, tmp_path):
    """The finished run as a profile run beside itself: its own record lies in the same suite's folder."""
    run, summary = finished
    suite = tmp_path / "results" / "gsm8k_grpo"
    shutil.copytree(run.path, suite / run.path.name)
    folder = suite / "20261130-120000-trl-tiny-profile"
    shutil.copytree(run.path, folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "pass": "profile", "profile": {"steps": [2], "extras": ["stack"]}}))
    changes = {"id": folder.name, "path": str(folder), "run_pass": "profile", "profile": FIGURES}
    return Run(folder), summary.model_copy(update=changes), Run(suite / run.path.name)


def printed(show, *arguments) -> str:
    stream = io.StringIO()
    show(*arguments, Console(file=stream, width=80))
    return stream.getvalue()


def test_the_terminal_shows_devices_processes_and_stages(profiled) -> None:
    run, summary, _ = profiled
    text = printed(print_runs, [summary])
    assert "TRL (profile)" in text
    assert all("logdir" in line for line in text.splitlines() if len(line) > 80)
    words = " ".join(text.split())
    assert "step 2, with stack: 3 processes, 3.00 MiB (48.0 MiB unpacked)" in words
    assert "GPU-a: used by engine-rank0-pid3 and trainer-rank0-pid2" in words
    assert "trainer-rank0-pid2 on GPU-a: 3 of 9 graph launches have no kernel" in words
    assert "no trace of worker-7: another torch profiler runs in this process" in words
    assert f"tensorboard --logdir {run.path}/traces" in text


def test_the_pages_of_both_runs_tell_of_it(profiled, monkeypatch) -> None:
    run, summary, measured = profiled
    page = run_page(run, summary)
    (section,) = [section for section in page.sections if section.id == "profile"]
    devices, cpu = [part for part in section.parts if hasattr(part, "lines")]
    assert [line.cells[0].text.strip() for line in devices.lines] == [
        "GPU-a, all processes", "engine-rank0-pid3", "generation: decode", "trainer-rank0-pid2", "generation: decode"
    ]  # fmt: skip
    assert [cell.text for cell in devices.lines[2].cells[1:4]] == ["1.000", "25.0%", "0.0%"]
    assert [cell.text for cell in cpu.lines[1].cells] == ["\N{EM SPACE}advantage", "0.500", "3", "0.250"]
    monkeypatch.setattr(vega, "runtime", lambda: "window.vegaEmbed=null;")  # the real one takes seconds to bundle
    assert "engine-rank0-pid3" in render(page)

    plain = summary.model_copy(update={"run_pass": "measure", "profile": None})
    assert profile_run_of(run) is None
    assert profile_run_of(measured).id == run.id
    (section,) = [section for section in run_page(measured, plain).sections if section.id == "profile"]
    assert section.parts[0].text == f"rlmbench show {run.id}"
    assert f"profile: rlmbench show {run.id}" in printed(print_run_detail, measured, plain)


def test_a_profile_pass_says_first_that_its_times_are_not_the_frameworks(profiled) -> None:
    run, summary, measured = profiled
    page = run_page(run, summary)
    assert page.title == "gsm8k_grpo · TRL 1.16.0, profile"
    assert (page.checks[0].name, page.checks[0].state) == ("Profile pass", "warn")
    assert "slowed it" in page.checks[0].text
    assert guidelines(run, summary) == []
    assert summarize(run).absent["efficiency"].startswith("torch.profiler slowed this run")
    told = printed(print_run_detail, run, summary)
    assert "guideline" not in told and "Predicted before the run" not in told
    other = run_page(measured, summary.model_copy(update={"run_pass": "measure", "profile": None}))
    assert other.checks[0].name == "Workload audit"


def test_another_campaigns_profile_is_not_this_runs(profiled) -> None:
    run, summary, measured = profiled
    manifest = json.loads((run.path / "manifest.json").read_text())
    (run.path / "manifest.json").write_text(json.dumps({**manifest, "campaign_id": "another"}))
    assert profile_run_of(measured) is None
    plain = summary.model_copy(update={"run_pass": "measure", "profile": None})
    assert "profile" not in [section.id for section in run_page(measured, plain).sections]
