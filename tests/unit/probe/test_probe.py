"""The probe records what a process does and never changes it."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from rlmbench.probe import INJECT

FRAMEWORK = """
    import time

    class Trainer:
        def outer(self, value):
            self.inner()
            return value * 2

        def inner(self):
            time.sleep(0.02)

        def fails(self):
            raise ValueError("the framework's own")

        @staticmethod
        def static(value):
            return value + 1

        @classmethod
        def build(cls):
            return cls
"""

HOOKS = """
    def hooks():
        return [
            Hook("framework:Trainer.outer", "generation"),
            Hook("framework:Trainer.inner", "reward"),
            Hook("framework:Trainer.fails", "data"),
            Hook("framework:Trainer.static", "data"),
            Hook("framework:Trainer.build", "data"),
        ]
"""


def test_spans_nest_and_lie_within_their_parents(probed):
    result = probed(
        "from rlmbench_probe import recorder; import framework; recorder.next_step(); print(framework.Trainer().outer(21))",
        framework=FRAMEWORK,
        hooks=HOOKS,
    )
    assert result.stdout == "42\n"
    inner, outer = result.of("span")  # an inner span ends first
    assert (outer["stage"], outer["parent"], inner["stage"], inner["parent"]) == ("generation", None, "reward", outer["id"])
    assert outer["start_ns"] <= inner["start_ns"] <= inner["end_ns"] <= outer["end_ns"]
    assert inner["end_ns"] - inner["start_ns"] >= 20_000_000  # it slept 20 ms
    assert {span["step"] for span in (inner, outer)} == {1}


def test_every_kind_of_function_keeps_its_behaviour(probed):
    result = probed(
        """
        import framework
        print(framework.Trainer.static(1), framework.Trainer().static(1), framework.Trainer.build() is framework.Trainer)
        try:
            framework.Trainer().fails()
        except ValueError as error:
            print(error, framework.Trainer.fails.__name__)
        """,
        framework=FRAMEWORK,
        hooks=HOOKS,
    )
    assert result.stdout == "2 2 True\nthe framework's own fails\n"
    assert [span.get("error") for span in result.of("span")] == [None, None, None, "ValueError"]


def test_nothing_of_ours_can_raise_into_the_framework(probed):
    hooks = """
        def broken(*args):
            raise RuntimeError("ours")

        def hooks():
            return [
                Hook("framework:Trainer.outer", broken),
                Hook("framework:Trainer.inner", "reward", before=broken, fields=broken, after=broken),
                Hook("framework:Trainer.static", "data", fields=lambda *a: 7),
            ]
    """
    result = probed("import framework; t = framework.Trainer(); print(t.outer(4), t.static(2))", framework=FRAMEWORK, hooks=hooks)
    assert (result.returncode, result.stdout, result.stderr) == (0, "8 3\n", "")
    told = [fact["value"] for fact in result.of("fact") if fact["name"] == "probe_error"]
    assert len([text for text in told if "RuntimeError('ours')" in text]) == 4
    assert [span["stage"] for span in result.of("span")] == ["reward", "data"]


def test_a_hook_says_whether_it_attached_and_why_not(probed):
    hooks = """
        def hooks():
            return [
                Hook("framework:Trainer.outer", "generation"),
                Hook("framework:Trainer.gone", "reward"),
                Hook("never_imported:f", "data"),
            ]
    """
    result = probed("import framework; framework.Trainer().outer(1)", framework=FRAMEWORK, hooks=hooks)
    told = {event["target"]: (event["attached"], event["reason"]) for event in result.of("hook")}
    assert told["framework:Trainer.outer"] == (True, "")
    assert told["framework:Trainer.gone"][0] is False and "no such function" in told["framework:Trainer.gone"][1]
    assert told["never_imported:f"] == (False, "module was not imported")


def test_a_process_whose_spans_are_in_other_threads_says_too_what_did_not_attach(probed):
    """As an actor whose methods run in an executor: the main thread, which ends the process, has none."""
    result = probed(
        """
        import threading, framework
        thread = threading.Thread(target=framework.Trainer.static, args=(1,))
        thread.start()
        thread.join()
        """,
        framework=FRAMEWORK,
        hooks=HOOKS.replace("return [", "return [\n            Hook('nowhere:function', 'reward'),"),
    )
    assert [(hook["target"], hook["reason"]) for hook in result.of("hook") if not hook["attached"]] == [
        ("nowhere:function", "module was not imported")
    ]


def test_steps_tile_the_run(probed):
    result = probed(
        """
        from rlmbench_probe import recorder
        import time
        for _ in range(3):
            recorder.next_step()
            time.sleep(0.01)
        recorder.end_steps()
        print(time.monotonic_ns())  # what follows belongs to no step
        """
    )
    steps = result.of("step")
    assert [step["step"] for step in steps] == [1, 2, 3]
    assert [step["end_ns"] for step in steps[:-1]] == [step["start_ns"] for step in steps[1:]]
    assert all(step["end_ns"] - step["start_ns"] >= 10e6 for step in steps)
    assert steps[-1]["end_ns"] <= int(result.stdout)


def test_the_probe_charges_its_own_work_once(probed):
    """A callback of 30 ms that itself records is charged 30 ms, not more, and the framework's sleep is not charged."""
    hooks = """
        import time

        def slow(args, kwargs):
            recorder.event("fact", name="inside", value=1)
            time.sleep(0.03)

        def hooks():
            return [Hook("framework:Trainer.inner", "reward", before=slow)]
    """
    result = probed(
        "from rlmbench_probe import recorder; import framework; recorder.next_step(); framework.Trainer().inner(); recorder.end_steps()",
        framework=FRAMEWORK,
        hooks=hooks,
    )
    (step,) = result.of("step")
    step_ns = step["end_ns"] - step["start_ns"]
    assert step["probe_ns"] >= 30e6
    assert step["probe_ns"] <= step_ns - 20e6  # 30 ms or longer of ours and 20 ms of the framework's: charged twice, it would not fit


