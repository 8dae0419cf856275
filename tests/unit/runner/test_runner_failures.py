from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from rlmbench.runner.failures import Failure, FailureClass, Position, ProcessLog, classify
from rlmbench.runner.logtext import mark_end
from rlmbench.runner.supervise import Outcome, Reason

LOGS = Path(__file__).parent / "logs"
STEP_3 = Position(step=3, stage="actor_update", steps_done=2, steps_planned=5)


def outcome(
    reason: Reason = Reason.EXITED,
    exit_code: int | None = None,
    signal: int | None = None,
    process: str = "main",
    oom_kills: int | None = 0,
    interrupt: int | None = None,
    error: str = "",
) -> Outcome:
    return Outcome(
        reason=reason,
        process=process,
        is_main=process == "main",
        exit_code=exit_code,
        signal=signal,
        seconds=10.0,
        peak_rss_bytes=0,
        oom_kills=oom_kills,
        interrupt=interrupt,
        error=error,
    )


def failure(ended: Outcome, log: str = "", position: Position = STEP_3) -> Failure:
    found = classify(ended, [ProcessLog("main", "logs/main.log", log)], position)
    assert found
    return found


def fixture(name: str) -> str:
    return (LOGS / f"{name}.txt").read_bytes().decode()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bad_arg", FailureClass.CONFIGURATION),
        ("bad_config", FailureClass.CONFIGURATION),
        ("bad_key", FailureClass.CONFIGURATION),
        ("chained", FailureClass.FRAMEWORK_ERROR),
        ("cpu_alloc", FailureClass.OUT_OF_MEMORY_HOST),
        ("memoryerror", FailureClass.OUT_OF_MEMORY_HOST),
        ("bad_alloc", FailureClass.OUT_OF_MEMORY_HOST),
        ("no_map", FailureClass.OUT_OF_MEMORY_HOST),
        ("openblas", FailureClass.OUT_OF_MEMORY_HOST),
        ("cuda_oom", FailureClass.OUT_OF_MEMORY_DEVICE),
        ("ray_nested", FailureClass.OUT_OF_MEMORY_DEVICE),
        ("vllm_engine", FailureClass.OUT_OF_MEMORY_DEVICE),
        ("no_cuda", FailureClass.ENVIRONMENT),
        ("no_model", FailureClass.ENVIRONMENT),
        ("no_module", FailureClass.ENVIRONMENT),
        ("state_dict", FailureClass.FRAMEWORK_ERROR),
        ("torchrun_raises", FailureClass.FRAMEWORK_ERROR),
        ("torchrun_killed", FailureClass.KILLED),
        ("torchrun_segv", FailureClass.CRASH),
        ("ray_actor_killed", FailureClass.KILLED),
        ("ray_actor_segv", FailureClass.CRASH),
    ],
)
def test_exit_code_1_is_classified_by_its_first_cause(name: str, expected: FailureClass) -> None:
    assert failure(outcome(exit_code=1), fixture(name), Position()).failure_class is expected


def test_a_refusal_after_the_first_step_is_no_configuration_error() -> None:
    assert failure(outcome(exit_code=1), fixture("bad_config")).failure_class is FailureClass.FRAMEWORK_ERROR


@pytest.mark.parametrize(
    ("ended", "expected", "message"),
    [
        (outcome(signal=signal.SIGSEGV), FailureClass.CRASH, "ended by SIGSEGV in step 3, stage actor_update"),
        (outcome(exit_code=139), FailureClass.CRASH, "ended by SIGSEGV in step 3, stage actor_update"),
        (outcome(signal=signal.SIGKILL), FailureClass.KILLED, "ended by SIGKILL in step 3, stage actor_update"),
        (outcome(signal=signal.SIGKILL, oom_kills=1), FailureClass.OUT_OF_MEMORY_HOST, "out of host memory in step 3, stage actor_update"),
        (outcome(signal=signal.SIGSEGV, oom_kills=1), FailureClass.CRASH, "ended by SIGSEGV in step 3, stage actor_update"),
        (outcome(signal=signal.SIGKILL, oom_kills=None), FailureClass.KILLED, "ended by SIGKILL in step 3, stage actor_update"),
        (
            outcome(Reason.STALL_TIMEOUT),
            FailureClass.HANG,
            "no span, output or CPU time within measurement.stall_timeout_s in step 3, stage actor_update",
        ),
        (
            outcome(Reason.WALL_TIMEOUT),
            FailureClass.TIMEOUT,
            "still running after 10 s (measurement.wall_timeout_s) in step 3, stage actor_update",
        ),
        (
            outcome(Reason.INTERRUPTED, interrupt=signal.SIGINT),
            FailureClass.INTERRUPTED,
            "interrupted by SIGINT in step 3, stage actor_update",
        ),
        (outcome(Reason.START_FAILED, error="FileNotFoundError: x"), FailureClass.ENVIRONMENT, "process main could not be started"),
        (outcome(Reason.READY_TIMEOUT, process="vllm"), FailureClass.TIMEOUT, "not ready in time in process vllm"),
        (outcome(exit_code=1), FailureClass.FRAMEWORK_ERROR, "exit code 1 in step 3, stage actor_update"),
    ],
)
def test_the_way_a_run_ended(ended: Outcome, expected: FailureClass, message: str) -> None:
    found = failure(ended)
    assert (found.failure_class, found.message) == (expected, message)


