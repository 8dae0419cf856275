"""Published records: nothing names the machine any more, and every figure is the same. The record is SYNTHETIC, with leaks put in."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
import synthetic_run

import rlmbench
from rlmbench.cli.main import main
from rlmbench.comparison import compare, evidence_of
from rlmbench.errors import UserError
from rlmbench.metrics import summarize, write_summary
from rlmbench.publish import Scrubber
from rlmbench.records import Failure, ProcessLaunch
from rlmbench.records.manifest import EnvironmentRecord
from rlmbench.records.supervisor import Supervisor
from rlmbench.records.tables import TABLE_NAMES, read_tables, write_tables
from rlmbench.report import vega
from rlmbench.runner.execute import summarized

HOST = "gpu-node17.cluster.example"
TOKEN = "hunter2-and-More"
LEAKS = (HOST, TOKEN, "jdoe", "10.1.2.3", "/mnt/lab", "/scratch", "5d3c8a52", "GPU-0a1b", "hf_" + "a" * 24)
"""What was put in, by hand: none of it may come out."""
ABSOLUTE = re.compile(r"(?:^|[\s\"'=:,(\[])/(?!dev/|proc/|sys/)[A-Za-z][\w.-]*/[\w.-]")
"""A path from the root, told without the code under test."""


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    run_dir = tmp_path_factory.mktemp("lab") / "results" / "gsm8k_grpo" / "one"
    changes = {
        "launch": [
            ProcessLaunch(
                name="train",
                argv=["/mnt/lab/envs/trl/bin/python", "-m", "x", f"data={run_dir}/train.parquet", "--api-key", TOKEN, "--port=8000", "--ip", "10.1.2.3"],
                env={"RAY_TOKEN": TOKEN, "PYTHONPATH": f"/scratch/jdoe/code:{run_dir}:/mnt/lab/x", "TOKENIZERS_PARALLELISM": "false"},
            )
        ],
        "environment": EnvironmentRecord(name="trl", device="cpu", key="k", python="/mnt/lab/envs/trl/bin/python", packages={"trl": "1.16.0", "odd": "1.2.3.4"}),
        "host": {"hostname": HOST, "cpu_model": "Synthetic CPU", "cores": 2, "boot_id": "5d3c8a52-0000-4000-8000-000000000000", "load": [0.1, 0.1, 0.1]},
        "devices": [{"uuid": "GPU-0a1b", "name": "NVIDIA H200", "memory_bytes": 1, "driver": "1"}],
        "native": {"output_dir": str(run_dir / "native"), "hub_token": "a-b-c-d", "eos_token": "<|end|>", "lr": 1e-6},
        "failure": Failure(failure_class="crash", message=f"no file /scratch/jdoe/w.bin on {HOST}", tail=[f"hf_{'a' * 24} is not valid", "see file:///home/jdoe/log/x.txt"]),
        "overrides": ["model.path=/scratch/jdoe/model"],
    }  # fmt: skip
    run = synthetic_run.write_run(run_dir.parents[1], "one", steps=3, prompts_per_step=4, group_size=2, changes=changes)
    events = min((run.path / "probe").glob("*.jsonl"))
    leak = {"ev": "fact", "name": "where", "value": {"host": HOST, "cwd": "/scratch/jdoe/run", "pair": ["x", "/mnt/lab/y/z"]}}
    text = events.read_text().replace(
        '["python", "train.py"]', json.dumps(["/mnt/lab/envs/trl/bin/python", f"{run_dir}/job.json", f"--password={TOKEN}"])
    )
    assert "/mnt/lab" in text
    events.write_text(text + json.dumps(leak) + "\n")
    write_tables(run.path, run.tables)
    write_summary(run.path, summarize(run))
    (run.path / "logs" / "train.log").write_text("raw")
    return rlmbench.load(run.path)


@pytest.fixture(scope="module")
def published(original, tmp_path_factory):
    output = tmp_path_factory.mktemp("out")
    assert main(["publish", str(original.path), "-o", str(output)]) == 0
    return rlmbench.load(output / "gsm8k_grpo" / "one")


def texts(folder: Path) -> str:
    """Everything that can be read in a folder's files, names included."""
    found = []
    for path in folder.rglob("*"):
        found.append(path.name)
        if path.suffix == ".parquet":
            table = pq.read_table(path)
            found += [
                str(table.schema.metadata),
                *(str(value) for column in table.columns for value in column.to_pylist() if isinstance(value, str)),
            ]
        elif path.is_file():
            found.append(path.read_text())
    return "\n".join(found)


