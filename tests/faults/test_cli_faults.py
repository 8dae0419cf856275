"""What a user of the command line sees of a fault, and what is left of it: the real TRL trainer, ended in every way.

Every fault is judged by four things: exit code, what was printed, the record on disk, and that no process is left.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from command import Command, wait_for

import rlmbench
from rlmbench.adapter import find_adapter
from rlmbench.cli.main import main
from rlmbench.environment import cache_root, ensure, folder_of
from rlmbench.environment.cache import finish
from rlmbench.records import Run

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "summary.schema.json").read_text())
PATIENCE_S = 600.0
"""When to give up waiting for what must come about."""
SIGN_OF_LIFE_S = 5.0
BEFORE_TRAINER = "RLMBENCH_TEST_BEFORE_TRAINER"
TRL = ("run", "gsm8k_grpo", "--framework", "trl", "--scale", "tiny")


def settings(**fields: Any) -> tuple[str, ...]:
    """``--set`` arguments; a double underscore stands for a dot."""
    return tuple(word for name, value in fields.items() for word in ("--set", f"{name.replace('__', '.')}={json.dumps(value)}"))


SMALL = settings(workload__prompts_per_step=4, optimization__mini_batch_samples=16)
SHORT = (*TRL, *SMALL, *settings(measurement__steps=3))
MIDDLE = (*TRL, *SMALL, *settings(measurement__steps=6))
"""Long enough to be met in its second step, whatever keeps the test from looking, and short enough to be made again to its end."""
LONG = (*TRL, *SMALL, *settings(measurement__steps=30))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache like the user's own, but shell code in $RLMBENCH_TEST_BEFORE_TRAINER runs in a trainer before Python starts."""
    (spec,) = (spec for spec in find_adapter("trl").environments() if (spec.name, spec.device) == ("trl", "cpu"))
    built = ensure(spec)
    cache = tmp_path_factory.mktemp("cache")
    python = folder_of(spec, cache) / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\ncase "$1" in */train.py) eval "${BEFORE_TRAINER}";; esac\nexec {shlex.quote(str(built.python))} "$@"\n')
    python.chmod(0o755)
    finish(python.parents[1], replace(built, python=python))
    (cache_root() / "inputs").mkdir(parents=True, exist_ok=True)
    (cache / "inputs").symlink_to(cache_root() / "inputs")
    return cache


@pytest.fixture(scope="module")
def started(cache: Path) -> Iterator[Callable[..., Command]]:
    """Start a command in a folder; whatever is left of it when the module's tests are over is ended."""
    commands: list[Command] = []

    def start(folder: Path, *arguments: str, before_trainer: str = "", **others: Any) -> Command:
        env = {"RLMBENCH_CACHE": str(cache), BEFORE_TRAINER: before_trainer, "COLUMNS": "80", **others.pop("env", {})}
        commands.append(Command(folder, *arguments, env=env, **others))
        return commands[-1]

    yield start
    for command in commands:
        command.end()


@pytest.fixture
def start(started: Callable[..., Command], tmp_path: Path) -> Callable[..., Command]:
    """Start a command in this test's own folder."""

    def start(*arguments: str, **others: Any) -> Command:
        return started(tmp_path, *arguments, **others)

    return start


def runs_in(folder: Path) -> list[Run]:
    """The runs recorded below the default results folder, oldest first."""
    return [rlmbench.load(path.parent) for path in sorted(folder.glob("*/gsm8k_grpo/*/manifest.json"))]


def events(run: Run, kind: str, **fields: Any) -> int:
    """How many events of a kind, and with these values, the run's probe has written so far."""
    lines = [line for path in run.path.glob("probe/*.jsonl") for line in path.read_text().split("\n")[:-1]]
    found = [event for event in map(json.loads, lines) if event["ev"] == kind]
    return sum(all(event.get(name) == value for name, value in fields.items()) for event in found)


def in_step(folder: Path, step: int, run: int = 0) -> Callable[[], bool]:
    """A condition: the run of that place is in the middle of a step."""

    def reached() -> bool:
        runs = runs_in(folder)
        return len(runs) > run and events(runs[run], "begin", step=step, stage="actor_update") > 0

    return reached


def wait_until(command: Command, condition: Callable[[], object]) -> None:
    """Wait for a moment in a command's life; its own end is an error."""
    assert wait_for(lambda: command.popen.poll() is not None or condition(), PATIENCE_S), command.output
    assert command.popen.poll() is None, command.output


def ended(command: Command) -> int:
    """The exit code of a command that must end and leave no process."""
    code = command.wait(PATIENCE_S)
    assert command.living() == [], command.output
    return code


