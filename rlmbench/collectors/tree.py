"""The run's own processes: everything below the guards that rlmbench started, found by parentage.

A guard adopts what is orphaned below it and waits for it, so the CPU time and I/O of processes that have ended arrive in
its own counters, and no process is too short-lived to be counted. Only its share for ended descendants counts, not the
guard itself.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable
from typing import NamedTuple

from rlmbench.collectors.proc import TICKS_PER_S, Kept, Stat, numbers, parse_stat, pids, proportional_bytes, read, switches_by_thread

PSS_MIN_PAUSE_S, PSS_PAUSE_S, PSS_COST_SHARE, PSS_CREDIT_S = 2.0, 10.0, 0.002, 0.03
"""PSS is looked at when memory has reached a new peak, else every 10 s, at least 2 s apart, for at most 0.2% of a core."""
NEW_PEAK = 1.03
SWITCHES_PAUSE_S, SWITCHES_COST_SHARE = 5.0, 0.002


class TreeSample(NamedTuple):
    """The columns of tree_samples, in order."""

    processes: int
    cpu_s: float | None
    rss_bytes: int | None
    pss_bytes: int | None = None
    read_bytes: int | None = None
    write_bytes: int | None = None
    voluntary_switches: int | None = None
    involuntary_switches: int | None = None


class ProcessSample(NamedTuple):
    """The columns of process_samples, in order."""

    pid: int
    start_ticks: int
    name: str
    cpu_s: float
    rss_bytes: int
    pss_bytes: int | None
    read_bytes: int | None
    write_bytes: int | None
    voluntary_switches: int | None
    involuntary_switches: int | None
    threads: int


class Switches:
    """Context switches of a process over all of its threads, ended ones included as last seen."""

    def __init__(self) -> None:
        self._threads: dict[int, tuple[int, int]] = {}
        self.voluntary = 0
        self.involuntary = 0

    def add(self, threads: dict[int, tuple[int, int]]) -> None:
        for thread, (voluntary, involuntary) in threads.items():
            before = self._threads.get(thread, (0, 0))
            if voluntary < before[0] or involuntary < before[1]:  # another thread with the same number
                before = (0, 0)
            self.voluntary += voluntary - before[0]
            self.involuntary += involuntary - before[1]
        self._threads = threads


class Counter:
    """A sum over processes that must only grow. One that dips for a single look is held: a process had ended, and its parent not yet
    waited for it. What is still missing at the next look is lost to the sum for good, and is added to it from then on."""

    def __init__(self) -> None:
        self._lost = 0
        self._shown = 0
        self._dipped = False

    def show(self, total: int) -> int:
        missing = self._shown - (total + self._lost)
        if missing > 0 and self._dipped:
            self._lost += missing
        self._dipped = missing > 0
        self._shown = max(self._shown, total + self._lost)
        return self._shown


class Member:
    """One process of the tree; its open file makes sure that it is always the same one, whatever becomes of its number."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._file = Kept(f"{pid}/stat", 1024)
        self._text: bytes | None = None
        self.switches = Switches()
        self.stat: Stat | None = None

    def look(self) -> Stat | None:
        """Its state now; None when it is gone."""
        text = self._file.read()
        if text == self._text:  # it did nothing since, which is what most processes of a run do
            return self.stat
        found = parse_stat(text) if text else None
        if found and self.stat and found.start_ticks != self.stat.start_ticks:
            found = None
        self._text, self.stat = text, found
        return found

    def close(self) -> None:
        self._file.close()


class Budget:
    """Lets something be done at most so often, and for at most a share of one core."""

    def __init__(self, share: float, credit_s: float = 0.0) -> None:
        self._share = share
        self._left_s = credit_s
        self._at = time.monotonic()
        self.last = -1e9

    def allows(self, now: float, pause_s: float) -> bool:
        self._left_s = min(1.0, self._left_s + (now - self._at) * self._share)
        self._at = now
        return self._left_s >= 0 and now - self.last >= pause_s

    def spend(self, now: float, cpu_s: float) -> None:
        self._left_s -= cpu_s
        self.last = now


