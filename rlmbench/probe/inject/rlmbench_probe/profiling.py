"""torch.profiler in this process during chosen steps, with the probe's spans as annotations. Loaded in a profile pass only.

The process that drives the loop writes the number of its step into a small file, the clock; a process that counts no steps
reads it there. Who takes part is known by a span: a process that opens one and has torch loaded. There a thread watches the
clock, so that a trace reaches over the whole step, however late in it the process has something to do; spans do so too, which makes its
begin and end exact where it matters. Before the run ends, the driver waits until every trace is written: Ray kills its workers then.

One profiler covers all threads of the process, is started and stopped by whichever thread comes first, and writes
``<role>-rank<n>-pid<n>.<unix ns>.pt.trace.json.gz``. Nothing here raises into the framework: what goes wrong is recorded.
"""

import gzip
import json
import os
import re
import shutil
import socket
import sys
import threading
import time

from rlmbench_probe.memory import cuda, uuid_of

_now = time.monotonic_ns
POLL_S = 0.02
LONGEST_WAIT_S = 600.0
WRITING = ".writing"
NAME, TARGET = "torch_profiler", "torch.profiler:profile"


def install(recorder):
    """Give this process a profiler, by the variable that rlmbench set for the run."""
    try:
        recorder.profiler = Profiler(recorder, json.loads(os.environ["RLMBENCH_PROFILE"]))
    except Exception as error:
        report(recorder, f"could not be set up: {error!r}")


def report(recorder, reason):
    """Whether the profiler came to work in this process, as a hook; without `reason` it did."""
    recorder.event("hook", name=NAME, target=TARGET, attached=not reason, reason=reason[:300], optional=False)


def _in_progress(marker):
    """Whether a file's name says of a process, one that still lives as far as can be seen from here, that it writes a trace."""
    if not marker.endswith(WRITING):
        return False
    host, _, pid = marker.removesuffix(WRITING).rpartition("-")
    return host != socket.gethostname() or os.path.exists(f"/proc/{pid}")


def _devices():
    """What there is to profile, by torch's names."""
    return ("CPU",) if cuda() is None else ("CPU", "CUDA")


def _device_uuids():
    """torch's index of each visible device -> its UUID as NVML says it, where torch tells."""
    device = cuda()
    uuids = {} if device is None else {str(index): uuid_of(device, index) for index in range(device.device_count())}
    return {index: uuid for index, uuid in uuids.items() if uuid}


class _Trace:
    """A profiler at work. `step` is the annotation of the step in progress, `number` that step's number."""

    def __init__(self, profiler, marker):
        self.profiler, self.marker = profiler, marker
        self.start_ns, self.real_ns = _now(), time.time_ns()
        self.steps, self.step = [], None

    @property
    def number(self):
        return self.steps[-1]

    def begin_step(self, number):
        """Annotate the step as torch.profiler's own ``step()`` does, for readers that look for it."""
        self.end_step()
        self.steps.append(number)
        self.step = _annotation(f"ProfilerStep#{number}")

    def end_step(self):
        if self.step is not None:
            self.step.__exit__(None, None, None)
            self.step = None


def _annotation(name):
    annotation = sys.modules["torch"].autograd.profiler.record_function(name)
    annotation.__enter__()
    return annotation


