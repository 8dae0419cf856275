"""The trace of a run, read back: valid by the Trace Event Format, and with the figures of the records."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict

import jsonschema
import pytest
import synthetic_run
import synthetic_samples

from rlmbench.cli.main import main
from rlmbench.records import load
from rlmbench.report import counters
from rlmbench.report.perfetto import trace

MS = 1_000_000
WHOLE = {"type": "integer", "minimum": 0}


def _of_kind(kind, required, **more):
    shape = {
        "ph": {"const": kind},
        "pid": WHOLE,
        "tid": WHOLE,
        "name": {"type": "string", "minLength": 1},
        "ts": WHOLE,
        "args": {"type": "object"},
    }
    properties = {**shape, **more}
    return {"type": "object", "properties": properties, "required": ["ph", "pid", "name", *required], "additionalProperties": False}


CAT = {"type": "string", "minLength": 1}
# After "Trace Event Format", docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
SCHEMA = {
    "type": "object",
    "required": ["traceEvents", "displayTimeUnit"],
    "properties": {
        "displayTimeUnit": {"enum": ["ms", "ns"]},
        "traceEvents": {
            "type": "array",
            "items": {
                "oneOf": [
                    _of_kind("X", ["tid", "ts", "dur", "cat"], dur=WHOLE, cat=CAT),
                    _of_kind("b", ["tid", "ts", "id", "cat"], id={"type": "string"}, cat=CAT),
                    _of_kind("e", ["tid", "ts", "id", "cat"], id={"type": "string"}, cat=CAT),
                    _of_kind("i", ["tid", "ts", "s", "cat"], s={"enum": ["g", "p", "t"]}, cat=CAT),
                    _of_kind("C", ["ts", "args"], args={"type": "object", "minProperties": 1, "additionalProperties": {"type": "number"}}),
                    _of_kind(
                        "M",
                        ["args"],
                        name={"enum": ["process_name", "process_labels", "process_sort_index", "thread_name", "thread_sort_index"]},
                    ),
                ]
            },
        },
    },
}


def processes(made):
    return {event["pid"]: event["args"]["name"] for event in made["traceEvents"] if event["name"] == "process_name"}


def threads(made):
    return {event["tid"]: event["args"]["name"] for event in made["traceEvents"] if event["name"] == "thread_name"}


def events(made, kind):
    return [event for event in made["traceEvents"] if event["ph"] == kind]


def assert_nests(made):
    """No complete event cuts across another one of its thread: the viewer would drop it."""
    ends = defaultdict(list)
    for event in events(made, "X"):
        open_ends = ends[event["pid"], event["tid"]]
        while open_ends and open_ends[-1] <= event["ts"]:
            open_ends.pop()
        assert not open_ends or event["ts"] + event["dur"] <= open_ends[-1], event
        open_ends.append(event["ts"] + event["dur"])


@pytest.fixture(scope="module")
def made(finished):
    run, summary = finished
    return json.loads(json.dumps(trace(run, {step.step: step.reason for step in summary.excluded_steps}), allow_nan=False))


def test_it_is_a_valid_trace_in_order_of_time(made):
    jsonschema.Draft202012Validator(SCHEMA).validate(made)
    times = [event["ts"] for event in made["traceEvents"] if event["ph"] != "M"]
    assert (times[0], times) == (0, sorted(times))
    assert_nests(made)


def test_processes_are_named_by_role_and_the_driver_comes_first(made):
    assert processes(made) == {1: "driver (pid 4000)", 2: "trainer rank 1 (pid 4001)"}
    order = {event["pid"]: event["args"]["sort_index"] for event in made["traceEvents"] if event["name"] == "process_sort_index"}
    assert order == {1: 1, 2: 2}
    assert set(threads(made).values()) == {"steps", "thread 1", "updates and losses"}
    assert not set(threads(made)) & set(processes(made))


def test_every_span_is_there_and_sums_agree_to_a_microsecond_an_event(finished, made):
    run, _ = finished
    names = {1: "4000", 2: "4001"}
    found = defaultdict(list)
    for event in events(made, "X"):
        if event["cat"] != "step":
            found[names[event["pid"]], event["cat"]].append(event["dur"])
    recorded = run.spans.assign(us=(run.spans["end_ns"] - run.spans["start_ns"]) / 1000).groupby(["process", "stage"])["us"]
    assert {key: len(durations) for key, durations in found.items()} == recorded.size().to_dict()
    for key, total_us in recorded.sum().items():
        assert abs(sum(found[key]) - total_us) <= len(found[key]), key


def test_own_times_of_the_drivers_stages_are_those_of_the_summary(finished, made):
    """Read back by hand: an event's own time is its duration less its children's, which here all lie directly within it."""
    _, summary = finished
    of_driver = [event for event in events(made, "X") if event["pid"] == 1 and event["cat"] not in ("step", "startup")]
    for figures in summary.steps:
        mine = [event for event in of_driver if event["args"]["step"] == figures.step]
        outer = [event for event in mine if "." not in event["name"]]
        for stage, seconds in figures.stages_s.items():
            durations = [event["dur"] for event in outer if event["cat"] == stage]
            assert abs(sum(durations) - seconds * 1e6) <= len(durations), (figures.step, stage)


def test_steps_are_a_track_of_their_own_on_the_driver(finished, made):
    _, summary = finished
    steps = [event for event in events(made, "X") if event["cat"] == "step"]
    assert [(event["pid"], threads(made)[event["tid"]], event["name"]) for event in steps] == [
        (1, "steps", f"step {k}") for k in range(1, 7)
    ]
    assert [event["args"].get("left_out") for event in steps] == ["warm-up", None, None, None, None, None]
    assert all(abs(event["dur"] - figures.step_s * 1e6) < 1 for event, figures in zip(steps, summary.steps, strict=True))


def test_arguments_memory_updates_and_losses(finished, made):
    run, _ = finished
    generation = next(event for event in events(made, "X") if event["name"] == "generation" and event["pid"] == 1)
    span = run.spans[(run.spans["process"] == "4000") & (run.spans["stage"] == "generation") & run.spans["samples"].notna()].iloc[0]
    wanted = ("step", "samples", "prompt_tokens", "response_tokens", "computed_tokens")
    assert {name: generation["args"][name] for name in wanted} == {name: int(span[name]) for name in wanted}
    memory = [event["args"]["bytes"] for event in events(made, "C") if event["pid"] == 1]
    of_driver = run.spans[(run.spans["process"] == "4000")].dropna(subset=["rss_bytes"]).sort_values("end_ns")
    assert memory == of_driver["rss_bytes"].tolist()
    origin_ns = min(run.spans["start_ns"])
    at_us = [event["ts"] for event in events(made, "C") if event["pid"] == 1]
    assert at_us == ((of_driver["end_ns"] - origin_ns) // 1000).tolist()
    points = defaultdict(int)
    for event in events(made, "i"):
        points[event["name"]] += 1
    assert points == {"optimizer step (actor)": 6, "loss": 6 * 4 * 2}  # of each of two ranks four micro-batches
    assert next(event for event in events(made, "i") if event["cat"] == "update")["args"]["weights_changed"] is True


def _process(role, pid, boot="b", mono_ns=0, real_ns=0, host="here", rank=0):
    return {"ev": "process", "schema": 1, "pid": pid, "ppid": 0, "rank": rank, "local_rank": 0, "world_size": 1, "role": role, "host": host,
            "boot_id": boot, "mono_ns": mono_ns, "real_ns": real_ns, "argv": ["python"]}  # fmt: skip


def _span(span_id, stage, start, end, thread=1, **more):
    return {"ev": "span", "id": span_id, "parent": None, "stage": stage, "substage": None, "name": stage, "step": 1, "thread": thread,
            "start_ns": start, "end_ns": end, **more}  # fmt: skip


@pytest.fixture
def traced(tmp_path):
    """A run whose processes' events are given."""

    def make(**of_process):
        run = synthetic_run.write_run(tmp_path, steps=2)
        for path in (run.path / "probe").iterdir():
            path.unlink()
        for name, written in of_process.items():
            (run.path / "probe" / f"{name}.jsonl").write_text("".join(json.dumps(event) + "\n" for event in written))
        made = json.loads(json.dumps(trace(load(run.path))))
        jsonschema.Draft202012Validator(SCHEMA).validate(made)
        assert_nests(made)
        return made

    return make