def test_a_worker_says_what_it_turns_out_to_be_and_a_driver_stays_one(probed):
    script = "from rlmbench_probe import recorder; recorder.become('trainer', 3); recorder.become('engine')"
    worker = probed(script, hooks="def role(): return 'worker'\ndef hooks(): return []")
    assert [(event["role"], event["rank"]) for event in worker.of("role")] == [("trainer", 3)]
    assert probed(script).of("role")[1:] == [], "nothing new: the first part counts"


def test_a_step_that_was_left_did_not_finish(probed):
    """An exception in step 2 ends the process: step 1 is whole, step 2 must not enter any mean."""
    result = probed("from rlmbench_probe import recorder; recorder.next_step(); recorder.next_step(); raise SystemExit(1)")
    assert [step["step"] for step in result.of("step")] == [1]


def test_a_gap_names_inline_code(probed):
    framework = """
        import time

        def first(): pass

        def second(): pass

        def loop():
            first()
            time.sleep(0.02)
            second()
    """
    hooks = """
        def hooks():
            return [
                Hook("framework:first", "data"),
                Hook("framework:second", "reward"),
                Gap("framework:second", "advantage", name="inline"),
            ]
    """
    result = probed(
        "from rlmbench_probe import recorder; import framework; recorder.next_step(); framework.loop()", framework=framework, hooks=hooks
    )
    first, inline, second = result.of("span")
    assert (inline["stage"], inline["inline"]) == ("advantage", True)
    assert first["end_ns"] <= inline["start_ns"] and inline["end_ns"] <= second["start_ns"]
    assert inline["end_ns"] - inline["start_ns"] >= 20e6