def valid(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The runs of a document that holds what docs/summary.schema.json promises."""
    jsonschema.validate(document, SCHEMA)
    runs: list[dict[str, Any]] = document["runs"]
    return runs


def the_only_run(folder: Path) -> Run:
    (run,) = runs_in(folder)
    return run


def trainer_of(run: Run) -> int:
    """The pid that the trainer's probe has recorded."""
    return int(run.processes["pid"].iloc[0])


def printed_command(output: str, before: str) -> list[str]:
    """The arguments of the command that the output tells the user to type."""
    line = next(line for line in output.splitlines() if before in line)
    program, *arguments = shlex.split(line.partition(before)[2])
    assert program == "rlmbench"
    return arguments


@pytest.fixture(scope="module")
def interrupted(started: Callable[..., Command], tmp_path_factory: pytest.TempPathFactory) -> Command:
    """Two repeats, of which the second is interrupted in its second step or, on a busy machine, a later one."""
    command = started(tmp_path_factory.mktemp("interrupted"), *MIDDLE, "--repeats", "2", "--json", "--results", "kept here")
    wait_until(command, in_step(command.folder, 2, run=1))
    command.ctrl_c()
    command.wait(PATIENCE_S)
    assert wait_for(lambda: not command.living(), PATIENCE_S)
    return command


def test_ctrl_c_in_training_keeps_what_was_measured(interrupted: Command) -> None:
    command = interrupted
    assert command.popen.returncode == 130, command.output
    first, second = runs_in(command.folder)
    assert (first.manifest.status, second.manifest.status) == ("ok", "interrupted")
    failure = second.manifest.failure
    assert failure and (failure.failure_class, failure.phase, failure.first_cause, failure.tail) == ("interrupted", "training", None, [])
    # The signal may also fall between two steps, when one has ended and the next has not begun.
    places = (f"interrupted by SIGINT in step {failure.step}", f"interrupted by SIGINT after step {failure.step}")
    begun = next(step for step in range(6, 1, -1) if events(second, "begin", step=step))
    assert failure.message.startswith(places) and failure.step == begun
    assert begun - 1 <= len(second.steps) <= begun and len(second.samples) >= 16 and (second.path / "report.html").is_file()
    assert not (second.path / "scratch").exists()
    assert "Traceback" not in command.output


def test_json_holds_finished_and_interrupted_runs(interrupted: Command) -> None:
    command = interrupted
    assert len(command.stdout.splitlines()) == 1
    assert [run["status"] for run in valid(command.document)] == ["ok", "interrupted"]


def test_a_sign_of_life_every_five_seconds(interrupted: Command) -> None:
    """From the first line on, which takes as long as an interpreter's start; and by as much more as the machine woke others too late."""
    command = interrupted
    gaps = [later - earlier for earlier, later in pairwise(command.stderr_at[1:])]
    assert max(gaps) <= SIGN_OF_LIFE_S + command.woken_late_s, sorted(gaps)[-3:]
    assert any("step 2 of 6" in line and "tokens/s" in line and "left" in line for line in command.stderr)


def test_the_printed_resume_command_runs_only_what_is_missing(interrupted: Command, started: Callable[..., Command]) -> None:
    command = interrupted
    assert "1 of 2 runs finished" in command.output
    before = runs_in(command.folder)
    damaged = command.folder / "kept here" / "another_suite" / "r0" / "manifest.json"
    damaged.parent.mkdir(parents=True)
    damaged.write_text("{")  # no reason to refuse
    resumed = started(command.folder, *printed_command(command.output, "1 of 2 runs finished; complete with: "), "--json")
    assert ended(resumed) == 0, resumed.output
    assert [run["status"] for run in valid(resumed.document)] == ["ok", "ok"]
    assert f"finished before ({before[0].id})" in resumed.output
    after = runs_in(command.folder)
    assert [run.id for run in after[:2]] == [run.id for run in before] and len(after) == 3
    assert (after[2].manifest.repeat, after[2].manifest.campaign_id) == (1, before[1].manifest.campaign_id)
    assert resumed.document["runs"][0]["id"] == before[0].id and after[0].manifest == before[0].manifest


@pytest.mark.parametrize(
    ("moment", "number", "code"),
    [
        ("preparing", signal.SIGINT, 130),
        ("preparing", signal.SIGTERM, 143),
        ("startup", signal.SIGINT, 130),
        ("startup", signal.SIGHUP, 143),
        ("training", signal.SIGTERM, 143),
    ],
)
def test_a_stop_signal_at_any_moment(
    start: Callable[..., Command], cache: Path, tmp_path: Path, moment: str, number: int, code: int
) -> None:
    fresh = tmp_path / "cache"  # nothing is prepared there
    fresh.mkdir()
    (fresh / "environments").symlink_to(cache / "environments")
    command = start(*LONG, env={"RLMBENCH_CACHE": str(fresh)} if moment == "preparing" else {})

    def reached() -> object:
        runs = runs_in(tmp_path)
        if moment == "preparing":
            return runs and (runs[0].path / "logs" / "prepare.log").exists()
        return runs and (events(runs[0], "process" if moment == "startup" else "step"))

    wait_until(command, reached)
    if number == signal.SIGINT:
        command.ctrl_c()
    else:
        command.popen.send_signal(number)
    assert ended(command) == code, command.output
    manifest = the_only_run(tmp_path).manifest
    failure = manifest.failure
    assert failure and (manifest.status, failure.failure_class, failure.phase) == ("interrupted", "interrupted", moment)
    assert f"interrupted by {signal.Signals(number).name}" in failure.message
    assert "0 of 1 run finished; complete with: rlmbench run gsm8k_grpo --resume\n" in command.stdout
    assert "Traceback" not in command.output
    if moment == "preparing":
        assert not list(fresh.glob("inputs/models/*")) and not list(fresh.glob("inputs/tmp/*"))


def test_kill_9_of_rlmbench_leaves_a_readable_record_that_can_be_resumed(start: Callable[..., Command], tmp_path: Path) -> None:
    own = tmp_path / "tmp"
    own.mkdir()
    command = start(*MIDDLE, env={"TMPDIR": str(own)})
    wait_until(command, in_step(tmp_path, 2))
    command.popen.kill()
    assert wait_for(lambda: not command.living(), PATIENCE_S)
    run = the_only_run(tmp_path)
    steps = len(run.steps)
    assert (run.manifest.status, steps >= 1, len(run.samples) >= 16) == ("interrupted", True, True)
    shown = start("show", run.id, "--json")
    assert ended(shown) == 0, shown.output
    (summary,) = valid(shown.document)
    assert (summary["status"], summary["failure_class"], summary["completed_steps"]) == ("interrupted", "killed", steps)
    shown = start("show")
    assert ended(shown) == 0 and "rlmbench itself ended while it ran" in " ".join(shown.stdout.split()), shown.output
    [left] = own.glob("rlmbench-*")
    assert (run.path / "scratch").exists()
    resumed = start("run", "gsm8k_grpo", "--resume", "--json", env={"TMPDIR": str(own)})
    assert ended(resumed) == 0, resumed.output
    assert [run["status"] for run in valid(resumed.document)] == ["ok"]
    assert f"removed {left}, which a run had left when it was killed" in resumed.output
    assert list(own.glob("rlmbench-*")) == [] and not (run.path / "scratch").exists()


def test_kill_9_of_the_trainer_names_place_signal_log_and_command(start: Callable[..., Command], tmp_path: Path) -> None:
    command = start(*LONG)
    wait_until(command, in_step(tmp_path, 2))
    os.kill(trainer_of(the_only_run(tmp_path)), signal.SIGKILL)
    assert ended(command) == 1, command.output
    run = the_only_run(tmp_path)
    failure = run.manifest.failure
    assert failure and (failure.failure_class, failure.signal, failure.phase) == ("killed", "SIGKILL", "training")
    places = (f"ended by SIGKILL in step {failure.step}, stage ", f"ended by SIGKILL after step {failure.step}")
    assert failure.message.startswith(places) and (failure.step or 0) >= 2
    assert failure.rerun_command == shlex.join(("rlmbench", *LONG))
    printed = command.stdout
    assert failure.message in " ".join(printed.split())
    assert f"log:    results/gsm8k_grpo/{run.id}/logs/trainer.log\n" in printed
    assert f"again:  {failure.rerun_command}\n" in printed
    assert 1 <= len(failure.tail) <= 10 and printed.count("\n  | ") >= len(failure.tail)


def test_a_stopped_trainer_is_a_hang(start: Callable[..., Command], tmp_path: Path) -> None:
    command = start(*LONG, *settings(measurement__stall_timeout_s=15), "--json")
    wait_until(command, in_step(tmp_path, 2))
    os.kill(trainer_of(the_only_run(tmp_path)), signal.SIGSTOP)
    os.kill(command.popen.pid, signal.SIGSTOP)  # else it has ended the run before the second one, on a slow machine, has begun to look
    second = start("run", "gsm8k_grpo", "--resume")
    assert second.wait() == 2 and f"is still at work on {the_only_run(tmp_path).id}" in second.output, second.output
    os.kill(command.popen.pid, signal.SIGCONT)
    assert ended(command) == 1, command.output
    (summary,) = valid(command.document)
    assert (summary["status"], summary["failure_class"], summary["failure"]["phase"]) == ("failed", "hang", "training")
    assert "measurement.stall_timeout_s in step" in summary["failure"]["message"]


def test_too_slow_a_run_is_ended(start: Callable[..., Command], tmp_path: Path) -> None:
    command = start(*LONG, *settings(measurement__wall_timeout_s=2), "--json")
    assert ended(command) == 1, command.output
    (summary,) = valid(command.document)
    assert (summary["failure_class"], summary["failure"]["phase"]) == ("timeout", "startup")
    assert summary["failure"]["message"] == "still running after 2 s (measurement.wall_timeout_s) before the first step"
    assert "0 of 1 run finished" in command.output


@pytest.mark.parametrize("limit_kib", [100_000, 1_300_000])
def test_out_of_host_memory_is_named(start: Callable[..., Command], tmp_path: Path, limit_kib: int) -> None:
    command = start(*LONG, before_trainer=f"ulimit -v {limit_kib}")
    assert ended(command) == 1, command.output
    failure = the_only_run(tmp_path).manifest.failure
    assert failure and failure.failure_class == "out_of_memory_host", (failure, command.output)
    assert "out of memory (host)" in command.stdout and failure.first_cause


@pytest.mark.parametrize(
    ("damage", "cause", "phase"),
    [
        ("echo '{' > plan.json", "json.decoder.JSONDecodeError: ", "startup"),
        ("""sed -i 's/"rewards": *\\[[^]]*\\]/"rewards": []/g' plan.json""", "IndexError: list index out of range", "training"),
    ],
)
def test_an_error_in_the_framework_is_quoted(start: Callable[..., Command], tmp_path: Path, damage: str, cause: str, phase: str) -> None:
    command = start(*SHORT, before_trainer=damage)
    assert ended(command) == 1, command.output
    run = the_only_run(tmp_path)
    failure = run.manifest.failure
    assert failure and (failure.failure_class, failure.phase, failure.exit_code) == ("framework_error", phase, 1), failure
    assert (failure.first_cause or "").startswith(cause) and f"cause:  {cause}" in command.stdout
    assert run.plan and len(run.plan["rows"][0]["rewards"]) == 4  # the plan on record is the one that was drawn


@pytest.mark.parametrize(
    ("config", "failure_class", "phase"),
    [
        ("{", "configuration", "preparing"),
        ('{"model_type": "gpt3"}', "framework_error", "startup"),
    ],
)
def test_a_broken_model_is_named(
    start: Callable[..., Command], cache: Path, tmp_path: Path, config: str, failure_class: str, phase: str
) -> None:
    (model, *_) = sorted((cache / "inputs" / "models").glob("tiny-*"))
    broken = tmp_path / "broken model"
    shutil.copytree(model, broken)
    (broken / "config.json").write_text(config)
    command = start(*SHORT, *settings(model__path=str(broken)))
    assert ended(command) == 1, command.output
    failure = the_only_run(tmp_path).manifest.failure
    assert failure and (failure.failure_class, failure.phase) == (failure_class, phase), (failure, command.output)


@pytest.mark.parametrize(
    ("python", "code", "text"),
    [
        (sys.executable, 3, "cannot run trl: trl is not installed, "),
        ("nowhere/python", 2, "no executable Python at nowhere/python: give an interpreter"),
    ],
)
def test_an_interpreter_that_cannot_be_used(start: Callable[..., Command], tmp_path: Path, python: str, code: int, text: str) -> None:
    command = start(*SHORT, "--python", python, "--quiet")
    assert ended(command) == code, command.output
    (line,) = command.stderr
    assert line.startswith("error: ") and text in line
    assert (command.stdout, list(tmp_path.iterdir())) == ("", [])


def test_a_run_that_trains_nothing_is_not_green(start: Callable[..., Command], tmp_path: Path) -> None:
    command = start(*SHORT, "--quiet", before_trainer="exit 0")
    assert ended(command) == 1, command.output
    assert command.stderr == []
    manifest = the_only_run(tmp_path).manifest
    assert manifest.failure and (manifest.status, manifest.failure.failure_class) == ("failed", "audit")
    for arguments in (("show",), (*SHORT, "--quiet")):
        reader, writer = os.pipe()
        os.close(reader)  # as `| head -1` does, only sooner
        command = start(*arguments, before_trainer="exit 0", stdout=writer)
        os.close(writer)
        assert (ended(command), command.stderr) == (0 if arguments == ("show",) else 1, [])


WRONG = [
    ("runn", "unknown command 'runn' (did you mean 'run'?)"),
    ("run", "Missing argument 'suite'"),
    ("run gsm8k_grop -f trl", "gsm8k_grop: no such suite (did you mean 'gsm8k_grpo'?)"),
    ("run gsm8k_grpo", "give at least one --framework"),
    ("run gsm8k_grpo -f tlr", "unknown framework 'tlr' (did you mean 'trl'?)"),
    ("run gsm8k_grpo -f trl --scale tinny", "--scale tinny: unknown scale (did you mean 'tiny'?)"),
    ("run gsm8k_grpo -f trl --set optimization.group_sise=8", "unknown key (did you mean 'group_size'?)"),
    ("run gsm8k_grpo -f trl --set optimization.group_size=x", "--set optimization.group_size: should be a valid integer"),
    ("run gsm8k_grpo -f trl --set measurement.steps=1", "or nothing is measured"),
    ("run gsm8k_grpo -f trl --set workload.prompts_per_step=3", "--set workload.prompts_per_step=3: "),
    ("run gsm8k_grpo -f trl --reapeats 2", "No such option: --reapeats"),
    ("run gsm8k_grpo -f trl --repeats 0", "--repeats 0: give at least 1"),
    ("run gsm8k_grpo -f trl --device tpu", "--device tpu: give cpu or cuda"),
    ("run gsm8k_grpo -f trl --ray-address head:6379", "--ray-address: trl does not use Ray"),
    ("run gsm8k_grpo -f verl --ray-address auto", "--ray-address auto: give HOST:PORT of the cluster's head"),
    ("run gsm8k_grpo -f trl --results a-file/results", "--results: a-file is a file, not a folder"),
    ("run gsm8k_grpo -f trl --reports a-file", "--reports: a-file is a file, not a folder"),
    ("run gsm8k_grpo --resume", "nothing to resume: no campaign of gsm8k_grpo in results"),
    ("run gsm8k_grpo --resume --results kept --repeats 7", "--repeats 7, planned with 1"),
    ("run gsm8k_grpo --resume --results kept --campaign nope", "unknown campaign 'nope'"),
    ("run gsm8k_grpo --resume --results damaged", "damaged campaign (request.frameworks: "),
    ("run gsm8k_grpo -f trl --campaign c1", "--campaign goes with --resume"),
    ("show", "unknown run 'latest' in results; no runs there yet"),
    ("show nope --results kept", "unknown run 'nope' in kept"),
    ("show r1 --results damaged", "manifest.json: damaged (line 1, column 21); take another copy"),
    ("report nope", "unknown run 'nope' in results"),
]


@pytest.mark.parametrize(("arguments", "text"), WRONG, ids=[arguments for arguments, _ in WRONG])
def test_wrong_usage_is_one_line_and_starts_nothing(
    arguments: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    campaign = {"campaign_id": "c1", "suite": "gsm8k_grpo", "created_unix_s": 1.0}
    request = {"suite": "gsm8k_grpo", "frameworks": ["trl"], "overrides": []}
    for folder, asked in (("kept", request), ("damaged", {**request, "frameworks": 5})):
        (tmp_path / folder / "gsm8k_grpo" / "campaigns").mkdir(parents=True)
        (tmp_path / folder / "gsm8k_grpo" / "campaigns" / "c1.json").write_text(json.dumps({**campaign, "request": asked}))
    (tmp_path / "damaged" / "gsm8k_grpo" / "r1").mkdir()
    (tmp_path / "damaged" / "gsm8k_grpo" / "r1" / "manifest.json").write_text('{"schema_version": 1')
    (tmp_path / "a-file").touch()
    before = sorted(tmp_path.rglob("*"))
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        code = main(shlex.split(arguments))
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    out, err = capsys.readouterr()
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert err.startswith("error: ") and text in err
    assert sorted(tmp_path.rglob("*")) == before


def test_wrong_usage_is_no_traceback_either(start: Callable[..., Command]) -> None:
    command = start("run", "gsm8k_grpo", "--framework", "tlr")
    assert (ended(command), command.stdout) == (2, "")
    (line,) = command.stderr
    assert line.startswith("error: unknown framework 'tlr' (did you mean 'trl'?); installed adapters: ")