def test_spans_that_cut_across_each_other_become_asynchronous(traced):
    """On thread 1: 0-10 ms holds 2-4 ms; 8-12 ms cuts across its end. Lanes of calls that run at once are tracks of their own."""
    thread = [_span(1, "data", 0, 10 * MS), _span(2, "reward", 2 * MS, 4 * MS), _span(3, "weight_sync", 8 * MS, 12 * MS)]
    lanes = [_span(4, "generation", 0, 9 * MS, thread=-1), _span(5, "generation", MS, 8 * MS, thread=-2)]
    made = traced(a=[_process("driver", 7), *thread, *lanes])
    found = {(event["cat"], threads(made)[event["tid"]]): (event["ts"], event["dur"]) for event in events(made, "X")}
    assert found == {
        ("data", "thread 1"): (0, 10_000),
        ("reward", "thread 1"): (2_000, 2_000),
        ("generation", "in flight 1"): (0, 9_000),
        ("generation", "in flight 2"): (1_000, 7_000),
    }
    (begin,), (end,) = events(made, "b"), events(made, "e")
    assert (begin["cat"], begin["ts"], end["ts"], begin["id"]) == ("weight_sync", 8_000, 12_000, end["id"])


def test_parts_of_a_microsecond_are_cut_so_that_nesting_stays(traced):
    """A child that ends 400 ns before its parent does, and a neighbour that begins there."""
    made = traced(
        a=[_process("driver", 7), _span(1, "data", 0, 1_600), _span(2, "reward", 700, 1_200), _span(3, "advantage", 1_600, 2_999)]
    )
    assert [(event["cat"], event["ts"], event["dur"]) for event in events(made, "X")] == [
        ("data", 0, 1), ("reward", 0, 1), ("advantage", 1, 1),
    ]  # fmt: skip