def test_nothing_names_the_machine_or_its_user(original, published):
    text = texts(published.path)
    assert [leak for leak in (*LEAKS, str(original.path), str(Path.home() / "x")) if leak in text] == []
    assert ABSOLUTE.findall(text) == []
    assert ABSOLUTE.findall(texts(original.path))  # the search can fail


def test_only_what_a_reader_needs_is_there(original, published):
    tables = {path.stem for path in published.path.glob("*.parquet")}
    assert tables == {name for name in TABLE_NAMES if len(getattr(original.tables, name))} >= {"spans", "samples", "steps", "facts"}
    others = {path.name for path in published.path.iterdir() if path.suffix != ".parquet"}
    assert others == {"manifest.json", "plan.json", "summary.json", "publication.json"}
    assert {"question", "answer", "prompt_ids"} & set(published.plan["rows"][0]) == set()


def test_placeholders_say_what_was_there(published):
    manifest = published.manifest
    (process,) = manifest.launch
    assert process.argv == [
        "<environment>/bin/python",
        "-m",
        "x",
        "data=<run>/train.parquet",
        "--api-key",
        "<secret>",
        "--port=8000",
        "--ip",
        "<address>",
    ]
    assert process.env == {"RAY_TOKEN": "<secret>", "PYTHONPATH": "<path>/code:<run>:<path>/x", "TOKENIZERS_PARALLELISM": "false"}
    assert manifest.native == {"output_dir": "<run>/native", "hub_token": "<secret>", "eos_token": "<|end|>", "lr": 1e-6}
    assert (manifest.host["hostname"], manifest.host["boot_id"], manifest.devices[0]["uuid"]) == ("<host>", "<boot 1>", "<device 1>")
    assert manifest.failure.message == "no file <path>/w.bin on <host>"
    assert manifest.environment.packages == {"trl": "1.16.0", "odd": "1.2.3.4"}
    fact = next(row.value for row in published.facts.itertuples() if row.name == "where")
    assert json.loads(fact) == {"host": "<host>", "cwd": "<path>/run", "pair": ["x", "<path>/z"]}


def test_provenance_is_kept(original, published):
    assert published.manifest.versions == original.manifest.versions
    assert published.manifest.times == original.manifest.times
    assert published.manifest.host["cpu_model"] == "Synthetic CPU"
    publication = json.loads((published.path / "publication.json").read_text())
    assert publication["command"] == "rlmbench run gsm8k_grpo --framework trl --scale tiny --set model.path=<path>/model"


def test_every_figure_is_the_same(original, published):
    kept, again = original.summary, published.summary
    assert {**again, "path": ""} == {**json.loads(json.dumps(kept).replace(HOST, "<host>")), "path": "", "failure": again["failure"]}
    assert summarize(published).throughput == summarize(original).throughput
    for name in TABLE_NAMES:
        ours, theirs = getattr(published.tables, name), getattr(original.tables, name)
        assert list(ours.dtypes) == list(theirs.dtypes)
        numbers = [column for column in theirs if pd.api.types.is_numeric_dtype(theirs[column])]
        pd.testing.assert_frame_equal(ours[numbers], theirs[numbers])


def test_they_compare_equal(original, published):
    """In the same place in a comparison, number for number."""
    compared = [compare([evidence_of(run, summarized(run))] * 2).model_dump(mode="json") for run in (original, published)]
    for comparison in compared:
        for one in comparison["configurations"]:
            for run in one["runs"]:
                run["path"] = run["failure"] = ""
    assert compared[0] == compared[1]


