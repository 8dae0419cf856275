from __future__ import annotations

from pathlib import Path

import pytest

from rlmbench.runner.logtext import find_cause, first_cause, plain_lines, read_log, tail

LOGS = Path(__file__).parent / "logs"


def log(name: str) -> str:
    return (LOGS / f"{name}.txt").read_bytes().decode()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bad_arg", "ValueError: Your setup doesn't support bf16/gpu. You need to assign use_cpu if you want to train the model on CPU."),
        ("bad_config", "ValueError: generation_batch_size (3) must be divisible by num_generations (4)."),
        ("bad_key", "TypeError: GRPOConfig.__init__() got an unexpected keyword argument 'group_size'"),
        ("chained", "KeyError: 'b'"),  # neither what was raised from it nor what came while handling that
        ("faulthandler_segv", "Fatal Python error: Segmentation fault"),
        ("ignored", "ERROR:trainer:no such column: prompt"),  # the traceback was ignored by Python
        ("memoryerror", "MemoryError"),
        ("no_module", "ModuleNotFoundError: No module named 'vllm_gpu_kernels'"),
        ("torchrun_raises", "ValueError: reward 7 has no prompt"),  # behind a progress bar, with a rank's prefix
        ("torchrun_killed", "local rank 1 was ended by SIGKILL (torchrun)"),  # rank 0 only noticed
        ("torchrun_segv", "local rank 1 was ended by SIGSEGV (torchrun)"),
        ("ray_actor_killed", "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task."),
        ("ray_actor_segv", "TaskRunner pid=29830 received SIGSEGV (Ray)"),  # its driver only noticed
    ],
)
def test_first_cause_of_real_logs(name: str, expected: str) -> None:
    assert first_cause(log(name)) == expected


@pytest.mark.parametrize(
    ("name", "beginning"),
    [
        ("cpu_alloc", "RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory"),
        ("cuda_oom", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."),
        ("no_model", "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find the requested files in the disk cache"),
        ("state_dict", "RuntimeError: Error(s) in loading state_dict for Linear: size mismatch for weight: copying a param"),
        ("ray_nested", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.16 GiB."),
        ("vllm_engine", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 50.00 MiB."),
    ],
)
def test_first_cause_begins(name: str, beginning: str) -> None:
    assert (first_cause(log(name)) or "").startswith(beginning)


def test_a_log_without_error_has_no_cause() -> None:
    assert first_cause("step 1\nno errors found: 0 ERRORS\n") is None
    assert first_cause("") is None


def test_the_signal_of_a_rank_and_the_frames_of_a_traceback_are_kept() -> None:
    killed = find_cause(log("torchrun_killed"))
    assert killed and killed.number == 9
    refused = find_cause(log("bad_config"))
    assert refused and refused.frames[-2].endswith("in __post_init__")


def test_another_process_may_write_into_a_traceback() -> None:
    text = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nEpoch: 3\n    f()\nqueue.Empty\nRuntimeError: later\n'
    assert first_cause(text) == "queue.Empty"


def test_coloured_ray_prefixes() -> None:
    prefix = "\x1b[36m(Worker pid=12, ip=10.0.0.1)\x1b[0m "
    lines = ["Traceback (most recent call last):", '  File "a.py", line 1, in f', "ValueError: two"]
    other = "\x1b[36m(Worker pid=13)\x1b[0m RuntimeError: not of this traceback"
    text = "\n".join([prefix + lines[0], prefix + lines[1], other, prefix + lines[2]])
    assert first_cause(text) == "ValueError: two"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "terminate called after throwing an instance of 'std::bad_alloc'",
            "terminate called after throwing an instance of 'std::bad_alloc'",
        ),
        ("run.sh: line 3: 4711 Killed                  python train.py", "run.sh: line 3: 4711 Killed                  python train.py"),
        ("train.py: error: unrecognized arguments: --foo", "train.py: error: unrecognized arguments: --foo"),
        ("2026-01-01 10:00:00,123 - trainer - ERROR - loss is nan", "2026-01-01 10:00:00,123 - trainer - ERROR - loss is nan"),
    ],
)
def test_last_words_without_traceback(line: str, expected: str) -> None:
    assert first_cause(f"starting\n{line}\nbye\n") == expected


def test_what_a_progress_bar_overwrote_is_gone() -> None:
    assert plain_lines("\r 0%\r 50%\r100%\n\x1b[1mdone\x1b[0m\r\n") == ["100%", "done", ""]


def test_tail_has_the_last_lines_with_something_in_them() -> None:
    text = "".join(f"line {n}\n\n" for n in range(12)) + "x" * 1000
    lines = tail(text)
    assert lines[:9] == [f"line {n}" for n in range(3, 12)]
    assert lines[9] == "x" * 500


def test_a_long_log_is_read_at_both_ends(tmp_path: Path) -> None:
    path = tmp_path / "main.log"
    path.write_text("a" * 50 + "b" * 100 + "c" * 50)
    assert read_log(path, limit_bytes=100) == "a" * 50 + "\n[...]\n" + "c" * 50
    assert read_log(path, limit_bytes=200) == "a" * 50 + "b" * 100 + "c" * 50
    assert read_log(tmp_path / "absent.log") == ""
