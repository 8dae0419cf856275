"""The profile pass inside a process, with a torch that only writes down what is asked of it."""

from __future__ import annotations

import gzip
import json
import socket
from pathlib import Path

import pytest

TORCH = """
    import sys
    from types import SimpleNamespace

    log = []

    class record_function:
        def __init__(self, name):
            self.name = name

        def __enter__(self):
            log.append("+" + self.name)

        def __exit__(self, *_):
            log.append("-" + self.name)

    class profile:
        def __init__(self, activities, record_shapes, with_stack, profile_memory, experimental_config):
            self.asked = (activities, record_shapes, with_stack, profile_memory, experimental_config)

        def start(self):
            log.append("start")

        def stop(self):
            log.append("stop")

        def export_chrome_trace(self, path):
            log.append(self.asked)
            with open(path, "w") as file:
                file.write('{"traceEvents": []}')

    autograd = SimpleNamespace(profiler=SimpleNamespace(record_function=record_function, _is_profiler_enabled=False))
    activities = SimpleNamespace(CPU="cpu", CUDA="cuda")
    sys.modules["torch"] = SimpleNamespace(
        __version__="0", autograd=autograd, profiler=SimpleNamespace(profile=profile, ProfilerActivity=activities),
        _C=SimpleNamespace(_profiler=SimpleNamespace(_ExperimentalConfig=lambda **options: options)),
    )

    def generate():
        return "generated"

    def decode():
        pass
"""
HOOKS = """
    def hooks():
        return [Hook("framework:generate", "generation"), Hook("framework:decode", "generation", "decode")]
"""
STEPS = """
    import framework
    from rlmbench_probe import recorder
    for _ in range(3):
        recorder.next_step()
        assert framework.generate() == "generated"
        framework.decode()
    recorder.end_steps()
    print(framework.log)
"""
AS_WORKER = "    def role(): return 'trainer'\n"


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """A profile pass of step 2, as rlmbench's runner sets it up."""
    traces, state = tmp_path / "traces", tmp_path / "state"
    traces.mkdir()
    state.mkdir()
    (state / "step").write_text(f"{0:12d}")
    told = {"traces": str(traces), "state": str(state), "steps": [2], "with": ["shapes"]}
    monkeypatch.setenv("RLMBENCH_PROFILE", json.dumps(told))
    return {"traces": traces, "state": state}


def test_the_chosen_step_alone_is_profiled_and_annotated(probed, options):
    result = probed(STEPS, framework=TORCH, hooks=HOOKS)
    config = {"profile_all_threads": True, "trace_only": True}
    assert result.stdout.strip() == str(
        [
            "start", "stop",  # warming up, in the first span of all
            "start", "+ProfilerStep#2", "+rlmbench:generation", "-rlmbench:generation",
            "+rlmbench:generation.decode", "-rlmbench:generation.decode", "-ProfilerStep#2", "stop",
            (["cpu"], True, False, False, config),
        ]
    )  # fmt: skip
    (told,) = [event["value"] for event in result.of("fact") if event["name"] == "torch_trace"]
    (trace,) = options["traces"].iterdir()
    assert (told["file"], told["via"], told["steps"]) == (trace.name, "probe", [2])
    assert trace.name == f"driver-rank0-pid{result.of('process')[0]['pid']}.{trace.name.split('.')[1]}.pt.trace.json.gz"
    assert gzip.decompress(trace.read_bytes()) == b'{"traceEvents": []}'
    assert (told["bytes"], told["uncompressed_bytes"]) == (trace.stat().st_size, 19)
    # The trace reaches over the whole step, and what profiling costs lies outside of it: before, and in the next one.
    (step,) = [event for event in result.of("step") if event["step"] == 2]
    assert told["start_ns"] <= step["start_ns"] and step["end_ns"] <= told["end_ns"]
    assert [hook["attached"] for hook in result.of("hook") if hook["name"] == "torch_profiler"] == [True]
    assert {path.name for path in options["state"].iterdir()} == {"step"}
    assert (options["state"] / "step").read_text().strip() == "-1"