def test_another_node_is_on_the_drivers_clock_and_named(traced):
    """The other node booted 1 s later: its 4 ms are the driver's 1004 ms. Its processes may have the driver's pid."""
    made = traced(
        a=[
            _process("driver", 7),
            _span(1, "data", 0, 10 * MS),
            {"ev": "step", "step": 1, "start_ns": 0, "end_ns": 1100 * MS, "probe_ns": 0},
        ],
        b=[_process("engine rank", 7, boot="other", real_ns=1000 * MS, host="there", rank=3), _span(1, "generation", 4 * MS, 9 * MS)],
        c=[_process("worker", 8)],
    )
    assert processes(made) == {1: "driver (pid 7)", 2: "engine rank 3 (pid 7) on there"}
    assert made["otherData"]["processes_without_events"] == 1
    assert [(event["pid"], event["ts"]) for event in events(made, "X") if event["cat"] == "generation"] == [(2, 1_004_000)]


def test_a_run_that_failed_in_its_first_step_is_drawn_too(stepless):
    run, _ = stepless
    made = json.loads(json.dumps(trace(run)))
    jsonschema.Draft202012Validator(SCHEMA).validate(made)
    assert {event["cat"] for event in events(made, "X")} >= {"startup", "data"}
    assert made["otherData"]["status"] == "failed"


