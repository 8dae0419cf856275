"""What kind of failure ended a run, in words its user can act on. Pure: an outcome, logs and a position in, a `Failure` out."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from rlmbench.runner.logtext import Cause, before_end, find_cause, signal_name, tail
from rlmbench.runner.supervise import Outcome, Reason


class FailureClass(StrEnum):
    """The kinds of failure, by what the user does about them."""

    ENVIRONMENT = "environment"
    CONFIGURATION = "configuration"
    OUT_OF_MEMORY_HOST = "out_of_memory_host"
    OUT_OF_MEMORY_DEVICE = "out_of_memory_device"
    HANG = "hang"
    TIMEOUT = "timeout"
    CRASH = "crash"
    KILLED = "killed"
    FRAMEWORK_ERROR = "framework_error"
    AUDIT = "audit"
    INTERRUPTED = "interrupted"


class Phase(StrEnum):
    """How far a run had come."""

    SERVER = "server"
    STARTUP = "startup"
    TRAINING = "training"
    SHUTDOWN = "shutdown"


@dataclass(frozen=True)
class Position:
    """Where the probe last saw the run: the step (0 before the first), the open stage, steps that ended, steps planned."""

    step: int = 0
    stage: str | None = None
    steps_done: int = 0
    steps_planned: int | None = None

    def phase(self) -> Phase:
        if self.steps_planned is not None and self.steps_done >= self.steps_planned:
            return Phase.SHUTDOWN
        return Phase.TRAINING if self.step > 0 else Phase.STARTUP


@dataclass(frozen=True)
class ProcessLog:
    """The raw output of one process: its name, where it lies (as the user should see the path), and its text."""

    process: str
    path: str
    text: str


@dataclass(frozen=True)
class Failure:
    """Everything a user needs to know about a failed run. `message` is one line; `tail` the log's last lines."""

    failure_class: FailureClass
    phase: Phase | None
    step: int | None
    stage: str | None
    message: str
    first_cause: str | None = None
    exit_code: int | None = None
    signal: str | None = None
    log_path: str | None = None
    tail: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """JSON-serializable."""
        return {**asdict(self), "tail": list(self.tail)}


_DEVICE_MEMORY = re.compile(
    r"CUDA out of memory|\bOutOfMemoryError: (?:CUDA|HIP|XPU|NPU)|HIP out of memory|CUDA error: out of memory"
    r"|CUBLAS_STATUS_ALLOC_FAILED|NCCL.*out of memory|No available memory for the cache blocks"
    r"|Free memory on device .* is less than desired GPU memory utilization",
    re.IGNORECASE,
)
_HOST_MEMORY = re.compile(
    r"\bMemoryError\b|bad_alloc|DefaultCPUAllocator|[Cc]annot allocate memory|[Oo]ut of memory: Killed|Unable to allocate .* for an array"
    r"|failed to map segment from shared object(?!: Operation not permitted)|OpenBLAS error: Memory allocation"
    r"|OOM[- ]?kill|ray\.exceptions\.OutOfMemoryError|node running low on memory|^Killed\b|\b\d+ Killed\b|killed by signal: (?:Killed|Bus error)"
)
_ENVIRONMENT = re.compile(
    r"\bModuleNotFoundError\b|\bImportError\b|cannot open shared object file|undefined symbol|GLIBC\w*_[\d.]+. not found"
    r"|Torch not compiled with CUDA|No CUDA GPUs are available|Found no NVIDIA driver|NVIDIA driver on your system is too old"
    r"|CUDA driver version is insufficient|no kernel image is available|No space left on device|Disk quota exceeded"
    r"|Read-only file system|LocalEntryNotFoundError|couldn't connect to 'https?://|Temporary failure in name resolution"
    r"|Name or service not known|Network is unreachable|Max retries exceeded with url|Address already in use|EADDRINUSE|command not found"
)
_WORKER_DIED = re.compile(r"\b(?:ActorDiedError|RayActorError|WorkerCrashedError)\b")
"""Ray does not know the signal. A worker's own exception is a better cause and comes first, as does what a crash prints."""
_CONFIGURATION_TYPE = re.compile(
    r"^(?:omegaconf\.|hydra\.|pydantic\S*ValidationError|argparse\.|huggingface_hub\.\S*StrictDataclass\S*"
    r"|TypeError: \S*(?:Config|Arguments)\.__init__\(\))|: error: (?:unrecognized arguments|argument |the following arguments|ambiguous option)"
)
_CONFIGURATION_FRAME = re.compile(r", in (?:__post_init__|_?validate_args|_?validate_config|_?validate|parse_args\w*)$")
_REFUSAL = re.compile(r"^(?:ValueError|AssertionError|NotImplementedError|TypeError)\b")