class Tree:
    """Everything below some roots. Call `find` when processes may have come, `sample` at every tick."""

    def __init__(self) -> None:
        self._roots: dict[int, Member] = {}
        self._members: dict[int, Member] = {}
        self._strangers: set[int] = {os.getpid()}
        self._ended_ticks = self._owed_ticks = 0
        self._cpu, self._read, self._written, self._voluntary, self._involuntary = (Counter() for _ in range(5))
        self._peak_rss_bytes = 0
        self._pss = Budget(PSS_COST_SHARE, PSS_CREDIT_S)
        self._switches = Budget(SWITCHES_COST_SHARE)
        self._gone_switches = [0, 0]

    def add_root(self, pid: int) -> None:
        """From now on everything below the process `pid` belongs to the tree."""
        if pid not in self._roots:
            self._roots[pid] = Member(pid)
            self._strangers = {os.getpid()}  # what had been seen before may lie below it

    def find(self) -> None:
        """Look for processes that came since. One that is not of the tree never will be: an orphan goes to a guard or above."""
        alive = pids()
        self._strangers &= alive
        parents = {}
        for pid in alive - self._strangers - self._members.keys() - self._roots.keys():
            text = read(f"{pid}/stat")
            if text:
                parents[pid] = parse_stat(text).parent
        for pid in parents:
            line, at = [], pid
            while at in parents and at not in self._members and at not in self._strangers and at not in line:
                line.append(at)
                at = parents[at]
            if at in self._members or at in self._roots:
                for one in reversed(line):  # parents first, so that they are read before their children
                    self._members[one] = Member(one)
            else:
                self._strangers.update(line)

    def sample(self, detailed: bool = False) -> tuple[TreeSample, list[ProcessSample]]:
        """The tree now; with `detailed`, I/O, and when they are due PSS and context switches, and each process by itself."""
        gone_ticks, inherited_ticks = self._look()
        self._settle(gone_ticks, inherited_ticks)
        living = [member for member in self._members.values() if member.stat]
        ticks = self._ended_ticks + self._owed_ticks + sum(root.stat.children_ticks for root in self._roots.values() if root.stat)
        rss_bytes = 0
        alive = []
        for member in living:
            stat = member.stat
            assert stat is not None
            ticks += stat.ticks + stat.children_ticks
            rss_bytes += stat.rss_bytes
            if stat.state not in "ZX":
                alive.append(member)
        sample = TreeSample(len(alive), self._cpu.show(ticks) / TICKS_PER_S, rss_bytes)
        return self._detailed(sample, alive) if detailed else (sample, [])

    def _look(self) -> tuple[int, int]:
        """Look at every process, parents before their children. Returns CPU ticks of those that are gone, as last seen, and by how much
        the time of ended descendants has grown in the others."""
        gone = inherited = 0
        for group, is_root in ((self._roots, True), (self._members, False)):
            for pid, member in list(group.items()):
                before = member.stat
                stat = member.look()
                if stat:
                    inherited += stat.children_ticks - before.children_ticks if before and stat is not before else 0
                    continue
                del group[pid]
                member.close()
                if before and is_root:  # what it had counted stays counted
                    self._ended_ticks += before.children_ticks
                elif before:
                    gone += before.ticks + before.children_ticks
                    self._gone_switches[0] += member.switches.voluntary
                    self._gone_switches[1] += member.switches.involuntary
        return gone, inherited

    def _settle(self, gone: int, inherited: int) -> None:
        """Where the time of processes that ended has gone: to the parent that waited for them, now or by the next look; or nowhere, when
        a parent does not care for its children (SIGCHLD ignored), and then it is kept here."""
        paid = min(self._owed_ticks, inherited)
        self._ended_ticks += self._owed_ticks - paid
        self._owed_ticks = max(0, gone - (inherited - paid))

    def _detailed(self, sample: TreeSample, alive: list[Member]) -> tuple[TreeSample, list[ProcessSample]]:
        now = time.monotonic()
        io = {member.pid: disk_bytes(member.pid) for member in [*alive, *self._roots.values()]}
        pss = self._pss_bytes(now, alive, sample.rss_bytes or 0)
        counted = self._count_switches(now, alive)
        known = [counts for counts in io.values() if counts]
        whole = sample._replace(
            pss_bytes=sum(pss.values()) if pss else None,
            read_bytes=self._read.show(sum(counts[0] for counts in known)) if known else None,
            write_bytes=self._written.show(sum(counts[1] for counts in known)) if known else None,
            voluntary_switches=self._voluntary.show(self._gone_switches[0] + sum(one.switches.voluntary for one in alive))
            if counted
            else None,
            involuntary_switches=self._involuntary.show(self._gone_switches[1] + sum(one.switches.involuntary for one in alive))
            if counted
            else None,
        )
        return whole, [_process(member, member.stat, pss.get(member.pid), io[member.pid], counted) for member in alive if member.stat]

    def _pss_bytes(self, now: float, alive: Collection[Member], rss_bytes: int) -> dict[int, int]:
        """PSS of every process that tells it, when it is time to look."""
        peak = rss_bytes > NEW_PEAK * self._peak_rss_bytes
        if not self._pss.allows(now, PSS_MIN_PAUSE_S if peak else PSS_PAUSE_S) or not alive:
            return {}  # without a process there is nothing to look at, and the first one does not wait because of it
        began = time.thread_time()
        found = {member.pid: pss for member in alive if (pss := proportional_bytes(member.pid)) is not None}
        self._pss.spend(now, time.thread_time() - began)
        self._peak_rss_bytes = max(self._peak_rss_bytes, rss_bytes)
        return found

    def _count_switches(self, now: float, alive: Iterable[Member]) -> bool:
        if not self._switches.allows(now, SWITCHES_PAUSE_S):
            return False
        began = time.thread_time()
        for member in alive:
            member.switches.add(switches_by_thread(member.pid))
        self._switches.spend(now, time.thread_time() - began)
        return True


def disk_bytes(pid: int) -> tuple[int, int] | None:
    """Bytes that a process, and its descendants that ended, had read from disks and written to them."""
    found = numbers(read(f"{pid}/io"), b"read_bytes", b"write_bytes")
    return (found[0], found[1]) if found else None


def _process(member: Member, stat: Stat, pss: int | None, io: tuple[int, int] | None, counted: bool) -> ProcessSample:
    return ProcessSample(
        member.pid,
        stat.start_ticks,
        stat.name,
        stat.ticks / TICKS_PER_S,
        stat.rss_bytes,
        pss,
        io[0] if io else None,
        io[1] if io else None,
        member.switches.voluntary if counted else None,
        member.switches.involuntary if counted else None,
        stat.threads,
    )