def test_ranks_waiting_for_one_out_of_memory_are_no_hang() -> None:
    assert failure(outcome(Reason.STALL_TIMEOUT), fixture("cuda_oom")).failure_class is FailureClass.OUT_OF_MEMORY_DEVICE


def test_a_rank_killed_for_memory() -> None:
    found = failure(outcome(exit_code=1, oom_kills=1), fixture("torchrun_killed"))
    assert (found.failure_class, found.signal, found.exit_code) == (FailureClass.OUT_OF_MEMORY_HOST, "SIGKILL", 1)


def test_a_ray_worker_that_was_killed() -> None:
    found = failure(outcome(exit_code=1), fixture("ray_actor_killed"))
    assert found.message == "a worker process died without an error in step 3, stage actor_update"
    assert found.first_cause == "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task."
    assert failure(outcome(exit_code=1, oom_kills=1), fixture("ray_actor_killed")).failure_class is FailureClass.OUT_OF_MEMORY_HOST
    assert failure(outcome(exit_code=1), fixture("ray_actor_segv")).message == "ended by SIGSEGV in step 3, stage actor_update"


def test_success_is_no_failure_but_a_server_s_end_is() -> None:
    assert classify(outcome(exit_code=0), [], STEP_3) is None
    server = classify(outcome(exit_code=0, process="vllm"), [], STEP_3)
    assert server and (server.phase, server.step, server.stage) == ("server", None, None)


def test_the_blamed_process_s_log_is_quoted_first() -> None:
    logs = [ProcessLog("main", "logs/main.log", fixture("chained")), ProcessLog("vllm", "logs/vllm.log", fixture("cuda_oom"))]
    found = classify(outcome(exit_code=1, process="vllm"), logs, STEP_3)
    assert found and found.log_path == "logs/vllm.log" and (found.first_cause or "").startswith("torch.OutOfMemoryError")
    found = classify(outcome(exit_code=1), logs, STEP_3)
    assert found and found.log_path == "logs/main.log" and found.first_cause == "KeyError: 'b'"


def test_what_processes_say_when_interrupted_is_no_cause() -> None:
    assert failure(outcome(Reason.INTERRUPTED, interrupt=signal.SIGTERM), fixture("chained")).first_cause is None


@pytest.mark.parametrize(
    ("position", "phase", "message"),
    [
        (Position(), "startup", "exit code 1 before the first step"),
        (STEP_3, "training", "exit code 1 in step 3, stage actor_update"),
        (Position(step=3, stage=None, steps_done=2, steps_planned=5), "training", "exit code 1 in step 3"),
        (Position(step=2, stage=None, steps_done=2, steps_planned=5), "training", "exit code 1 after step 2"),
        (Position(step=5, stage=None, steps_done=5, steps_planned=5), "shutdown", "exit code 1 after the last step"),
    ],
)
def test_phases(position: Position, phase: str, message: str) -> None:
    found = failure(outcome(exit_code=1), position=position)
    assert (found.phase, found.message) == (phase, message)


def test_what_a_process_says_after_being_told_to_end_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "main.log"
    path.write_text("waiting for rank 1 50%")
    mark_end(path, "stall_timeout")
    with path.open("a") as file:
        file.write(fixture("chained"))
    found = failure(outcome(Reason.STALL_TIMEOUT), path.read_text())
    assert (found.first_cause, found.tail) == (None, ("waiting for rank 1 50%",))


def test_a_failure_is_json() -> None:
    found = failure(outcome(exit_code=1), fixture("bad_key"), Position())
    assert json.loads(json.dumps(found.as_dict())) == {
        "failure_class": "configuration",
        "phase": "startup",
        "step": 0,
        "stage": None,
        "message": "TypeError, exit code 1 before the first step",
        "first_cause": "TypeError: GRPOConfig.__init__() got an unexpected keyword argument 'group_size'",
        "exit_code": 1,
        "signal": None,
        "log_path": "logs/main.log",
        "tail": [
            "Traceback (most recent call last):",
            '  File "/job/bad_key.py", line 2, in <module>',
            '    GRPOConfig(output_dir="out", group_size=4)',
            "TypeError: GRPOConfig.__init__() got an unexpected keyword argument 'group_size'",
        ],
    }
