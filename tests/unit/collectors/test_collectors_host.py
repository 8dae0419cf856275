"""The host's side of the collector, over an invented /proc whose figures are known."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rlmbench.collectors import proc
from rlmbench.collectors.node import Node
from rlmbench.collectors.tree import Budget, Counter, Switches, Tree

PAGE = proc.PAGE_BYTES
TICKS = proc.TICKS_PER_S


class FakeProc:
    """Files as the kernel shows them. A process that ends leaves an empty file to those who have it open, as a real one leaves an error."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def put(self, pid: int, parent: int, ticks: int = 0, children: int = 0, pages: int = 10, name: str = "python", start: int = 7) -> None:
        (self.root / str(pid)).mkdir(exist_ok=True)
        fields = [f"{pid} ({name}) S {parent} {pid} {pid} 0 -1 4194304 0 0 0 0 {ticks} 0 {children} 0 20 0 3 0 {start} 1000000 {pages}"]
        (self.root / str(pid) / "stat").write_text(" ".join([*fields, *["0"] * 28]) + "\n")

    def detail(self, pid: int, *, pss_kib: int, read: int, written: int) -> None:
        (self.root / str(pid) / "smaps_rollup").write_text(
            f"5626 ---p 00000000 00:00 0 [rollup]\nRss: 1 kB\nPss:     {pss_kib} kB\nPss_Dirty: 1 kB\n"
        )
        (self.root / str(pid) / "io").write_text(f"rchar: 1\nread_bytes: {read}\nwrite_bytes: {written}\ncancelled_write_bytes: 0\n")

    def thread(self, pid: int, thread: int, voluntary: int, involuntary: int) -> None:
        folder = self.root / str(pid) / "task" / str(thread)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "status").write_text(f"Name:\tx\nvoluntary_ctxt_switches:\t{voluntary}\nnonvoluntary_ctxt_switches:\t{involuntary}\n")

    def end(self, pid: int) -> None:
        (self.root / str(pid) / "stat").write_text("")
        for path in sorted((self.root / str(pid)).rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        (self.root / str(pid)).rmdir()


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeProc:
    monkeypatch.setattr(proc, "ROOT", str(tmp_path))
    return FakeProc(tmp_path)


def test_stat_is_read_whatever_the_name_holds(fake: FakeProc) -> None:
    fake.put(5, 1, ticks=250, children=30, pages=3, name="a) S (b c")
    text = proc.read("5/stat")
    assert text is not None
    stat = proc.parse_stat(text)
    assert (stat.name, stat.parent, stat.state, stat.ticks, stat.children_ticks) == ("a) S (b c", 1, "S", 250, 30)
    assert (stat.threads, stat.start_ticks, stat.rss_bytes) == (3, 7, 3 * PAGE)


def test_stat_of_a_real_process_agrees_with_the_kernel() -> None:
    text = proc.read(f"{os.getpid()}/stat")
    assert text is not None
    stat = proc.parse_stat(text)
    times = os.times()
    assert stat.parent == os.getppid()
    assert stat.ticks <= round((times.user + times.system) * TICKS) <= stat.ticks + 50
    assert stat.rss_bytes % PAGE == 0


def test_busy_time_leaves_out_idle_disk_wait_and_what_others_got() -> None:
    #           user nice system idle iowait irq softirq steal guest guest_nice
    line = b"cpu  1000 200 300 9999 500 40 60 700 90 10\ncpu0 1 1 1 1 1 1 1 1 1 1\n"
    assert proc.busy_seconds(line) == (1000 + 200 + 300 + 40 + 60) / TICKS


def test_the_node(fake: FakeProc) -> None:
    (fake.root / "stat").write_text("cpu  100 0 100 900 0 0 0 0 0 0\n")
    (fake.root / "meminfo").write_text("MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    400 kB\n")
    (fake.root / "loadavg").write_text("0.52 0.58 0.59 2/834 11206\n")
    node = Node()
    assert node.sample() == (200 / TICKS, 600 * 1024, 0.52)
    assert node.last_pid == "11206"
    (fake.root / "meminfo").write_text("MemTotal:       1000 kB\n")  # a kernel before 3.14
    assert node.sample().memory_used_bytes is None


def test_the_tree_is_what_is_below_its_roots_without_them(fake: FakeProc) -> None:
    fake.put(1, 0, ticks=1000)
    fake.put(10, 1, ticks=500, children=40, pages=1000)  # the guard: only what ended below it counts
    fake.put(11, 10, ticks=100, children=20, pages=10)
    fake.put(12, 11, ticks=50, pages=5)
    fake.put(99, 1, ticks=7777, pages=7777)  # somebody else's
    tree = Tree()
    tree.add_root(10)
    tree.find()
    sample, processes = tree.sample()
    assert (sample.processes, sample.rss_bytes, sample.cpu_s) == (2, 15 * PAGE, (40 + 100 + 20 + 50) / TICKS)
    assert processes == []
    fake.put(13, 12, ticks=3)
    assert tree.sample()[0].processes == 2
    tree.find()
    assert tree.sample()[0].processes == 3


def test_a_process_seen_before_its_root_was_named_is_found(fake: FakeProc) -> None:
    fake.put(10, 1)
    fake.put(11, 10)
    tree = Tree()
    tree.find()
    assert tree.sample()[0].processes == 0
    tree.add_root(10)
    tree.find()
    assert tree.sample()[0].processes == 1


def test_cpu_time_of_what_ended_stays_and_never_dips(fake: FakeProc) -> None:
    fake.put(10, 1)
    fake.put(11, 10, ticks=100)
    fake.put(12, 11, ticks=50)
    tree = Tree()
    tree.add_root(10)
    tree.find()
    assert tree.sample()[0].cpu_s == 150 / TICKS
    fake.end(12)  # its parent has not waited for it yet: nobody counts its time
    assert tree.sample()[0] == (1, 150 / TICKS, 10 * PAGE, *[None] * 5)
    fake.put(11, 10, ticks=110, children=55)
    assert tree.sample()[0].cpu_s == 165 / TICKS
    fake.end(11)
    fake.put(10, 1, children=170)
    assert tree.sample()[0].cpu_s == 170 / TICKS
    fake.end(10)  # the guard itself
    sample = tree.sample()[0]
    assert (sample.processes, sample.rss_bytes, sample.cpu_s) == (0, 0, 170 / TICKS)


def test_cpu_time_that_no_parent_waits_for_is_kept(fake: FakeProc) -> None:
    """A parent that ignores SIGCHLD inherits nothing: what its children used must neither vanish nor hide what comes after."""
    fake.put(10, 1)
    fake.put(11, 10, ticks=100)
    fake.put(12, 11, ticks=50)
    tree = Tree()
    tree.add_root(10)
    tree.find()
    tree.sample()
    fake.end(12)
    totals = []
    for ticks in (110, 120, 130):
        fake.put(11, 10, ticks=ticks)
        totals.append(tree.sample()[0].cpu_s)
    assert totals == [160 / TICKS, 170 / TICKS, 180 / TICKS]


def test_a_counter_is_held_through_a_dip_and_goes_on_after_a_loss() -> None:
    counter = Counter()
    assert [counter.show(total) for total in (10, 20, 15, 22)] == [10, 20, 20, 22]
    # 12 are lost for good: seen at the second look, counted on from there
    assert [counter.show(total) for total in (10, 11, 14, 20)] == [22, 22, 25, 31]


def test_a_number_that_is_used_again_is_another_process(fake: FakeProc) -> None:
    fake.put(10, 1)
    fake.put(11, 10, ticks=100)
    tree = Tree()
    tree.add_root(10)
    tree.find()
    tree.sample()
    fake.put(11, 1, ticks=9999, start=8)
    assert tree.sample()[0].processes == 0
    tree.find()
    assert tree.sample()[0].processes == 0
    assert tree.sample()[0].cpu_s == 100 / TICKS


def test_details_of_tree_and_processes(fake: FakeProc) -> None:
    fake.put(10, 1)
    fake.put(11, 10, ticks=100, pages=100, name="ray::Worker")
    fake.put(12, 11, ticks=50, pages=50)
    fake.detail(10, pss_kib=999, read=1000, written=10)  # what ended below the guard had read 1000
    fake.detail(11, pss_kib=300, read=2000, written=20)
    fake.detail(12, pss_kib=100, read=4000, written=40)
    fake.thread(11, 11, 5, 1)
    fake.thread(11, 111, 7, 2)
    fake.thread(12, 12, 1, 0)
    tree = Tree()
    tree.add_root(10)
    tree.find()
    sample, processes = tree.sample(detailed=True)
    assert sample == (2, 150 / TICKS, 150 * PAGE, 400 * 1024, 7000, 70, 13, 3)
    assert processes[0] == (11, 7, "ray::Worker", 100 / TICKS, 100 * PAGE, 300 * 1024, 2000, 20, 12, 3, 3)
    assert processes[1][:1] + processes[1][5:] == (12, 100 * 1024, 4000, 40, 1, 0, 3)
    again, processes = tree.sample(detailed=True)  # at once: what is dear is not looked at again
    assert (again.pss_bytes, again.voluntary_switches, again.read_bytes) == (None, None, 7000)
    assert (processes[0].pss_bytes, processes[0].voluntary_switches) == (None, None)


def test_memory_of_the_first_process_is_looked_at_once_it_is_there(fake: FakeProc) -> None:
    """A look before it, as at a collector's start, is none: the next one would come 2 s later."""
    fake.put(10, 1)
    tree = Tree()
    tree.add_root(10)
    tree.find()
    assert tree.sample(detailed=True)[0].pss_bytes is None
    fake.put(11, 10, pages=100)
    fake.detail(11, pss_kib=300, read=0, written=0)
    tree.find()
    assert tree.sample(detailed=True)[0].pss_bytes == 300 * 1024


def test_switches_count_over_threads_that_end_and_numbers_that_come_again() -> None:
    switches = Switches()
    switches.add({1: (10, 5), 2: (4, 4)})
    switches.add({1: (12, 5)})  # thread 2 has ended
    switches.add({1: (13, 6), 2: (1, 0)})  # another one
    assert (switches.voluntary, switches.involuntary) == (10 + 4 + 2 + 1 + 1, 5 + 4 + 1)


def test_a_budget_holds_over_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 100.0
    monkeypatch.setattr("rlmbench.collectors.tree.time.monotonic", lambda: clock)
    budget = Budget(share=0.01)
    spent, looks = 0.0, 0
    for second in range(1000):
        now = clock + second
        if budget.allows(now, pause_s=5.0):
            budget.spend(now, 0.25)
            spent, looks = spent + 0.25, looks + 1
    assert looks == 40  # 10 s of 1,000 are 1%, so 40 looks of 0.25 s
    assert spent <= 0.01 * 1000 + 0.25
