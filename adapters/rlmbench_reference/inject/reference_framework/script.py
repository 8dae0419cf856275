"""Acts the scripted parts out in this process, and writes down when it really did so.

Time is scheduled, not counted: a part ends at the moment at which the script says it ends, whatever the operating system did before, so
that small latenesses never add up. One of more than `LATE_NS` moves everything that follows: a part is never cut short by more than that.
`Script.at_ns` is the scheduled time since the common origin; what comes from another process carries that process's own, and the later of
the two goes on.
"""

import asyncio
import contextlib
import copy
import hashlib
import json
import mmap
import os
import resource
import signal
import threading
import time

now = time.monotonic_ns
LATE_NS = 1_000_000
SLICE_S = 0.01
ASLEEP_S = 3600.0
BLOCK = bytes(1 << 15)
PAGE = os.sysconf("SC_PAGE_SIZE")
SAMPLES_WITHIN = 0.95
"""Generation's longest sample ends here: asyncio wakes up to a millisecond late, and the stage's end must not depend on it."""


class Script:
    """One thread's way through the schedule of process `name` (``trainer-0``), the `rank`-th of `processes`.

    Its truth, a JSON object for each part: process, thread, step, stage, substage, start_ns and end_ns (CLOCK_MONOTONIC), script_ns, cpu_s (of
    the process), rss_bytes (while the memory is held), held_ns (from when) and pss_bytes of parts that allocate, sample_ends_ns of a
    generation's samples, and what else the caller knows.
    """

    def __init__(self, schedule, name, rank, processes, folder, origin_ns=0):
        self.schedule, self.name, self.rank, self.processes = schedule, name, rank, processes
        self.truth = os.open(os.path.join(folder, f"truth-{name}.jsonl"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.origin_ns, self.at_ns, self.step = origin_ns, 0, 0
        self.failure = schedule["failure"] if schedule["failure"] and schedule["failure"]["process"] == name else None

    def beside(self):
        """The same process's way in another thread, from here."""
        return copy.copy(self)

    def meet(self, at_ns):
        """What another thread or process scheduled for `at_ns` is there: go on no earlier than that."""
        self.at_ns = max(self.at_ns, at_ns)

    def has(self, stage):
        return stage in self.schedule["parts"]

    def seconds(self, stage, share=1.0):
        part = self.schedule["parts"][stage]
        slower = (self.processes - 1 - self.rank) / (self.processes - 1) if self.processes > 1 else 0
        return part["seconds"] * (1 - part["skew"] * slower) * share

    def act(self, stage, substage=None, share=1.0, lengths=(), **known):
        """Do `share` of the stage's part. `lengths` are the samples that are in flight meanwhile, each as long as it is."""
        with self.noted(stage, substage, **known) as note:
            part, seconds = self.schedule["parts"][stage], self.seconds(stage, share)
            self.meet(now() - self.origin_ns - LATE_NS)
            began_s = (self.origin_ns + self.at_ns) / 1e9
            self.at_ns += round(seconds * 1e9)
            if self.failure and (self.failure["step"], self.failure["stage"]) == (self.step, stage):
                time.sleep(seconds / 2)
                fail(self.failure["kind"])
            note["script_ns"] = round(seconds * 1e9)
            others = [threading.Thread(target=work, args=(part, self._end_s)) for _ in range(part["threads"] - 1)]
            for thread in others:
                thread.start()
            with held(part["allocate_mib"]):
                note["held_ns"] = now() if part["allocate_mib"] else None
                if lengths and not part["burn"]:
                    note["sample_ends_ns"] = asyncio.run(
                        in_flight([began_s + SAMPLES_WITHIN * seconds * length / max(lengths) for length in lengths])
                    )
                work({**part, "allocate_mib": 0}, self._end_s)
                note["rss_bytes"] = resident_bytes()
                if part["allocate_mib"]:
                    note["pss_bytes"] = proportional_bytes()
            for thread in others:
                thread.join()

    @property
    def _end_s(self):
        return (self.origin_ns + self.at_ns) / 1e9

    @contextlib.contextmanager
    def noted(self, stage, substage=None, **known):
        """What happens inside, as this process's own clock saw it. A line a part, written at once: a kill loses none."""
        note = {
            "process": self.name,
            "thread": threading.get_ident(),
            "step": self.step,
            "stage": stage,
            "substage": substage,
            "script_ns": None,
        }
        note |= known
        cpu, start_ns = time.process_time(), now()
        yield note
        end_ns = now()
        note |= {"start_ns": start_ns, "end_ns": end_ns, "cpu_s": time.process_time() - cpu}
        os.write(self.truth, (json.dumps(note) + "\n").encode())


def work(part, end_s):
    """Burn that share of a core until `end_s`, and sleep the rest; hold the memory meanwhile."""
    with held(part["allocate_mib"]):
        began, cpu = time.monotonic(), time.thread_time()
        while part["burn"] and (moment := time.monotonic()) < end_s:
            due = part["burn"] * (min(moment + SLICE_S, end_s) - began)
            while time.thread_time() - cpu < due and time.monotonic() < end_s:
                hashlib.sha256(BLOCK).digest()  # long enough to let other threads run
            sleep_until(min(moment + SLICE_S, end_s))
        sleep_until(end_s)


def sleep_until(moment_s):
    time.sleep(max(0.0, moment_s - time.monotonic()))


@contextlib.contextmanager
def held(mib):
    """That much memory, with every page touched."""
    if not mib:
        yield
        return
    size = round(mib * (1 << 20))
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        for offset in range(0, size, PAGE):
            memory[offset] = 1
        yield


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * PAGE


def proportional_bytes():
    with open("/proc/self/smaps_rollup") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))


async def in_flight(ends_s):
    return await asyncio.gather(*(generate_sample(end_s) for end_s in ends_s))


async def generate_sample(end_s):
    await asyncio.sleep(max(0.0, end_s - time.monotonic()))
    return now()


def fail(kind):
    if kind == "exception":
        raise RuntimeError("scripted failure")
    if kind == "exit":
        os._exit(3)
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "out_of_memory":
        resource.setrlimit(resource.RLIMIT_AS, (256 << 20, resource.RLIM_INFINITY))
        bytearray(1 << 30)
    while True:
        time.sleep(ASLEEP_S)
