"""Files of any layout, size and damage: the same figures to the ns, or one line that says what is wrong."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from benchmarks.generate_trace import Generator, Planted
from rlmbench.errors import UserError
from rlmbench.traces import Trace, hta_breakdown, read_trace, reading, scan, tensorboard_overall
from rlmbench.traces.columns import DEVICE_FIGURES, Columns, Wanted
from rlmbench.traces.generic import nanoseconds
from rlmbench.traces.intervals import Ints
from tests.unit.traces.trace_files import NCCL, call, copy, kernel, kineto, operator, stage, step, write


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 64 KiB, so that small files have many of them."""
    monkeypatch.setattr(reading, "CHUNK_BYTES", 1 << 16)


def differences(trace: Trace, truth: Planted) -> list[str]:
    """Every figure that is not what was planted; a difference of 1 ns counts."""
    found = []

    def compare(where: str, usage: Any, planted: dict[str, int]) -> None:
        found.extend(f"{where}.{key}: {getattr(usage, key)} for {value}" for key, value in planted.items() if getattr(usage, key) != value)

    for device in trace.devices:
        planted = truth.devices[int(device.device)]
        compare(f"device {device.device}", device.usage, planted["usage"])
        for step_, usage, its in zip(trace.steps, device.steps, planted["steps"], strict=True):
            compare(f"device {device.device} step {step_.number}", usage, its)
        for one in device.stages:
            compare(f"{one.stage} during", one.during, planted["during"][one.stage] | {"window_ns": planted["wall_ns"][one.stage]})
            compare(f"{one.stage} launched", one.launched, planted["launched"][one.stage])
    return found


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("t.json", {"devices": 2}),
        ("t.json.gz", {"seed": 1}),
        ("t.json", {"seed": 2, "layout": "older", "devices": 3, "empty_graphs": 1}),
        ("t.json", {"seed": 3, "base_ns": 1711964646_000000000}),  # ts above 2^43 us: a double has 0.25 us there
    ],
    ids=["torch 2.13", "gzip", "older", "1970"],
)
def test_planted_truth_to_0_ns(tmp_path: Path, name: str, options: dict[str, Any]) -> None:
    truth = Generator(**options).write(tmp_path / name, 0.7, steps=2)
    trace = read_trace(tmp_path / name)
    assert len(trace.devices) == len(truth.devices)
    assert [(one.number, one.start_ns, one.end_ns) for one in trace.steps] == truth.steps
    assert all(len(device.stages) == 7 and {one.attribution for one in device.stages} == {"launch"} for device in trace.devices)
    assert differences(trace, truth) == []
    assert (trace.graph_launches, trace.empty_graph_launches, trace.lost_launches) == (truth.graph_launches, truth.empty_graph_launches, 0)
    assert trace.layout == "kineto"


EVENTS = [
    {"ph": "M", "name": "process_name", "pid": 100, "tid": 0, "ts": 0, "args": {"name": "python"}},
    step(1, 0, 200), stage("generation", 1, 90), stage("reward", 100, 180), operator(2, 80),
    call(10, 1), kernel(12.125, 30, correlation=1), call(40, 2), kernel(41, 60, NCCL, stream=40, correlation=2),
    {"ph": "s", "id": 2, "pid": 100, "tid": 100, "ts": 40, "cat": "ac2g", "name": "ac2g"},
    call(110, 3), kernel(50, 55, 'a "quoted" \\ name, {"ph": "X", "cat": "kernel"', correlation=3), copy(120.001, 170.999, stream=24),
    kernel(171, 173, "x", occupancy={"correlation": 77, "device": 5, "limits": ["REGS", [1]]}, text='"device": 9, "correlation": 8'),
]  # fmt: skip
EVENTS *= 60  # the same intervals again: more text, equal unions


