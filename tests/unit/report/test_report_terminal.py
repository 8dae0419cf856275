from __future__ import annotations

import io

import pytest
import synthetic_run
from rich.console import Console

from rlmbench.metrics import summarize
from rlmbench.metrics.idle import LongTail
from rlmbench.records.manifest import DeviceState, Failure, Preconditions
from rlmbench.records.overhead import HarnessOverhead
from rlmbench.report import trust, words
from rlmbench.report.console_parts import table, text
from rlmbench.report.line import one_line
from rlmbench.report.terminal import print_ledger, print_run_detail, print_runs


def _console(width: int = 80) -> tuple[Console, io.StringIO]:
    stream = io.StringIO()
    return Console(file=stream, width=width), stream


def _lines(stream: io.StringIO) -> list[str]:
    return [text.rstrip() for text in stream.getvalue().splitlines()]


def test_a_campaign_fits_eighty_columns_without_colour(finished, failed, stepless) -> None:
    console, stream = _console()
    print_runs([finished[1], failed[1], stepless[1]], console)
    lines = _lines(stream)
    assert "\x1b" not in stream.getvalue()
    long = [text for text in lines if len(text) > 80]
    assert all(text.startswith(("log:", "again:")) for text in long)
    table = lines[lines.index("3 runs") :]  # of several runs it comes last
    row = next(text.split() for text in table if text.strip().startswith("[1]"))
    assert row[:5] == ["[1]", "TRL", "ok", "ok", "5/6"]
    assert row[-1] == "0.2%"
    row = next(text.split() for text in table if text.strip().startswith("[3]"))
    assert row == ["[3]", "TRL", "failed", "partial", "0/0", "n/a", "n/a", "n/a", "n/a", "n/a"]


def test_ids_stand_in_the_table_where_they_fit(finished) -> None:
    console, stream = _console(160)
    print_runs([finished[1]], console)
    assert next(text for text in _lines(stream) if "TRL" in text).strip().startswith("gsm8k_grpo-tiny-trl-synthetic")


def test_the_stage_table_shows_shares_that_add_up(finished) -> None:
    console, stream = _console()
    print_runs([finished[1]], console)
    table = _lines(stream)[_lines(stream).index("Where a measured step's time goes") :]
    rows = [text.split() for text in table[: table.index(next(text for text in table if text.startswith("Seconds are")))]]
    shares = [float(cell.rstrip("%")) for row in rows for cell in row if cell.endswith("%")]
    assert len(shares) == len(finished[1].stages_s) + 1
    assert sum(shares) == pytest.approx(100, abs=0.5)
    generation = next(row for row in rows if row and row[0] == "generation")
    assert generation[1] == f"{finished[1].stages_s['generation']:.3f}"
    assert "█" * 16 in generation


def test_stages_that_run_at_once_are_said_to_add_up_to_more(finished) -> None:
    run, summary = finished
    for overlap_s in (0.0, 0.25):
        console, stream = _console()
        print_run_detail(run, summary.model_copy(update={"overlap_s": overlap_s}), console)
        said = "Stages run at once for 250 ms of a step, so that shares add up to more than 100%." in " ".join(stream.getvalue().split())
        assert said == bool(overlap_s)


def test_waiting_by_role_stands_in_a_table_with_the_tail_or_its_reason(finished) -> None:
    run, summary = finished
    console, stream = _console()
    print_run_detail(run, summary, console)
    lines = _lines(stream)
    rows = [text.split() for text in lines[lines.index("Waiting in a measured step, by role") :]]
    (role,) = summary.idle.roles
    assert ["trainer", "2", f"{role.busy_s:.3f}", f"{role.role_waiting:.1%}"] in [row[:4] for row in rows]
    assert any(row[:2] == ["tail:", "n/a"] for row in rows)
    assert all(len(text) <= 80 for text in lines if not text.startswith(("folder:", "again:")))