def test_its_page_names_nothing_either(published, tmp_path, monkeypatch):
    monkeypatch.setattr(vega, "runtime", lambda: "window.vegaEmbed=null;")  # the real one takes seconds to bundle
    assert main(["report", str(published.path), "-o", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert [leak for leak in LEAKS if leak in page] == []


def test_publishing_again_gives_the_same_bytes(original, published, tmp_path):
    assert main(["publish", str(original.path), "-o", str(tmp_path)]) == 0
    for path in published.path.iterdir():
        assert (tmp_path / "gsm8k_grpo" / "one" / path.name).read_bytes() == path.read_bytes()


def test_two_hosts_stay_two():
    scrubber = Scrubber()
    for name in ("first.example", "second.example"):
        scrubber.host(name)
    first, second, again = (scrubber.text(f"on {name}.example") for name in ("first", "second", "first"))
    assert first == again != second


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1,169 tokens/s and 3/4", "1,169 tokens/s and 3/4"),
        ("https://example.org/a/b", "https://example.org/a/b"),
        ("/dev/shm/x", "/dev/shm/x"),
        ("a=/srv/x/y,b", "a=<path>/y,b"),
        ("/srv/v/lib/python3.11/site-packages/ray/worker.py", "<path>/site-packages/ray/worker.py"),
        ("http://me:pass@host.example/x", "http://<secret>@host.example/x"),
        ("/home/someone", "<home>"),
        ("/data", "<path>/data"),
        (
            "cwd=/data, '/models' /data:/scratch_2 (/data). /data/",
            "cwd=<path>/data, '<path>/models' <path>/data:<path>/scratch_2 (<path>/data). <path>/data",
        ),
        ("-I/mnt/lab/include and -L/models", "-I<path>/include and -L<path>/models"),
        (
            "and/or 3 /4 </think> a-b/c //x /dev /proc tokens/s runs/exp-a/out/x",
            "and/or 3 /4 </think> a-b/c //x /dev /proc tokens/s runs/exp-a/out/x",
        ),
        ("127.0.0.1:80 and 192.168.0.7:80", "127.0.0.1:80 and <address>:80"),
        ("fe80::1", "<address>"),
        ("[2001:db8::1:7]:6379 and fe80::a1: refused", "[<address>]:6379 and <address>: refused"),
        ("at 12:30:01 std::bad_alloc c10::Error on [::1]:80", "at 12:30:01 std::bad_alloc c10::Error on [::1]:80"),
        ("MIG-0a1b2c3d-0000-4000-8000-00000000000f is held", "<device> is held"),
    ],
)
def test_one_text(text, expected):
    assert Scrubber().text(text) == expected


def test_a_host_whose_name_is_a_word_of_records_changes_nothing(monkeypatch):
    """Replaced, a container called "worker" would take the roles of its processes with it; and `localhost` has no placeholder."""
    monkeypatch.setattr("socket.gethostname", lambda: "trl")
    monkeypatch.setattr("getpass.getuser", lambda: "ray")
    scrubber = Scrubber()
    for name in ("worker", "localhost", "atlas"):
        scrubber.host(name)
        scrubber.node(name, name)
    assert {word: scrubber.text(word) for word in ("worker", "trl", "ray", "localhost")} == {
        word: word for word in ("worker", "trl", "ray", "localhost")
    }
    assert scrubber.text("atlas") == "<host>"


def test_placeholders_stay_as_they_are_when_a_published_run_is_published(published, tmp_path):
    assert main(["publish", str(published.path), "-o", str(tmp_path)]) == 0
    again = rlmbench.load(tmp_path / "gsm8k_grpo" / "one").manifest
    assert (again.host, again.devices, again.launch) == (published.manifest.host, published.manifest.devices, published.manifest.launch)


def test_devices_of_tables_are_told_apart():
    scrubber = Scrubber()
    for uuid in ("MIG-1", "MIG-2"):
        scrubber.device(uuid)
    assert scrubber.text("MIG-2 is held") == "<device 2> is held"


def test_where_it_may_not_go(original, tmp_path, capsys):
    assert main(["publish", str(original.path), "-o", str(original.path.parents[1])]) == 2
    assert "the run one lies there itself" in capsys.readouterr().err
    raw = tmp_path / "gsm8k_grpo" / "one" / "manifest.json"
    raw.parent.mkdir(parents=True)
    raw.write_text("somebody's record")
    assert main(["publish", str(original.path), "-o", str(tmp_path)]) == 2
    assert "a run that was never published lies there" in capsys.readouterr().err
    assert raw.read_text() == "somebody's record"


def test_a_run_that_is_still_at_work_is_left_out(original, tmp_path, capsys):
    at_work = tmp_path / "results" / "gsm8k_grpo" / "two"
    shutil.copytree(original.path, at_work)
    manifest = json.loads((at_work / "manifest.json").read_text())
    changes = {"run_id": "two", "status": "running", "supervisor": Supervisor.current().model_dump()}
    (at_work / "manifest.json").write_text(json.dumps({**manifest, **changes}))
    assert main(["publish", str(at_work), str(original.path), "-o", str(tmp_path / "out")]) == 0
    assert "two: left out, as it is still running" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "out" / "gsm8k_grpo").iterdir()] == ["one"]
    assert main(["publish", str(at_work), "-o", str(tmp_path / "out")]) == 2
    assert "nothing to publish" in capsys.readouterr().err