def reordered(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [dict(reversed(one.items())) for one in events]


LAYOUTS: dict[str, Callable[[], str]] = {
    "compact": lambda: json.dumps({"traceEvents": EVENTS}, separators=(",", ":")),
    "on one line": lambda: json.dumps({"a": [{"traceEvents": [1]}], "b": '"traceEvents": [', "traceEvents": EVENTS, "c": {"d": [EVENTS[1]]}}),
    "indented by 1": lambda: json.dumps({"traceEvents": EVENTS}, indent=1),
    "indented by 2": lambda: json.dumps({"traceEvents": EVENTS}, indent=2),
    "indented by a tab": lambda: json.dumps({"traceEvents": EVENTS}, indent="\t"),
    "array": lambda: json.dumps(EVENTS),
    "keys in another order": lambda: json.dumps({"traceEvents": reordered(EVENTS)}, indent=1),
    "windows line ends": lambda: kineto(EVENTS).replace("\n", "\r\n"),
    "kineto": lambda: kineto(EVENTS),
    "kineto, older": lambda: kineto(EVENTS, layout="older"),
    "kineto, then other": lambda: kineto(EVENTS).replace("\n  ],\n", "," + json.dumps(EVENTS)[1:-1] + "],"),
    "kineto with other in between": lambda: kineto(EVENTS).replace("\n  },\n  {", "\n  }, " + json.dumps(EVENTS[6]) + ",\n  {", 100),
    "kineto with another list of events": lambda: kineto(EVENTS).replace('\n  ],\n  "traceName"', '\n  ],\n  "more": [' + kineto([kernel(190, 200)] * 3).split("[", 1)[1].split("\n  ]")[0] + '\n  ],\n  "traceName"'),
    "two layouts of kineto": lambda: kineto(EVENTS).replace("\n  ],\n", "," + kineto(EVENTS, layout="older").split("[", 1)[1].split("\n  ],")[0] + "\n  ],\n"),
    "kineto with objects in lists": lambda: kineto(EVENTS).replace('"limits": ["REGS"', '"limits": ["REGS", {"device": 3}'),
    "no number": lambda: kineto(EVENTS).replace('"cbid": 211', '"cbid": N/A, "memory bandwidth (GB/s)": inf'),
}  # fmt: skip


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout_gives_the_same_figures(tmp_path: Path, layout: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(LAYOUTS[layout](), newline="")
    trace = read_trace(path)
    (device,) = trace.devices
    assert (device.usage.window_ns, device.usage.busy_ns) == (200_000, 17_875 + 19_000 + 50_998 + 2_000)
    assert (device.usage.communication_ns, device.usage.exposed_communication_ns, device.usage.copy_ns) == (19_000, 14_000, 50_998)
    generation, reward = device.stages
    assert (generation.launched.busy_ns, reward.launched.busy_ns) == (17_875 + 19_000, 5_000)
    assert (generation.during.busy_ns, reward.during.busy_ns) == (36_875, 52_998)
    by_layout = layout in ("kineto", "kineto, older", "two layouts of kineto", "no number")
    by_layout |= layout == "kineto, then other"  # all of it in the last block, which is always parsed
    assert trace.layout == ("kineto" if by_layout else "json")


@pytest.mark.parametrize(("layout", "left"), [("torch 2.13", []), ("older", ["M", "M"])])
def test_kinetos_layout_is_read_without_parsing_json_but_for_odd_records(tmp_path: Path, layout: str, left: list[str]) -> None:
    Generator(layout=layout).write(tmp_path / "t.json", 0.3)
    text = (tmp_path / "t.json").read_bytes().split(b"[\n    ", 1)[1].rsplit(b"\n  ],", 1)[0]
    columns = Columns()
    odd = scan.scan(text + scan.PAD, Wanted(*DEVICE_FIGURES), columns)
    assert odd is not None
    assert [json.loads(one)["ph"] for one in odd] == left  # older ones begin with their name
    assert len(columns.device) > 100


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("12", 12_000), ("12.5", 12_500), ("12.345", 12_345), ("1711964646000000.123", 1711964646000000123), ("12.3456", 12_346), ("1e3", 1_000_000),
        ('"12.345"', 12_345), ("-1.5", -1500), ("", 0), ("null", 0), ('"x"', 0),
    ],
)  # fmt: skip
def test_microseconds_become_ns_without_a_float(text: str, ns: int) -> None:
    assert nanoseconds(text.encode()) == ns


@cache
def many_kernels(others: int) -> str:
    return kineto([kernel(1, 2), kernel(3.5, 4), *[kernel(1, 2)] * others])


@pytest.mark.parametrize("text", ["9" * 16, "9" * 30, "1e99", "-1e4000", "1e999999", "9999999999999999.123"])
def test_a_time_beyond_all_clocks_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(many_kernels(0).replace('"ts": 3.500', f'"ts": {text}'))
    assert "a time of" in refused(read_trace, path)
    path.write_text(many_kernels(9000).replace('"ts": 3.500', f'"ts": {text}'))
    assert "a time of" in refused(read_trace, path)