def test_a_tail_is_told_in_words(finished) -> None:
    run, summary = finished
    tail = LongTail(tail_s=0.5, tail_share=0.125, samples=32, steps=5)
    console, stream = _console()
    print_run_detail(run, summary.model_copy(update={"idle": summary.idle.model_copy(update={"tail": tail})}), console)
    text = " ".join(stream.getvalue().split())
    assert "500 ms per step, 12.5% of generation, with fewer than a tenth of a step's samples unfinished" in text


def test_a_failure_is_shown_with_cause_log_and_command(failed) -> None:
    console, stream = _console()
    print_runs([failed[1]], console)
    text = stream.getvalue()
    assert "failed: out of memory (host): the kernel ended rank 1" in text
    assert "phase running, step 3, stage actor_update, ended by SIGKILL" in text
    assert "DefaultCPUAllocator" in text
    assert sum("SYNTHETIC log line" in line for line in text.splitlines()) == 10
    assert "again:  rlmbench run gsm8k_grpo --framework trl --scale tiny" in _lines(stream)


def test_the_detail_holds_checks_steps_and_the_whole_ledger(finished) -> None:
    console, stream = _console()
    print_run_detail(*finished, console, whole_ledger=True)
    text = stream.getvalue()
    assert "ok Arithmetic: stages + unattributed - overlap equal each of 6 steps exactly" in text
    assert "CPU: orchestration, not GPU throughput" in text
    assert "Fidelity ledger (10 fields)" in text
    shorter, brief = _console()
    print_run_detail(*finished, shorter)
    assert "model.shape" not in brief.getvalue() and "model.dtype" in brief.getvalue()  # what is not exact is always said
    assert text.index("model.dtype = bfloat16", text.index("Fidelity ledger")) < text.index("model.shape = qwen2.5-0.5b")


def test_markup_in_a_record_stays_text() -> None:
    console, stream = _console()
    entry = {
        "field": "model.hub",
        "value": "[red]x[/]",
        "fidelity": "exact",
        "native_key": "[bold]",
        "native_value": 1,
        "reason": "[/nonsense]",
    }
    print_ledger([entry], console)
    assert "[red]x[/]" in stream.getvalue()
    assert "[/nonsense]" in stream.getvalue()
    made = table("[b]a column[/b]", title="[red]x[/] [/y]\x1b[31m\x9b2J")
    made.add_row(text("[i]1"))
    console.print(made)
    assert [line.strip() for line in _lines(stream)[-6:]] == ["[red]x[/] [/y]2J", "", "[b]a column[/b]", "─" * 15, "[i]1", ""]


def test_no_run_at_all() -> None:
    console, stream = _console()
    print_runs([], console)
    assert "No run was made" in stream.getvalue()


def test_a_lost_sample_is_the_first_thing_one_reads(tmp_path) -> None:
    run = synthetic_run.write_run(tmp_path, lost_in_step=3)
    summary = summarize(run)
    check = trust.checks(summary, run.manifest)[0]
    assert check.state == "bad"
    assert "step 3: the loss received 31 samples instead of 32" in check.text
    console, stream = _console()
    print_runs([summary], console)
    assert "31 samples instead of 32" in stream.getvalue()


@pytest.mark.parametrize(
    ("low", "high", "state", "says"),
    [
        (0.98, 1.02, "ok", "is 1.004 times that without probe and collector: median of 6 pairs of runs of gsm8k_grpo at tiny"),
        (1.011, 1.05, "warn", "95% interval 1.011 to 1.050"),
        (None, None, "none", "too few for an interval"),
    ],
)
def test_the_measured_cost_of_measuring(finished, low, high, state, says) -> None:
    run, summary = finished
    about = {
        "framework": "trl",
        "suite": "gsm8k_grpo",
        "scale": "tiny",
        "device": "cpu",
        "steps": 8,
        "measured_unix_s": 1.0,
        "rlmbench": "0",
    }
    overhead = HarnessOverhead(**about, ratios=[1.004] * 6, ratio=1.004, low=low, high=high)
    manifest = run.manifest.model_copy(update={"harness_overhead": overhead})
    check = next(check for check in trust.checks(summary, manifest) if check.name == "Cost of measuring")
    assert (check.state, says in check.text) == (state, True), check.text


GPU = DeviceState(uuid="GPU-1")