def test_the_driver_does_not_wait_for_a_process_that_was_killed_while_it_wrote(probed, options):
    (options["state"] / f"{socket.gethostname()}-99999999.writing").touch()  # no process has this number: it is beyond the kernel's last
    assert probed(STEPS, framework=TORCH, hooks=HOOKS).returncode == 0  # it would wait for 10 minutes, and the fixture for one


def test_whether_a_trace_is_being_written_is_asked_of_this_host_alone(probed):
    """A host's name may begin with this one's, and its processes cannot be seen from here."""
    here = socket.gethostname()
    markers = [f"{here}-99999999.writing", f"{here}-1.writing", f"{here}-2-99999999.writing", f"{here}-1.writing.json", "step"]
    asked = f"from rlmbench_probe.profiling import _in_progress; print([_in_progress(marker) for marker in {markers}])"
    assert probed(asked).stdout == "[False, True, True, False, False]\n"


def test_a_measuring_run_asks_nothing_of_torch(probed):
    assert probed(STEPS, framework=TORCH, hooks=HOOKS).stdout == "[]\n"


def test_a_worker_follows_the_drivers_step_even_when_it_has_nothing_to_do(probed, options):
    """It counts no steps: the driver's number lies in a file. Nothing is called in step 2, nor after it."""
    script = f"""
        import os, time, framework
        from rlmbench_probe import recorder
        clock, traces = {str(options["state"] / "step")!r}, {str(options["traces"])!r}

        def until(condition):
            end = time.monotonic() + 50
            while not condition() and time.monotonic() < end:
                time.sleep(0.002)

        def step(number):
            with open(clock, "r+") as file:
                file.write(f"{{number:12d}}")

        step(1)
        framework.generate()
        step(2)
        until(lambda: "+ProfilerStep#2" in framework.log)
        step(3)
        until(lambda: os.listdir(traces))
        print(framework.log[:-1])
    """
    result = probed(script, framework=TORCH, hooks=HOOKS + AS_WORKER)
    assert result.stdout.strip() == str(["start", "stop", "start", "+ProfilerStep#2", "-ProfilerStep#2", "stop"])
    assert [path.name.split("-pid")[0] for path in options["traces"].iterdir()] == ["trainer-rank0"]


REFUSED = {
    "another": ("framework.autograd.profiler._is_profiler_enabled = True", "another torch profiler runs in this process"),
    "kineto": ("framework.profile.start = refuse", "torch.profiler did not start: RuntimeError('CUPTI is taken')"),
    "old": ("sys.modules['torch']._C._profiler._ExperimentalConfig = old", "torch 0 cannot profile all threads of a process"),
    "disk": ("framework.profile.export_chrome_trace = full", "the trace was not written: OSError(28, 'No space left on device')"),
}


@pytest.mark.parametrize("how", REFUSED)
def test_what_goes_wrong_is_a_missing_hook_with_its_reason(probed, options, how):
    change, reason = REFUSED[how]
    script = f"""
    import sys
    def refuse(self): raise RuntimeError("CUPTI is taken")
    def old(**options): raise TypeError
    def full(self, path): raise OSError(28, "No space left on device")
    import framework
    {change}
    """
    result = probed(script + STEPS, framework=TORCH, hooks=HOOKS)
    assert result.returncode == 0, result.stderr
    assert reason in [hook["reason"] for hook in result.of("hook") if hook["name"] == "torch_profiler"]
    assert len(result.of("span")) == 6 and len(result.of("step")) == 3
    assert list(options["traces"].iterdir()) == []
    assert {path.name for path in options["state"].iterdir()} == {"step"}  # nobody waits for it


def test_without_its_folder_the_process_runs_unprofiled(probed, options):
    (options["state"] / "step").unlink()
    result = probed(STEPS, framework=TORCH, hooks=HOOKS)
    assert result.stdout == "[]\n"
    assert [hook["reason"][:20] for hook in result.of("hook") if hook["name"] == "torch_profiler"] == ["could not be set up:"]