@pytest.mark.parametrize("digits", range(1, 17))
def test_digits_of_any_length_are_read_in_columns(digits: int) -> None:
    chance = random.Random(digits)
    values = [chance.randrange(10 ** (digits - 1), 10**digits) for _ in range(20)]
    text = b"".join(b"%d." % value for value in values)
    at: Ints = scan.np.cumsum([0] + [digits + 1] * 19)
    value, length = scan.Block(text + scan.PAD).integers(at)
    assert value.tolist() == values
    assert set(length.tolist()) == {digits}


def refused(read: Callable[[Path], Any], path: Path) -> str:
    with pytest.raises(UserError) as raised:
        read(path)
    message = str(raised.value)
    assert "\n" not in message
    assert str(path) in message
    return message


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("read", [read_trace, hta_breakdown, tensorboard_overall])
def test_a_file_cut_off_anywhere_is_refused(tmp_path: Path, read: Callable[[Path], Any]) -> None:
    whole = kineto(EVENTS[:26] * 30).encode()
    assert len(whole) > 2 << 16
    chance = random.Random(0)
    for length in (1, 20, 47, len(whole) - 3, *(chance.randrange(100, len(whole) - 10) for _ in range(12))):
        path = tmp_path / "cut.json"
        path.write_bytes(whole[:length])
        assert "cut off" in refused(read, path), length


@pytest.mark.parametrize("share", [0.001, 0.3, 0.99])
def test_a_gzipped_file_cut_off_is_refused(tmp_path: Path, share: float) -> None:
    chance = random.Random(1)
    whole = gzip.compress(kineto([kernel(chance.random() * 1e6, 2e6) for _ in range(5000)]).encode())
    path = tmp_path / "cut.json.gz"
    path.write_bytes(whole[: int(len(whole) * share)])
    assert "cut off or damaged" in refused(read_trace, path)


def test_a_damaged_gzip_file_is_refused(tmp_path: Path) -> None:
    whole = bytearray(gzip.compress(kineto(EVENTS).encode()))
    whole[len(whole) // 2] ^= 0xFF
    path = tmp_path / "bad.json.gz"
    path.write_bytes(whole)
    refused(read_trace, path)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b" \n ", "is empty"),
        (b"hello", "is not a trace"),
        (b"\x00\x01\x02" * 1000, "is not a trace"),
        (b"{}", "no traceEvents"),
        (b'{"schemaVersion": 1}', "no traceEvents"),
        (b'{"schemaVersion": ', "cut off before its events, or is not JSON"),
        (b'{"traceEvents": {"a": 1}}', "no traceEvents"),
        (b'{"traceEvents": [1, 2]}', "something stands between"),
        (b'{"traceEvents": [{"ph": X}]}', "not JSON"),
        (b'{"traceEvents": [{"ph": 5}]}', "not JSON"),
        (b'{"traceEvents": [{}], "a"}', "cut off behind its events"),
        (b'{"traceEvents": [{}]}}', "cut off behind its events"),
        (b"[{}", "cut off within its events"),
        (b"[{}] x", "cut off behind its events"),
        (b'{"traceEvents": [{"name": "' + b"[" * 100, "cut off within its events"),
    ],
)
def test_what_is_no_trace_is_refused_in_one_line(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(content)
    assert says in refused(read_trace, path)


@pytest.mark.parametrize("text", ['{"a": %s, "traceEvents": []}', '{"traceEvents": [{"args": %s}]}', '{"traceEvents": [], "a": %s}'])
def test_what_is_nested_without_end_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "t.json").write_text(text % ("[" * 100_000 + "]" * 100_000))
    with pytest.raises(UserError, match=r"not JSON|cut off"):
        read_trace(tmp_path / "t.json")


def test_a_folder_or_nothing_is_refused(tmp_path: Path) -> None:
    assert "Is a directory" in refused(read_trace, tmp_path)
    assert "No such file" in refused(read_trace, tmp_path / "none.json")


def test_an_endless_event_or_header_is_refused_within_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "EVENT_LIMIT_BYTES", 3 << 20)
    monkeypatch.setattr(reading, "HEADER_LIMIT_BYTES", 3 << 20)
    path = tmp_path / "t.json"
    path.write_bytes(b'{"traceEvents": [{"name": "' + b"x" * (8 << 20) + b'"}]}')
    assert "an event of more than 3 MiB" in refused(read_trace, path)
    path.write_bytes(b'{"name": "' + b"x" * (8 << 20) + b'", "traceEvents": []}')
    assert "no traceEvents in its first" in refused(read_trace, path)


