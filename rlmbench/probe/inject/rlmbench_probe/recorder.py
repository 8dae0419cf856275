"""Records what a process does: nested spans per thread, steps, and events, one JSON object a line.

Everything is guarded: an error inside the recorder is counted and dropped, never raised into the framework.
The probe accounts for its own time: what it spends in each step is part of the step event.
"""

import atexit
import collections
import contextlib
import itertools
import json
import os
import socket
import sys
import threading
import time

from rlmbench_probe.memory import HostMemory, cuda, uuid_of

_now = time.monotonic_ns
SCHEMA = 1
FLUSH_S = 0.25


def _boot_id():
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return None


class Span:
    """An open span. `fields` are written with it when it closes."""

    __slots__ = ("fields", "id", "lane", "mark", "name", "parent", "peak", "stage", "start_ns", "step", "substage", "torch_peak")

    def __init__(self, span_id, parent, stage, substage, name, step):
        self.id, self.parent, self.stage, self.substage, self.name, self.step = span_id, parent, stage, substage, name, step
        self.fields = {}
        self.peak = self.torch_peak = self.mark = None
        self.start_ns = 0


class Recorder:
    """The one recorder of a process. Off (`enabled` False) until `open` is called."""

    def __init__(self):
        self.enabled = False
        self.profiler = None  # see `profiling`; in a measuring run there is none
        self._quiet_lines = 0
        self.step = 0
        self.update = 0
        self.errors = 0
        self._local = threading.local()
        self._lock, self._lane_lock = threading.Lock(), threading.Lock()
        self._finalized = False

    def __reduce__(self):
        """Ray pickles a class's functions with what they name: theirs is the recorder of the process they arrive in."""
        return "recorder"

    def open(self, folder, *, role, spans, synchronize):
        """Write to a new file in `folder`. With `spans` False only `event` records, and no span is taken."""
        self._folder, self.role, self._spans, self._synchronize = folder, role, spans, synchronize
        self._begin()
        self.flush()
        if self._file is None:
            self.enabled = False
            raise OSError(f"{folder} cannot be written")
        atexit.register(self.close)

    def _begin(self):
        self._buffer, self._file, self._ids, self._lanes = collections.deque(), None, itertools.count(1), set()
        self._torn = self._spans_seen = False
        self._step_start_ns, self._probe_ns, self._total_ns = None, 0, 0
        self._memory = HostMemory()
        self._device_told = False
        self.rank = _integer("RANK", 0)
        self.enabled = True
        threading.Thread(target=self._flush_forever, args=(self._memory,), name="rlmbench-probe", daemon=True).start()
        self.event(
            "process", schema=SCHEMA, pid=os.getpid(), ppid=os.getppid(), host=socket.gethostname(), boot_id=_boot_id(),
            rank=self.rank, local_rank=_integer("LOCAL_RANK", 0), world_size=_integer("WORLD_SIZE", 1),
            role=self.role, mono_ns=_now(), real_ns=time.time_ns(), argv=getattr(sys, "orig_argv", sys.argv),
        )  # fmt: skip

    # -- spans

    def start(self, stage, substage=None, name=None):
        """Open a span and return it, or None when nothing is recorded."""
        if not self.enabled or not self._spans:
            return None
        entered = _now()
        self._spans_seen = True
        if self.profiler is not None:
            self.profiler.follow()
        stack = self._stack()
        span = Span(next(self._ids), stack[-1].id if stack else None, stage, substage, name or stage, self.step)
        device = cuda()
        if device is not None and substage is None:
            if self._synchronize:
                waited = _now()
                device.synchronize()
                entered += _now() - waited  # waiting for the device is the framework's time, not the probe's
            self._fold_device_peak(stack, device)
        if substage is None:
            self._fold_host_peak(stack)
        stack.append(span)
        if substage is None:  # where the run is, for whoever watches it
            self._write({"ev": "begin", "stage": stage, "name": span.name, "step": self.step, "t_ns": entered})
        if self.profiler is not None:
            span.mark = self.profiler.annotate(stage, substage)
        span.start_ns = _now()
        self._account(span.start_ns - entered)
        return span

    def finish(self, span, error=None):
        """Close `span`, and with it any span above it that an exception left open."""
        device = cuda() if span.substage is None else None
        if device is not None and self._synchronize:
            self._despite(device.synchronize)  # raises what the framework's own kernels did: the span is to be told all the same
        end_ns = _now()
        stack = self._stack()
        left = stack[stack.index(span) :] if span in stack else [span]
        if self.profiler is not None:
            for one in reversed(left):  # at once, so that annotations are as long as spans
                if one.mark is not None:
                    self.profiler.end_annotation(one.mark)
        if span.substage is None:  # memory is per stage: its boundaries are few
            self._despite(self._fold_host_peak, stack)
            if device is not None:
                self._despite(self._fold_device_peak, stack, device)
                if not self._device_told:
                    self._tell_device(device)
        if span in stack:
            del stack[-len(left) :]
        for one in reversed(left):
            if one is not span:
                self._take_peaks(span, one)
        if stack:
            self._take_peaks(stack[-1], span)
        self._local.last_end_ns = end_ns
        self._write_span(span, end_ns, error)
        self._account(_now() - end_ns)

    def gap(self, stage, substage, name):
        """A span over the framework's inline code between the last span's end and now, at the current depth."""
        if not self.enabled or not self._spans:
            return
        end_ns = _now()
        start_ns = getattr(self._local, "last_end_ns", None)
        if start_ns is None or self._step_start_ns is None or start_ns < self._step_start_ns:
            return
        stack = self._stack()
        span = Span(next(self._ids), stack[-1].id if stack else None, stage, substage, name, self.step)
        span.start_ns, span.fields = start_ns, {"inline": True}
        self._write_span(span, end_ns, None)
        self._local.last_end_ns = end_ns
        self._account(_now() - end_ns)

    def start_interval(self, stage, name):
        """Open an interval that nests in nothing: one of many coroutines of a thread. None when nothing is recorded."""
        if not self.enabled or not self._spans:
            return None
        span = Span(next(self._ids), None, stage, None, name, self.step)
        self._spans_seen = True
        with self._lane_lock:  # several threads may each have an event loop
            span.lane = next(lane for lane in itertools.count(1) if lane not in self._lanes)
            self._lanes.add(span.lane)
        span.start_ns = _now()
        return span

    def finish_interval(self, span):
        """Close it. Its lane takes the place of a thread: two intervals of one lane never overlap."""
        end_ns = _now()
        with self._lane_lock:
            self._lanes.discard(span.lane)
        self._local.last_end_ns = end_ns
        self._write_span(span, end_ns, None, thread=-span.lane)
        self._account(_now() - end_ns)

    def lead(self):
        """This process turns out to drive the loop."""
        self.role = "driver"
        self.event("role", role=self.role)

    def become(self, role, rank=None):
        """This process turns out to have a part of its own; `rank` is among those of that part. The first part counts."""
        if self.enabled and self.role == "worker":
            self.role = role
            self.rank = self.rank if rank is None else rank
            self.event("role", role=role, **({} if rank is None else {"rank": rank}))

    def open_stages(self):
        """(stage, name) of the open spans of this thread, outermost first."""
        return [(span.stage, span.name) for span in self._stack()]

    def spans_seen(self):
        """Whether this process has opened any span."""
        return self._spans_seen

    # -- steps

    def next_step(self):
        """The step in progress ends here and the next begins: steps tile the run."""
        if not self.enabled:
            return
        if self.profiler is not None:
            self.profiler.before_step(self.step + 1)
        now = _now()
        self._end_step(now)
        self.step += 1
        self.update = 0
        self._step_start_ns = now
        if self.profiler is not None:
            self.profiler.follow()
        self.flush()
        self._account(_now() - now)

    def end_steps(self):
        """The last step ends here; what follows belongs to no step."""
        if self.enabled and self._step_start_ns is not None:
            self._end_step(_now())
            self._step_start_ns = None
            if self.profiler is not None:
                self.profiler.end_steps()
            self.flush()

    @property
    def in_step(self):
        """Whether a step of this process's own count is in progress."""
        return self._step_start_ns is not None

    def _end_step(self, now):
        if self._step_start_ns is not None and self.role == "driver":
            self._write({"ev": "step", "step": self.step, "start_ns": self._step_start_ns, "end_ns": now, "probe_ns": self._probe_ns})
        self._total_ns += self._probe_ns
        self._probe_ns = 0

    # -- events

    def event(self, ev, **fields):
        """Append one event (see docs/records.md)."""
        if self.enabled:
            entered = _now()
            self._write({"ev": ev, **fields})
            self._account(_now() - entered)

    def later(self, make):
        """Append the event that ``make()`` returns (a dict with `ev`), made off the framework's threads."""
        if self.enabled:
            self._write(make)

    def failed(self, where, error):
        """Something of ours raised: say so once per place, and go on."""
        self.errors += 1
        if self.errors <= 20:
            self.event("fact", name="probe_error", value=f"{where}: {error!r}"[:300])

    # -- the file

    def flush(self):
        """Write what has gathered. What a full disk does not take is lost, and said once there is room again."""
        with self._lock:
            rows = [self._buffer.popleft() for _ in range(len(self._buffer))]
            if not rows:
                return
            text = "".join(map(self._line, rows)).encode()
            try:
                if self._file is None:
                    name = f"{self.role}-{os.getpid()}-{_now()}.jsonl"
                    self._file = os.open(os.path.join(self._folder, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
                self._quiet_lines = 0  # there is a file: all that comes now is written soon
                if self._torn:  # a line that was cut off must not take the next one with it
                    text = b"\n" + text
                while text:
                    text = text[os.write(self._file, text) :]
                self._torn = False
            except OSError as error:
                self._torn = True
                self.failed("the probe's file", error)

    def _flush_forever(self, generation):
        """Writes what has gathered four times a second, off the framework's threads; ends with `close` or a fork."""
        while self.enabled and self._memory is generation:
            time.sleep(FLUSH_S)
            if len(self._buffer) > self._quiet_lines:
                self._despite(self.flush)

    def close(self):
        if self.enabled and self._file is None and len(self._buffer) <= self._quiet_lines:
            self.enabled = False  # a forked child that did nothing leaves nothing
        if self.enabled:  # a step in progress stays open: it did not finish
            if self.profiler is not None:
                self.profiler.close()
            self.event("end", t_ns=_now(), probe_ns=self._total_ns + self._probe_ns)
            self.flush()
            self.enabled = False

    def forked(self):
        """In a forked child: file, stack and account are the parent's. Start afresh; a file appears with the first span."""
        self._lock, self._lane_lock, self._local = threading.Lock(), threading.Lock(), threading.local()
        if self.enabled:
            if self._file is not None:
                self._despite(os.close, self._file)  # a program that went to the background has closed all files, ours among them
            self._despite(self._memory.close)
            self.step = self.update = 0
            self.role = "worker"
            self.profiler = self.profiler and self.profiler.forked()
            self._quiet_lines = 1  # the process event alone is no reason for a file
            self._begin()
            self._close_with_multiprocessing()

    def _close_with_multiprocessing(self):
        """Its forked children end by os._exit, without atexit; what they run before is its finalizers, set after the fork."""
        util = sys.modules.get("multiprocessing.util")
        if util is not None and not self._finalized:
            self._finalized = True
            util.register_after_fork(self, lambda recorder: util.Finalize(recorder, recorder.close, exitpriority=0))

    # -- internals

    def _despite(self, function, *args):
        """Call it whatever it raises: something that comes after it must be done."""
        try:
            function(*args)
        except Exception as error:
            self.failed(getattr(function, "__name__", "?"), error)

    def _stack(self):
        try:
            return self._local.stack
        except AttributeError:
            self._local.stack = []
            return self._local.stack

    @staticmethod
    def _take_peaks(outer, inner):
        """What was the highest within is no less around it."""
        if inner.peak:
            outer.peak = max(outer.peak or 0, inner.peak)
        if inner.torch_peak:
            outer.torch_peak = [max(pair) for pair in zip(outer.torch_peak or [0, 0], inner.torch_peak)]

    def _fold_host_peak(self, stack):
        """The peak since the last span boundary belongs to the innermost open span; then start a new peak."""
        if stack:
            peak = self._memory.peak_bytes()
            if peak is not None:
                stack[-1].peak = max(stack[-1].peak or 0, peak)
        self._memory.reset()

    @staticmethod
    def _fold_device_peak(stack, device):
        """As `_fold_host_peak`, for torch's allocated and reserved bytes."""
        if stack:
            stats = device.memory_stats()
            peak = [stats.get("allocated_bytes.all.peak", 0), stats.get("reserved_bytes.all.peak", 0)]
            stack[-1].torch_peak = [max(pair) for pair in zip(stack[-1].torch_peak or [0, 0], peak)]
        device.reset_peak_memory_stats()

    def _tell_device(self, device):
        """Which device is this process's own: in a container a collector cannot tell it from NVML's process ids."""
        self._device_told = True
        try:
            uuid = uuid_of(device, device.current_device())
        except Exception as error:
            self.failed("device_uuid", error)
        else:
            if uuid:
                self.event("fact", name="device_uuid", value=uuid)

    def _write_span(self, span, end_ns, error, thread=None):
        row = {
            "ev": "span", "id": span.id, "parent": span.parent, "stage": span.stage, "substage": span.substage, "name": span.name,
            "step": span.step, "thread": thread or threading.get_ident(), "start_ns": span.start_ns, "end_ns": end_ns, **span.fields,
        }  # fmt: skip
        if span.peak is not None:
            row["rss_peak_bytes"] = span.peak
            row["rss_bytes"] = self._memory.now_bytes()
        if span.torch_peak is not None:
            row["torch_allocated_peak_bytes"], row["torch_reserved_peak_bytes"] = span.torch_peak
        if error is not None:
            row["error"] = type(error).__name__
        self._write(row)

    def _write(self, row):
        self._buffer.append(row)  # serialized when flushed, off the framework's threads; append is atomic

    def _line(self, row):
        """One event as a line. A deferred one (see `later`) is made now, and dropped if that fails."""
        try:
            return json.dumps(row() if callable(row) else row, separators=(",", ":"), default=str) + "\n"
        except Exception as error:
            return json.dumps({"ev": "fact", "name": "probe_error", "value": f"event lost: {error!r}"[:300]}) + "\n"

    @contextlib.contextmanager
    def own_time(self):
        """What runs inside is the probe's time; what it records meanwhile is not charged a second time."""
        local = self._local  # other threads' time is charged as ever
        entered, outer, local.charging = _now(), getattr(local, "charging", True), False
        try:
            yield
        finally:
            local.charging = outer
            self._account(_now() - entered)

    def _account(self, spent_ns):
        if getattr(self._local, "charging", True):
            self._probe_ns += spent_ns


def _integer(variable, default):
    try:
        return int(os.environ.get(variable, default))
    except ValueError:
        return default


recorder = Recorder()
os.register_at_fork(after_in_child=recorder.forked)