class Profiler:
    """Starts and stops the one profiler of this process.

    `options`: `traces` (folder of the traces), `state` (folder of the clock and of a file for each trace in progress), `steps` and
    `with` (of shapes, stack, memory).
    """

    def __init__(self, recorder, options):
        self._recorder, self._options = recorder, options
        self._steps = frozenset(options["steps"])
        self._clock = os.open(os.path.join(options["state"], "step"), os.O_RDWR)
        self._lock = threading.RLock()
        self._trace = self._warm_for = None
        self._refused = self._watched = False

    # -- called by the recorder

    def before_step(self, step):
        """The step in progress is about to end, and `step` to begin: what starting costs is part of the one before."""
        with self._guarded():
            if self._recorder.role == "driver":
                os.pwrite(self._clock, b"%12d" % step, 0)
            if step in self._steps and self._trace is None:
                self._start(step)

    def follow(self):
        """Start or stop, as the step says. On most calls there is nothing to do, and no lock is taken."""
        try:
            step, trace = self._step(), self._trace
            if step in self._steps if trace is None else step != trace.number:
                self._turn(step)
            elif trace is None and self._warm_for != _devices():
                self._warm_up()
        except Exception as error:
            self._recorder.failed(NAME, error)

    def annotate(self, stage, substage):
        """An open annotation, or None while no profiler runs."""
        if self._trace is None:
            return None
        try:
            return _annotation(f"rlmbench:{stage}.{substage}" if substage else f"rlmbench:{stage}")
        except Exception as error:
            self._recorder.failed(NAME, error)
            return None

    def end_annotation(self, annotation):
        try:
            annotation.__exit__(None, None, None)
        except Exception as error:
            self._recorder.failed(NAME, error)

    def end_steps(self):
        """No step is in progress any more. The driver waits for the others' traces."""
        with self._guarded():
            self._stop()
        with self._guarded():
            if self._recorder.role == "driver":
                os.pwrite(self._clock, b"%12d" % -1, 0)
                time.sleep(2 * POLL_S)  # until every watch has seen it
                until = time.monotonic() + LONGEST_WAIT_S
                while time.monotonic() < until and any(map(_in_progress, os.listdir(self._options["state"]))):
                    time.sleep(POLL_S)

    def close(self):
        """The process ends."""
        with self._guarded():
            self._stop()

    def forked(self):
        """The profiler of a forked child: none where the parent's was at work, whose state means nothing there."""
        if self._trace is not None:
            return None
        self._lock, self._watched, self._warm_for = threading.RLock(), False, None
        return self

    # -- internals

    def _guarded(self):
        return _Guard(self._lock, self._recorder)

    def _step(self):
        """The step this process is in by its own count, else by the driver's; -1 after the last."""
        if self._recorder.step:
            return self._recorder.step if self._recorder.in_step else -1
        return int(os.pread(self._clock, 12, 0))

    def _turn(self, step):
        with self._guarded():
            if self._trace is not None and step not in self._steps:
                self._stop()
            elif self._trace is not None and step != self._trace.number:
                self._trace.begin_step(step)
            elif self._trace is None and step in self._steps:
                self._start(step)

    def _watch(self, lock):
        while self._recorder.enabled and self._lock is lock:
            time.sleep(POLL_S)
            self.follow()

    def _torch(self):
        """torch, in a process of a run that has imported it and may profile."""
        torch = sys.modules.get("torch")
        return None if self._refused or self._recorder.role == "launcher" or not hasattr(torch, "profiler") else torch

    def _warm_up(self):
        """The first profiler of a process loads libraries for a second: not in the step that is looked at."""
        torch = self._torch()
        if torch is None:
            return
        with self._guarded():
            if self._warm_for == _devices():
                return
            self._warm_for = _devices()
            if not self._watched:
                self._watched = True
                threading.Thread(target=self._watch, args=(self._lock,), name="rlmbench-profiler", daemon=True).start()
            profiler = None if torch.autograd.profiler._is_profiler_enabled else self._make(torch)
            if profiler is not None:
                profiler.start()
                profiler.stop()

    def _make(self, torch):
        chosen, activity = self._options["with"], torch.profiler.ProfilerActivity
        config = None
        for more in ({"trace_only": True}, {}):  # an older torch makes Python objects of all events when it stops, which takes long
            try:
                config = config or torch._C._profiler._ExperimentalConfig(profile_all_threads=True, **more)
            except TypeError:
                continue
        if config is None:
            self._refuse(f"torch {torch.__version__} cannot profile all threads of a process")
            return None
        return torch.profiler.profile(
            activities=[getattr(activity, name) for name in _devices()],
            record_shapes="shapes" in chosen, with_stack="stack" in chosen, profile_memory="memory" in chosen,
            experimental_config=config,
        )  # fmt: skip

    def _refuse(self, reason):
        self._refused = True
        report(self._recorder, reason)

    def _start(self, step):
        torch = self._torch()
        if torch is None:
            return
        if torch.autograd.profiler._is_profiler_enabled:  # CUPTI serves one at a time
            self._refuse("another torch profiler runs in this process")
            return
        profiler = self._make(torch)
        if profiler is None:
            return
        marker = os.path.join(self._options["state"], f"{socket.gethostname()}-{os.getpid()}{WRITING}")
        with open(marker, "w"):
            pass
        try:
            profiler.start()
        except Exception as error:
            os.unlink(marker)
            self._refuse(f"torch.profiler did not start: {error!r}")
            return
        self._warm_for = _devices()
        trace = _Trace(profiler, marker)
        trace.begin_step(step)
        self._trace = trace
        report(self._recorder, "")

    def _stop(self):
        trace, self._trace = self._trace, None
        if trace is None:
            return
        try:
            trace.end_step()
            end_ns = _now()
            trace.profiler.stop()
            file = self._write(trace)
            times = {"start_ns": trace.start_ns, "end_ns": end_ns, "stopping_s": (_now() - end_ns) / 1e9}
            devices = {"device_uuids": _device_uuids()}
            self._recorder.event("fact", name="torch_trace", value={"via": "probe", "steps": trace.steps, **file, **times, **devices})
        except Exception as error:
            self._refuse(f"the trace was not written: {error!r}")
        finally:
            self._recorder.flush()
            os.unlink(trace.marker)

    def _write(self, trace):
        """The trace as kineto writes it, compressed at a level that keeps up with a fast disk, and in place at once."""
        plain = f"{trace.marker}.json"
        trace.profiler.export_chrome_trace(plain)
        name = f"{self._worker()}.{trace.real_ns}.pt.trace.json.gz"
        try:
            with open(plain, "rb") as source, gzip.open(f"{plain}.gz", "wb", compresslevel=1) as compressed:
                shutil.copyfileobj(source, compressed, 1 << 20)
            sizes = {"bytes": os.path.getsize(f"{plain}.gz"), "uncompressed_bytes": os.path.getsize(plain)}
            os.replace(f"{plain}.gz", os.path.join(self._options["traces"], name))
        finally:
            os.unlink(plain)
        return {"file": name, **sizes}

    def _worker(self):
        """What viewers list this process as: ``trainer-rank0-pid123``."""
        role = re.sub(r"[^A-Za-z0-9]+", "-", self._recorder.role.removesuffix(" rank"))
        return f"{role}-rank{self._recorder.rank}-pid{os.getpid()}"


class _Guard:
    """Holds the lock, and records what is raised inside instead of passing it on."""

    def __init__(self, lock, recorder):
        self._lock, self._recorder = lock, recorder

    def __enter__(self):
        self._lock.acquire()

    def __exit__(self, kind, error, where):
        self._lock.release()
        if isinstance(error, Exception):
            self._recorder.failed(NAME, error)
            return True
        return False
