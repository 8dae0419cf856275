"""Records that were damaged after they had ended: copies of a run of TRL that is published, which has no events to derive tables from."""

import hashlib
import json
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rlmbench import load
from rlmbench.cli.main import main
from rlmbench.errors import UserError
from rlmbench.metrics import summarize, write_summary
from rlmbench.records.integrity import fingerprint, fingerprints, json_place
from rlmbench.records.store import read_each
from rlmbench.runner.execute import summarized

REFERENCE = Path(__file__).parents[3] / "results" / "reference" / "gsm8k_grpo"
TRL = sorted(REFERENCE.glob("*-trl-*"))
ANOTHER = "; take another copy of this run"


@pytest.fixture(params=["as it was published", "with fingerprints"])
def copied(tmp_path, request):
    """A copy without fingerprints, as records were before there were any, or with them, as a run is written now."""
    folder = Path(shutil.copytree(TRL[0], tmp_path / "results" / "gsm8k_grpo" / "copy"))
    summary = json.loads((folder / "summary.json").read_bytes())
    summary.pop("tables", None)
    (folder / "summary.json").write_text(json.dumps(summary))
    if request.param == "with fingerprints":
        write_summary(folder, summarized(load(folder)))
        assert set(json.loads((folder / "summary.json").read_bytes())["tables"]) == {path.stem for path in folder.glob("*.parquet")}
    return folder


def overwrite(path: Path, content: bytes) -> None:
    """As an interrupted copy leaves it; a copy's file may be a link to the one it was made from."""
    path.unlink()
    path.write_bytes(content)


def commands(folder: Path, out: Path) -> list[list[str]]:
    """Every command that reads a run."""
    run, whole = str(folder), [str(path) for path in TRL]
    return [
        ["show", run],
        ["show", run, "--json"],
        ["report", run, "-o", str(out / "page.html")],
        ["report", run, *whole, "-o", str(out / "page.html")],
        ["compare", run, *whole, "--line"],
        ["timeline", run, "-o", str(out / "trace.json")],
        ["publish", run, "-o", str(out / "published")],
        ["whatif", run],
    ]


def test_every_command_says_the_same_of_a_table_that_is_gone(copied, tmp_path, capsys):
    (copied / "steps.parquet").unlink()
    for arguments in commands(copied, tmp_path / "out"):
        assert main(arguments) == 2, arguments
        out, err = capsys.readouterr()
        assert err == f"error: {copied}: steps.parquet is missing or has no rows, though steps were measured{ANOTHER}\n", arguments
        assert out == ""
    assert not (tmp_path / "out").exists() or not any((tmp_path / "out").iterdir())


def test_every_command_says_the_same_of_tables_that_are_garbage(copied, tmp_path, capsys):
    for name in ("hooks", "rewards", "samples", "spans"):
        overwrite(copied / f"{name}.parquet", b"garbage")
    damaged = "hooks.parquet, rewards.parquet, samples.parquet and spans.parquet: damaged"
    for arguments in commands(copied, tmp_path / "out"):
        assert main(arguments) == 2, arguments
        assert capsys.readouterr().err == f"error: {copied}: {damaged}, and there are no raw events to derive them from{ANOTHER}\n"


@pytest.mark.parametrize("kept", [0, 12, 300, -20])
def test_no_table_may_be_cut_off(copied, kept):
    for table in sorted(path.name for path in copied.glob("*.parquet")):
        whole = (copied / table).read_bytes()
        overwrite(copied / table, whole[:kept])
        with pytest.raises(UserError, match=f"{table}: damaged, and there are no raw events to derive it from"):
            summarized(load(copied))
        overwrite(copied / table, whole)
    assert summarized(load(copied)).status == "ok"


def test_no_table_that_a_figure_was_taken_from_may_be_missing_or_empty(copied):
    """Of the tables of a run on a CPU only these hold nothing that a figure of it needs."""
    unneeded = {"capabilities", "node_samples"} if "tables" not in json.loads((copied / "summary.json").read_bytes()) else set()
    for path in sorted(copied.glob("*.parquet")):
        whole = path.read_bytes()
        path.unlink()
        if path.stem in unneeded:
            assert summarized(load(copied)).status == "ok"
        else:
            with pytest.raises(UserError, match=f"{path.name} is missing or has no rows, though "):
                summarized(load(copied))
            pq.write_table(pq.read_table(pa.BufferReader(whole))[:0], path)
            with pytest.raises(UserError, match=f"{path.name}"):
                summarized(load(copied))
        overwrite(path, whole) if path.exists() else path.write_bytes(whole)


def test_a_table_with_another_runs_rows_is_noticed_by_its_fingerprint(copied):
    other = (TRL[1] / "spans.parquet").read_bytes()
    overwrite(copied / "spans.parquet", other)
    if "tables" in json.loads((copied / "summary.json").read_bytes()):
        with pytest.raises(UserError, match=r"spans.parquet: damaged"):
            _ = load(copied).summary