@pytest.mark.parametrize(
    ("found", "warnings", "state", "says"),
    [
        (None, [], "none", "not looked at"),
        (Preconditions(host_busy_share=0.02), [], "ok", "quiet: 2.0% of the machine's cores were at work when it began"),
        (Preconditions(host_busy_share=0.02, devices=[GPU]), [], "ok", "; 1 device free and not slowed down"),
        (Preconditions(devices=[GPU], devices_after=[GPU]), [], "ok", "1 device free and not slowed down, and free again after it"),
        (
            Preconditions(host_busy_share=0.9),
            ["the machine was not quiet", "collector: it ended"],
            "warn",
            "not quiet; collector: it ended",
        ),
    ],
)
def test_the_conditions_of_a_run(finished, found, warnings, state, says) -> None:
    run, summary = finished
    manifest = run.manifest.model_copy(update={"preconditions": found, "warnings": warnings})
    check = next(check for check in trust.checks(summary, manifest) if check.name == "Conditions")
    assert (check.state, says in check.text) == (state, True), check.text
    assert ("free again" in check.text) == bool(found and found.devices_after)  # of a run that was killed nobody looked


def test_checks_warn_below_their_limits(finished) -> None:
    run, summary = finished
    low = summary.coverage.model_copy(update={"min": 0.949})
    worse = summary.model_copy(update={"coverage": low, "probe_overhead": 0.0051, "measured_steps": 2, "violations": ["step 1: wrong"]})
    states = {check.name: check.state for check in trust.checks(worse, run.manifest)}
    assert (states["Coverage"], states["Probe overhead"], states["Measured steps"], states["Arithmetic"]) == ("warn", "warn", "warn", "bad")
    states = {check.name: check.state for check in trust.checks(summary, run.manifest)}
    assert states == {
        "Workload audit": "ok",
        "Coverage": "ok",
        "Arithmetic": "ok",
        "Probe overhead": "ok",
        "Cost of measuring": "none",
        "Conditions": "none",
        "Measured steps": "ok",
        "Weights": "ok",
        "Weight sync": "none",
        "Fidelity": "warn",
        "Versions": "ok",
        "Hooks": "none",
    }


def test_a_narrow_terminal_breaks_no_word_of_its_main_tables(finished) -> None:
    stream = io.StringIO()
    print_runs([finished[1]], Console(file=stream, width=60))
    lines = [line.rstrip() for line in stream.getvalue().splitlines()]
    assert max(map(len, lines)) <= 60
    (head,) = [line.split() for line in lines if line.split()[:2] == ["run", "framework"]]
    assert head == ["run", "framework", "status", "audit", "steps", "step", "s", "cover", "tok/s"]
    first = lines.index(next(line for line in lines if line.startswith(" stage "))) + 2
    stages = " ".join(line[:20].strip() for line in lines[first : lines.index("", first)])
    assert stages.startswith("generation reward reference log-probs old log-probs advantage actor update")


@pytest.mark.parametrize(
    ("status", "kind", "message", "line"),
    [
        ("interrupted", "interrupted", "interrupted by SIGINT in step 3", "interrupted by SIGINT in step 3, 5 steps measured, "),
        (
            "interrupted",
            "killed",
            "rlmbench itself ended while it ran",
            "interrupted (killed), rlmbench itself ended while it ran, 5 steps measured, ",
        ),
        ("failed", "crash", "ended by SIGSEGV", "failed (crash), ended by SIGSEGV, 5 steps measured, "),
    ],
)
def test_a_line_says_once_how_a_run_ended(finished, status, kind, message, line) -> None:
    failure = Failure(failure_class=kind, message=message)
    ended = finished[1].model_copy(update={"status": status, "failure_class": kind, "failure": failure, "measured_steps": 5})
    assert one_line(ended).startswith(line)


def test_a_run_without_stages_ends_no_sentence_in_nothing(finished) -> None:
    told = words.lead(finished[1].model_copy(update={"stages_share": {}, "stages_s": {}}))
    assert told.endswith("Where it goes is not known: no spans were recorded.") and "goes to" not in told