def test_a_killed_process_leaves_what_it_had_finished(probed):
    result = probed(
        """
        import os, signal, time
        from rlmbench_probe import recorder
        import framework
        recorder.next_step()
        framework.Trainer().outer(1)
        recorder.next_step()
        [path] = [os.path.join(recorder._folder, name) for name in os.listdir(recorder._folder)]
        while '"ev":"step"' not in open(path).read():
            time.sleep(0.01)
        framework.Trainer().static(1)
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        framework=FRAMEWORK,
        hooks=HOOKS,
    )
    assert result.returncode == -9
    assert [step["step"] for step in result.of("step")] == [1]
    assert [span["stage"] for span in result.of("span")] == ["reward", "generation"]


def test_a_forked_child_writes_a_file_of_its_own(probed):
    result = probed(
        """
        import os, time
        from rlmbench_probe import recorder
        import framework
        recorder.next_step()
        if os.fork() == 0:
            framework.Trainer().outer(1)
            folder = recorder._folder
            while sum(open(os.path.join(folder, name)).read().count('"ev":"span"') for name in os.listdir(folder)) < 2:
                time.sleep(0.01)
            os._exit(0)
        os.wait()
        if os.fork() == 0:
            os._exit(0)  # does nothing, so it leaves nothing
        os.wait()
        framework.Trainer().static(1)
        """,
        framework=FRAMEWORK,
        hooks=HOOKS,
    )
    assert len(result.files) == 2
    assert sorted(process["role"] for process in result.of("process")) == ["driver", "worker"]
    assert sorted(span["stage"] for span in result.of("span")) == ["data", "generation", "reward"]


def test_a_forked_child_of_multiprocessing_says_its_last_word(probed):
    """It ends by os._exit, before the probe's next look at what has gathered."""
    result = probed(
        """
        import multiprocessing
        import framework
        child = multiprocessing.get_context("fork").Process(target=framework.Trainer().outer, args=(1,))
        child.start()
        child.join()
        """,
        framework=FRAMEWORK,
        hooks=HOOKS,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert sorted(span["stage"] for span in result.of("span")) == ["generation", "reward"]
    assert len(result.of("end")) == len(result.files) == 2


def test_a_forked_child_of_multiprocessing_that_did_nothing_leaves_nothing(probed):
    result = probed(
        """
        import multiprocessing
        child = multiprocessing.get_context("fork").Process(target=int)
        child.start()
        child.join()
        """
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert [process["role"] for process in result.of("process")] == ["driver"]


def test_a_single_event_of_a_forked_child_is_written_before_it_is_killed(probed):
    """A `begin` alone says where a run is that hangs."""
    result = probed(
        """
        import os, time
        from rlmbench_probe import recorder
        if os.fork() == 0:
            recorder.event("fact", name="first", value=1)
            recorder.flush()
            recorder.event("fact", name="second", value=2)
            until = time.monotonic() + 20
            while recorder._buffer and time.monotonic() < until:
                time.sleep(0.01)
            os._exit(0)
        os.wait()
        """
    )
    assert [fact["name"] for fact in result.of("fact") if fact["name"] in ("first", "second")] == ["first", "second"]


def test_a_child_whose_parent_closed_all_files_starts_afresh(probed):
    result = probed(
        """
        import os
        from rlmbench_probe import recorder
        os.close(recorder._file)
        if os.fork() == 0:
            recorder.event("fact", name="of the child", value=os.getpid())
            recorder.close()
            os._exit(0)
        os.wait()
        recorder._file = None
        """
    )
    assert (result.returncode, result.stderr) == (0, "")
    [fact] = [fact for fact in result.of("fact") if fact["name"] == "of the child"]
    assert fact["value"] in {process["pid"] for process in result.of("process")}


def test_own_time_of_two_threads_is_charged_to_both(probed):
    """Each leaves while the other is still inside, and what either does later counts too."""
    result = probed(
        """
        import threading, time
        from rlmbench_probe import recorder
        recorder.next_step()
        entered, left = threading.Event(), threading.Event()

        def other():
            with recorder.own_time():
                entered.set()
                left.wait()
                time.sleep(0.02)

        thread = threading.Thread(target=other)
        with recorder.own_time():
            thread.start()
            entered.wait()
        left.set()
        thread.join()
        with recorder.own_time():
            time.sleep(0.05)
        recorder.end_steps()
        """
    )
    (step,) = result.of("step")
    assert step["probe_ns"] >= 70e6


def test_a_full_disk_costs_the_framework_nothing_and_the_record_what_was_not_written(probed):
    """A line that was cut off is one damaged line, and with room again the record goes on."""
    result = probed(
        """
        import json, os, sys, threading, time
        from rlmbench_probe import recorder
        import framework
        framework.Trainer().static(1)
        recorder.flush()
        write, full, met_by = os.write, [True], set()

        def nearly_full(descriptor, data):
            if descriptor != recorder._file or not full:
                return write(descriptor, data)
            met_by.add(threading.current_thread().name)
            if full.pop():
                full.append(False)
                return write(descriptor, data[:10])
            full.append(False)
            raise OSError(28, "No space left on device")

        os.write = nearly_full
        framework.Trainer().outer(1)
        recorder.flush()
        sys.modules["rlmbench_probe.recorder"].FLUSH_S = 0.02
        while "rlmbench-probe" not in met_by:
            time.sleep(0.01)
        full.clear()
        framework.Trainer().static(2)
        while recorder._buffer:  # the thread that flushes has met it too, and lives on
            time.sleep(0.01)
        with recorder._lock:  # and has written what it took
            pass
        [path] = [os.path.join(recorder._folder, name) for name in os.listdir(recorder._folder)]
        lines = open(path).read().splitlines()
        damaged = []
        for line in lines:
            try:
                json.loads(line)
            except ValueError:
                damaged.append(line)
        print(damaged)
        with open(path, "w") as file:
            file.writelines(line + "\\n" for line in lines if line not in damaged)
        """,
        framework=FRAMEWORK,
        hooks=HOOKS,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, '[\'{"ev":"beg\']\n', "")
    assert [span["stage"] for span in result.of("span")] == ["data", "data"]
    assert "No space left on device" in result.of("fact")[0]["value"]
    assert len(result.of("end")) == 1


def test_a_span_left_open_within_another_ends_with_it(probed):
    result = probed(
        """
        from rlmbench_probe import recorder
        outer = recorder.start("generation")
        inner = recorder.start("reward")
        inner.peak = 1 << 50
        recorder.finish(outer)
        recorder.finish(recorder.start("data"))
        """
    )
    generation, data = result.of("span")
    assert (generation["stage"], generation["rss_peak_bytes"]) == ("generation", 1 << 50)
    assert (data["stage"], data["parent"]) == ("data", None)


def test_without_spans_events_are_still_recorded(probed):
    result = probed(
        "from rlmbench_probe import recorder; import framework; recorder.next_step(); framework.Trainer().outer(1); recorder.event('fact', name='f', value=1); recorder.end_steps()",
        framework=FRAMEWORK,
        hooks=HOOKS,
        spans=False,
    )
    assert result.of("span") == []
    assert (len(result.of("step")), len(result.of("fact"))) == (1, 1)


def test_a_broken_adapter_module_does_not_stop_the_framework(probed):
    result = probed("print('alive')", hooks="raise RuntimeError('ours')")
    assert (result.returncode, result.stdout) == (0, "alive\n")
    assert "rlmbench probe did not start" in result.stderr


def test_the_environments_own_sitecustomize_still_runs(probed, tmp_path, monkeypatch):
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("print('theirs')")
    script = f"""
        import subprocess, sys, os
        env = dict(os.environ, PYTHONPATH=os.environ["PYTHONPATH"] + ":{own}")
        print(subprocess.run([sys.executable, "-c", "pass"], env=env, capture_output=True, text=True).stdout.strip())
    """
    assert probed(script).stdout == "theirs\n"


CUDA = """
    import sys
    from types import SimpleNamespace

    def properties(index):
        return SimpleNamespace(name="NVIDIA H200", uuid=f"0a1b2c3d-{index}")

    cuda = SimpleNamespace(
        is_initialized=lambda: True, memory_stats=dict, reset_peak_memory_stats=lambda: None, current_device=lambda: 3,
        get_device_properties=properties,
    )
    sys.modules["torch"] = SimpleNamespace(cuda=cuda)
"""


def test_a_process_says_once_which_device_is_its_own(probed):
    """Its UUID as NVML writes it: that is how a collector's samples of the device are known to be of this process."""
    spans = "import framework\nfrom rlmbench_probe import recorder\nfor _ in range(2): recorder.finish(recorder.start('generation'))\n"
    told = [event["value"] for event in probed(spans, framework=CUDA).of("fact")]
    assert told == ["GPU-0a1b2c3d-3"]
    sliced = CUDA.replace("NVIDIA H200", "NVIDIA H200 MIG 3g.71gb")
    assert {event["value"] for event in probed(spans, framework=sliced).of("fact")} == {*told, "MIG-0a1b2c3d-3"}  # of both
    silent = probed("import framework\nframework.cuda.current_device = None\n" + spans, framework=CUDA)
    assert silent.returncode == 0 and len(silent.of("span")) == 6  # of all three


def test_a_device_that_failed_does_not_cost_the_span_in_which_it_did(probed, monkeypatch):
    """After a kernel's fault every call of CUDA raises, those of the probe too; the framework's own error is the one that is told."""
    result = probed(
        """
        import framework
        from rlmbench_probe import recorder
        recorder._synchronize = True

        def broken(*_):
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

        span = recorder.start("generation")
        framework.cuda.synchronize = framework.cuda.memory_stats = framework.cuda.current_device = broken
        recorder.finish(span, RuntimeError("the framework's"))
        recorder._synchronize = False
        framework.cuda.is_initialized = lambda: False
        recorder.finish(recorder.start("data"))
        """,
        framework=CUDA.replace("memory_stats=dict", "memory_stats=dict, synchronize=lambda: None"),
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert [(span["stage"], span["parent"], span.get("error")) for span in result.of("span")] == [
        ("generation", None, "RuntimeError"),
        ("data", None, None),
    ]


def test_memory_peaks_are_per_stage(probed):
    framework = """
        def small(): return bytearray(1)

        def large():
            data = bytearray(200_000_000)
            del data
    """
    hooks = """
        def hooks():
            return [Hook("framework:small", "data"), Hook("framework:large", "generation")]
    """
    result = probed("import framework; framework.small(); framework.large(); framework.small()", framework=framework, hooks=hooks)
    before, during, after = [span.get("rss_peak_bytes") for span in result.of("span")]
    if before is None:
        pytest.skip("this kernel does not let a process reset its peak")
    assert during - before >= 190_000_000
    assert after < during - 150_000_000


@pytest.mark.parametrize("path", sorted(INJECT.rglob("*.py")), ids=lambda path: path.name)
def test_injected_code_needs_the_standard_library_only(path: Path):
    """At import time; inside functions a shim may use the framework it changes."""
    own = {"rlmbench_probe", "rlmbench_plan", "rlmbench_shims"}
    tree = ast.parse(path.read_text())
    modules = [alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names]
    modules += [node.module for node in tree.body if isinstance(node, ast.ImportFrom) and node.module]
    for module in modules:
        root = module.partition(".")[0]
        assert root in own or root in sys.stdlib_module_names, f"{path.name} imports {module}"