@pytest.mark.parametrize("gone", [["plan.json"], ["plan.json", "summary.json"]], ids=" and ".join)
def test_a_plan_that_is_gone_is_no_failed_audit(copied, capsys, gone):
    """Nothing else holds it: neither the tables nor raw events."""
    (copied / "probe").mkdir()
    (copied / "probe" / "driver-1.jsonl").write_text("{}\n")
    for name in gone:
        (copied / name).unlink()
    assert main(["show", str(copied)]) == 2
    assert capsys.readouterr().err == f"error: {copied}/plan.json: missing, though the run was audited against it{ANOTHER}\n"


def test_without_its_figures_a_run_that_was_probed_still_needs_its_spans(copied, capsys):
    for name in ("spans.parquet", "summary.json"):
        (copied / name).unlink()
    assert main(["show", str(copied)]) == 2
    reason = "though the run was measured with the probe"
    assert capsys.readouterr().err == f"error: {copied}: spans.parquet is missing or has no rows, {reason}{ANOTHER}\n"


def test_figures_that_are_damaged_are_taken_again_from_the_tables(copied, capsys):
    before = summarized(load(copied))
    (copied / "summary.json").write_text('{"schema_version": 1,\n "runs": [{')
    again = summarized(load(copied))
    assert (again.steps, again.audit, again.throughput) == (before.steps, before.audit, before.throughput)
    said = "summary.json: damaged (line 2, column 12); the figures are taken again from the tables"
    assert capsys.readouterr().err == f"warning: {copied}/{said}\n"
    (copied / "spans.parquet").unlink()  # and with neither there is nothing to take them from
    with pytest.raises(UserError, match=r"spans.parquet is missing"):
        summarized(load(copied))


def test_raw_events_stand_in_for_damaged_tables(copied):
    """Steps 1 and 2 by hand. The figures that were kept stay; a table that they need and the events lack is missing all the same."""
    (copied / "probe").mkdir()
    events = [{"ev": "step", "step": number, "start_ns": 10 * number, "end_ns": 10 * number + 9, "probe_ns": 1} for number in (1, 2)]
    (copied / "probe" / "driver-1.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    (copied / "steps.parquet").unlink()
    run = load(copied)
    assert run.summary is not None
    with pytest.raises(UserError, match=r"spans.parquet, .* are missing or have no rows, though the run's figures were taken from them"):
        _ = run.tables
    (copied / "summary.json").unlink()
    assert load(copied).steps["end_ns"].tolist() == [19, 29]


def test_only_the_ends_of_a_large_file_are_hashed(tmp_path):
    kib = 1024
    small, large = os.urandom(128 * kib), os.urandom(64 * kib) + bytes(kib) + os.urandom(64 * kib)
    assert fingerprint(small) == {"bytes": 128 * kib, "sha256": hashlib.sha256(small).hexdigest()}
    assert fingerprint(large) == {"bytes": 129 * kib, "sha256": hashlib.sha256(large[: 64 * kib] + large[65 * kib :]).hexdigest()}
    for name, content in (("small", small), ("large", large)):
        (tmp_path / f"{name}.parquet").write_bytes(content)
    assert fingerprints(tmp_path) == {"small": fingerprint(small), "large": fingerprint(large)}


@pytest.mark.parametrize("run", sorted(REFERENCE.parent.glob("*/2*")), ids=lambda path: path.name)
def test_the_published_runs_are_whole(run):
    assert load(run).summary["status"] == "ok" and len(load(run).spans)


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b" \n", "it is empty"),
        (b'{"a": 1,\n "b"}', "line 2, column 5"),
        (b'{"a": "\xff"}', "byte 8 is no text"),
        (b"[]", "not what it has to hold"),
    ],
)
def test_where_a_file_stops_being_json_is_told_in_words(content, place):
    assert json_place(content) == place


def test_every_run_that_is_damaged_is_named(tmp_path):
    def read(run):
        if run.id in ("b", "d"):
            raise UserError(f"{run.id}: damaged")
        return run.id

    runs = [load(shutil.copytree(TRL[0], tmp_path / name)) for name in "abcd"]
    assert read_each(runs[:1], read) == ["a"]
    with pytest.raises(UserError) as refused:
        read_each(runs, read)
    assert refused.value.lines == ("b: damaged", "d: damaged")


def test_show_names_every_damaged_run(tmp_path, capsys):
    runs = [Path(shutil.copytree(TRL[0], tmp_path / name)) for name in "ab"]
    for run in runs:
        (run / "steps.parquet").unlink()
    assert main(["show", *map(str, runs)]) == 2
    assert [line.split(": ")[1] for line in capsys.readouterr().err.splitlines()] == list(map(str, runs))


def test_figures_taken_again_are_those_of_the_tables(copied):
    """What `summarize` makes of a copy is what the run kept, so that nothing is lost with the file."""
    (copied / "summary.json").unlink()
    kept = json.loads((TRL[0] / "summary.json").read_bytes())["runs"][0]
    again = summarize(load(copied)).model_dump(mode="json")
    assert {name: again[name] for name in ("step_s", "coverage", "lengths", "audit")} == {
        name: kept[name] for name in ("step_s", "coverage", "lengths", "audit")
    }