def classify(outcome: Outcome, logs: Sequence[ProcessLog], position: Position) -> Failure | None:
    """The failure that an outcome is, or None for a run that ended well by itself.

    The blamed process's log is searched first, then the others in the order given. What the memory said outranks how
    the run ended: ranks that wait for one that is out of memory look like a hang.
    """
    if outcome.ok:
        return None
    ordered = sorted(logs, key=lambda log: log.process != outcome.process)
    cause, log = _first_found(ordered)
    number = _signal_number(outcome, cause)
    failure_class = _failure_class(outcome, cause, number, position)
    shown = log or (ordered[0] if ordered else None)
    quoted = failure_class is not FailureClass.INTERRUPTED  # what was logged before a Ctrl-C explains nothing
    phase = position.phase() if outcome.is_main else Phase.SERVER
    return Failure(
        failure_class=failure_class,
        phase=phase,
        step=position.step if outcome.is_main else None,
        stage=position.stage if outcome.is_main else None,
        message=_message(outcome, failure_class, cause, number, phase, position),
        first_cause=_first_cause(outcome, cause),
        exit_code=outcome.exit_code,
        signal=signal_name(number) if number else None,
        log_path=shown.path if shown else None,
        tail=tuple(tail(before_end(shown.text))) if shown and quoted else (),
    )


def _first_found(logs: Sequence[ProcessLog]) -> tuple[Cause | None, ProcessLog | None]:
    for log in logs:
        cause = find_cause(before_end(log.text))
        if cause:
            return cause, log
    return None, None


def _signal_number(outcome: Outcome, cause: Cause | None) -> int | None:
    """The signal that ended the process, also as a shell (128 + n) or torchrun reports it for a process below."""
    if outcome.signal is not None:
        return outcome.signal
    if cause and cause.number:
        return cause.number
    if outcome.exit_code is not None and 128 < outcome.exit_code < 128 + signal.NSIG:
        return outcome.exit_code - 128
    return None


def _failure_class(outcome: Outcome, cause: Cause | None, number: int | None, position: Position) -> FailureClass:
    text = cause.text if cause else ""
    if outcome.reason is Reason.INTERRUPTED:
        return FailureClass.INTERRUPTED
    if outcome.reason is Reason.START_FAILED:
        return FailureClass.ENVIRONMENT
    if _DEVICE_MEMORY.search(text):
        return FailureClass.OUT_OF_MEMORY_DEVICE
    if _HOST_MEMORY.search(text) or (outcome.oom_kills and (number in (None, signal.SIGKILL))):
        return FailureClass.OUT_OF_MEMORY_HOST
    if outcome.reason is Reason.STALL_TIMEOUT:
        return FailureClass.HANG
    if outcome.reason in (Reason.WALL_TIMEOUT, Reason.READY_TIMEOUT):
        return FailureClass.TIMEOUT
    if number is not None:
        return FailureClass.KILLED if number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP) else FailureClass.CRASH
    if _WORKER_DIED.search(text):
        return FailureClass.KILLED
    if _ENVIRONMENT.search(text):
        return FailureClass.ENVIRONMENT
    if cause and position.step == 0 and _is_configuration(cause):
        return FailureClass.CONFIGURATION
    return FailureClass.FRAMEWORK_ERROR


def _is_configuration(cause: Cause) -> bool:
    """A refusal of the configuration itself: raised by its parser or validator, before any step."""
    if _CONFIGURATION_TYPE.search(cause.text):
        return True
    return bool(_REFUSAL.match(cause.text)) and any(_CONFIGURATION_FRAME.search(frame) for frame in cause.frames)


def _first_cause(outcome: Outcome, cause: Cause | None) -> str | None:
    if outcome.reason is Reason.INTERRUPTED:  # what processes say when told to end is no cause
        return None
    return outcome.error or (cause.text if cause else None)


def _message(
    outcome: Outcome, failure_class: FailureClass, cause: Cause | None, number: int | None, phase: Phase, position: Position
) -> str:
    if outcome.reason is Reason.START_FAILED:
        return f"process {outcome.process} could not be started"
    return f"{_what_happened(outcome, failure_class, cause, number)} {_where(outcome, phase, position)}"


def _what_happened(outcome: Outcome, failure_class: FailureClass, cause: Cause | None, number: int | None) -> str:
    match failure_class:
        case FailureClass.INTERRUPTED:
            return f"interrupted by {signal_name(outcome.interrupt)}" if outcome.interrupt else "interrupted"
        case FailureClass.OUT_OF_MEMORY_DEVICE:
            return "out of device memory"
        case FailureClass.OUT_OF_MEMORY_HOST:
            return "out of host memory"
        case FailureClass.HANG:
            return "no span, output or CPU time within measurement.stall_timeout_s"
        case FailureClass.TIMEOUT:
            late = outcome.reason is Reason.READY_TIMEOUT
            return "not ready in time" if late else f"still running after {outcome.seconds:.0f} s (measurement.wall_timeout_s)"
        case FailureClass.CRASH | FailureClass.KILLED:
            return f"ended by {signal_name(number)}" if number else "a worker process died without an error"
    kind = cause.text.split(":")[0] if cause and cause.frames else None
    return f"{kind}, exit code {outcome.exit_code}" if kind else f"exit code {outcome.exit_code}"


def _where(outcome: Outcome, phase: Phase, position: Position) -> str:
    match phase:
        case Phase.SERVER:
            return f"in process {outcome.process}"
        case Phase.STARTUP:
            return "before the first step"
        case Phase.SHUTDOWN:
            return "after the last step"
    if position.stage is None and position.steps_done >= position.step:
        return f"after step {position.step}"
    stage = f", stage {position.stage}" if position.stage else ""
    return f"in step {position.step}{stage}"