@pytest.fixture
def with_damage(original, tmp_path):
    """Two runs, of which one can be damaged."""
    for name in ("one", "two"):
        shutil.copytree(original.path, tmp_path / "results" / "gsm8k_grpo" / name)
    manifest = tmp_path / "results" / "gsm8k_grpo" / "two" / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "run_id": "two"}))
    return tmp_path / "results"


@pytest.mark.parametrize("damaged", ["manifest.json", "plan.json"])
def test_a_damaged_run_is_left_out_and_the_others_are_published(with_damage, tmp_path, capsys, damaged):
    path = with_damage / "gsm8k_grpo" / "two" / damaged
    path.write_bytes(path.read_bytes()[:100])
    assert main(["publish", "gsm8k_grpo", "--results", str(with_damage), "-o", str(tmp_path / "out")]) == 1
    told = capsys.readouterr()
    assert told.err.startswith(f"left out: {path}: ") and told.err.count("\n") == 1
    assert "1 run, " in told.out
    assert [path.name for path in (tmp_path / "out" / "gsm8k_grpo").iterdir()] == ["one"]
    assert main(["publish", str(path.parent), "-o", str(tmp_path / "out")]) == 2  # nothing else to publish
    assert str(path) in capsys.readouterr().err


def test_damaged_figures_are_taken_again_and_published(with_damage, tmp_path, capsys):
    path = with_damage / "gsm8k_grpo" / "two" / "summary.json"
    path.write_bytes(path.read_bytes()[:100])
    assert main(["publish", "gsm8k_grpo", "--results", str(with_damage), "-o", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().err.startswith(f"warning: {path}: damaged (line ")
    kept = [json.loads((tmp_path / "out" / "gsm8k_grpo" / name / "summary.json").read_bytes()) for name in ("one", "two")]
    assert kept[0]["runs"][0]["steps"] == kept[1]["runs"][0]["steps"] and kept[0]["tables"] == kept[1]["tables"]


def test_where_all_are_damaged_each_is_named(with_damage, tmp_path, capsys):
    damaged = sorted(with_damage.glob("gsm8k_grpo/*/manifest.json"))
    for path in damaged:
        path.write_text("{")
    assert main(["publish", "gsm8k_grpo", "--results", str(with_damage), "-o", str(tmp_path / "out")]) == 2
    told = capsys.readouterr().err.splitlines()
    assert len(told) == len(damaged) == 2
    assert all(line.startswith(f"error: {path}: ") for line, path in zip(told, damaged, strict=True))


def test_a_damaged_campaign_is_left_out_and_its_runs_are_published(with_damage, tmp_path, capsys):
    for path in with_damage.glob("gsm8k_grpo/*/manifest.json"):
        path.write_text(json.dumps({**json.loads(path.read_text()), "campaign_id": "20261130-120000-000"}))
    campaign = with_damage / "gsm8k_grpo" / "campaigns" / "20261130-120000-000.json"
    campaign.parent.mkdir()
    campaign.write_text("{")
    assert main(["publish", "gsm8k_grpo", "--results", str(with_damage), "-o", str(tmp_path / "out"), "--json"]) == 1
    told = capsys.readouterr()
    (left_out,) = json.loads(told.out.splitlines()[-1])["left_out"]
    assert told.err == f"left out: {left_out}\n" and left_out.startswith(f"{campaign}: damaged campaign")
    assert sorted(path.name for path in (tmp_path / "out" / "gsm8k_grpo").iterdir()) == ["one", "two"]


def test_a_damaged_table_of_a_published_run_is_not_taken_for_empty(published, tmp_path):
    """It has no events to be derived from again. A table that is not there had no rows."""
    shutil.copytree(published.path, tmp_path / "copy")
    path = tmp_path / "copy" / "facts.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    for use in (lambda: read_tables(path.parent), lambda: evidence_of(rlmbench.load(path.parent), summarized(published))):
        with pytest.raises(UserError, match=r"facts.parquet: damaged, .* take another copy of this run"):
            use()


def test_a_later_schema_reads_what_an_older_one_published(published, tmp_path):
    """A published run has no events to derive its tables from: columns of now that it lacks are null, a table that it lacks is empty."""
    path = published.path / "spans.parquet"
    table = pq.read_table(path)
    older = table.drop_columns(["awaits"]).replace_schema_metadata({b"rlmbench_schema_version": b"1"})
    for file in published.path.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    pq.write_table(older, tmp_path / "spans.parquet")
    (tmp_path / "updates.parquet").unlink()
    tables = read_tables(tmp_path)
    assert len(tables.spans) == table.num_rows and tables.spans["awaits"].isna().all()
    assert len(tables.updates) == 0 and len(tables.samples) == len(published.samples)