def test_events_of_unexpected_kinds_are_left_out(tmp_path: Path) -> None:
    odd: list[dict[str, Any]] = [
        {}, {"ph": "X"}, {"ph": "X", "cat": "kernel", "name": None, "args": [1]}, {"ph": "X", "cat": "kernel", "name": "k", "ts": None, "dur": "x", "pid": "Spans", "args": None},
        {"ph": "X", "cat": None}, {"ph": "B", "cat": "kernel", "ts": 1}, {"ph": "X", "cat": "new_category", "ts": 1, "dur": 2},
    ]  # fmt: skip
    trace = read_trace(write(tmp_path / "t.json", [*odd, kernel(0, 10)]))
    (device,) = (one for one in trace.devices if one.device == "0")
    assert device.usage.busy_ns == 10_000


CHANGES = [
    ('"device": 0', '"device":  5'), ('"device": 0', '"device" : 5'), ('"device": 0', '"device": "7"'), ('"device": 0', '"device": null'), ('"device": 0, ', ""),
    ('"stream": 7', '"stream": []'), ('"stream": 7', '"stream": 1.5'), ('"stream": 7', '"stream": 12345678'), ('"stream": 7', '"stream": -5'),
    ('"correlation": 1', '"correlation": 1e3'), ('"correlation": 1', '"correlation": 12345678901234567'), ('"correlation": 1', '"correlation": true, "c": 1'),
    ('"pid": 0', '"pid": 0.5'), ('"tid": 7', '"tid": "7"'), ('"ts": 4458676417', '"ts": 12345678'), ('"dur": ', '"dur": 12345678'), ('"dur": ', '"dur": -'),
    ('"cat": "kernel"', '"cat": "kernels"'), ('"cat": "kernel"', '"cat": "ker\\u006eel"'), ('"cat": "gpu_memcpy"', '"cat": "gpu_memset"'), ('"cat": "cpu_op"', '"cat": ""'),
    ('"name": "', '"name": "\\"'), ('"name": "', '"name": "{ '), ('"name": "', '"name": "\\\\'), ('"name": "', '"name": "é'),
    ("\n  {\n", '\n  {\n    "z": 1,\n'), ("\n  {\n", "\n  { \n"), ("\n  {\n", "\n   {\n"), ("\n  {\n", '\n  {\n    "z": {"a": 1},\n'), ("\n  },", "\n  },{},"),
    ("\n  },\n  {", '\n  },{"ph": "X", "cat": "kernel", "ts": 4458676417000.5, "dur": 900.25, "args": {"device": 0, "stream": 7}},\n  {'),
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_written_otherwise_here_and_there_is_read_alike_either_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str, change: tuple[str, str]
) -> None:
    """Found by changing generated traces at random and comparing both ways. Every fifth of the places is changed."""
    pieces = changed.split(change[0])
    assert len(pieces) > 5
    path = tmp_path / "t.json"
    path.write_text("".join(piece + (change[0] if i % 5 else change[1]) for i, piece in enumerate(pieces[:-1])) + pieces[-1])
    json.loads(path.read_text())
    monkeypatch.setattr(reading, "CHUNK_BYTES", 1 << 14)
    readers = (read_trace, hta_breakdown, tensorboard_overall)
    fast = [str(read(path)).replace("layout='kineto'", "layout='json'") for read in readers]
    monkeypatch.setattr(reading._Reader, "_records", lambda self, buffer, chunks: (buffer, False))
    assert fast == [str(read(path)) for read in readers]


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("changed") / "t.json"
    Generator(seed=1).write(path, 0.05, steps=1)
    return path.read_text()


def test_the_two_ways_of_reading_agree_on_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same text by the fast way and, with nothing for it to hold on to, by the general one: all three definitions."""
    monkeypatch.setattr(reading, "CHUNK_BYTES", 1 << 16)
    Generator(seed=9, devices=2).write(tmp_path / "fast.json", 0.5, steps=3)
    (tmp_path / "slow.json").write_text(json.dumps(json.loads((tmp_path / "fast.json").read_text())))
    fast, slow = (asdict(read_trace(tmp_path / name)) for name in ("fast.json", "slow.json"))
    assert (fast.pop("layout"), slow.pop("layout")) == ("kineto", "json")
    assert {**fast, "path": None} == {**slow, "path": None}
    assert hta_breakdown(tmp_path / "fast.json") == hta_breakdown(tmp_path / "slow.json")
    assert tensorboard_overall(tmp_path / "fast.json") == tensorboard_overall(tmp_path / "slow.json")