def test_the_command_writes_a_compressed_file_below_reports(finished, tmp_path, monkeypatch, capsys):
    run, _ = finished
    monkeypatch.chdir(tmp_path)
    assert main(["timeline", str(run.path)]) == 0
    path = capsys.readouterr().out.strip()
    assert path == f"reports/{run.id}.trace.json.gz"
    made = json.loads(gzip.decompress((tmp_path / path).read_bytes()))
    assert made["otherData"]["run"] == run.id
    assert next(event for event in events(made, "X") if event["cat"] == "step")["args"]["left_out"] == "warm-up"
    assert main(["timeline", run.id, "--results", str(run.path.parents[1]), "-o", "plain.json"]) == 0
    assert json.loads((tmp_path / "plain.json").read_text()) == made


def test_mistakes_are_one_line_with_a_fix(finished, tmp_path, capsys):
    run, _ = finished
    assert main(["timeline", str(run.path), "-o", str(tmp_path / "trace.html")]) == 2
    assert "ends in .json or .json.gz" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert main(["timeline", str(run.path), "-o", str(tmp_path / "file" / "t.json.gz")]) == 2
    assert "choose another place with --output" in capsys.readouterr().err
    empty = synthetic_run.write_run(tmp_path / "empty", steps=2)
    for path in (empty.path / "probe").iterdir():
        path.write_text("")
    assert main(["timeline", str(empty.path)]) == 2
    printed = capsys.readouterr()
    assert "no span was recorded" in printed.err and printed.err.count("\n") == 1


def test_help_has_examples(capsys):
    assert main(["timeline", "--help"]) == 0
    printed = capsys.readouterr().out
    assert "rlmbench timeline latest" in printed and "ui.perfetto.dev" in printed


@pytest.fixture(scope="module")
def sampled(tmp_path_factory):
    run = synthetic_run.write_run(tmp_path_factory.mktemp("sampled"), accelerator=True, steps=2)
    synthetic_samples.write_samples(run.path, devices=2)
    return json.loads(json.dumps(trace(run), allow_nan=False))


def test_what_collectors_read_follows_as_counters_of_nodes_and_devices(sampled):
    jsonschema.Draft202012Validator(SCHEMA).validate(sampled)
    names = processes(sampled)
    assert list(names.values())[2:] == ["host synthetic-host", "device GPU-0 on synthetic-host", "device GPU-1 on synthetic-host"]
    assert not set(threads(sampled)) & set(names)
    values = defaultdict(set)
    for event in events(sampled, "C"):
        values[names[event["pid"]], event["name"]].update(event["args"].values())
    assert values["host synthetic-host", "CPU of the run (cores)"] == {1.5}
    assert values["host synthetic-host", "CPU of the node (cores)"] == {1.6}
    assert values["host synthetic-host", "load (processes)"] == {2.5}
    assert min(values["host synthetic-host", "RSS of the run (bytes)"]) == pytest.approx(4 * synthetic_run.GIB, rel=1e-4)
    assert values["device GPU-1 on synthetic-host", "power (W)"] == {200}
    assert values["device GPU-0 on synthetic-host", "SM clock (MHz)"] == {1755}
    assert values["device GPU-0 on synthetic-host", "SM active (share)"] == {0.5}


def test_a_long_run_has_no_more_points_of_a_counter_than_can_be_drawn():
    """10,001 readings in chunks of 3: the rate stays exact, a mean is that of a chunk, and no peak is lost."""
    readings = [(n * 100 * MS, 0.1 * n) for n in range(10_001)]
    rates, means, peaks = (counters._MADE[kind](readings, counters.MOST_POINTS) for kind in ("rate", "mean", "max"))
    assert [len(made) for made in (rates, means, peaks)] == [3333, 3334, 3334]
    assert {round(value, 6) for _, value in rates} == {1.0}
    assert (means[1], peaks[-1][1]) == ((300 * MS, pytest.approx(0.4)), pytest.approx(1000))
