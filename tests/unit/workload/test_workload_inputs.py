import json
import sys
import threading
from pathlib import Path

import pytest

from rlmbench.errors import EnvironmentFailure, UserError
from rlmbench.experiment import Experiment, Prompts
from rlmbench.experiment.load import build_experiment, load_suite
from rlmbench.workload.inputs import library_versions, prepare_inputs, prepare_without_model, quoted_error
from rlmbench.workload.plan import read_plan

# Stands in for a framework's interpreter: knows versions, and does prepare.py's part without any library.
STUB = """
import json, os, sys, time
from pathlib import Path
here = Path(__file__).parent
if sys.argv[1] == "-c":
    print((here / "versions").read_text())
    sys.exit()
request = json.loads(Path(sys.argv[2]).read_text())
with (here / "calls").open("a") as calls:
    calls.write(json.dumps({"build": bool(request["build"]), "model": request["model"], "problems": list(request["problems"]),
                            "offline": os.environ.get("HF_HUB_OFFLINE"), "threads": os.environ.get("OMP_NUM_THREADS")}) + "\\n")
print("progress: building", flush=True)
BEHAVIOUR
if request["build"]:
    folder = Path(request["model"]["dir"])
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(request["build"]["config"]))
records = [{"question": f"question {n}", "answer": f"#### {n}"} for n in range(9)] if "hub" in request["problems"] else None
count = len(records) if records else len(request["problems"]["questions"])
Path(sys.argv[3]).write_text(json.dumps({"model_dir": request["model"].get("dir", "/from/the/hub"), "records": records,
                                         "versions": {}, "prompt_ids": [[1, 2, n] for n in range(count)]}))
"""


class Framework:
    """A stand-in interpreter in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.python = folder / "python"
        self.python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{folder}/stub.py" "$@"\n')
        self.python.chmod(0o755)
        self.behave("")
        self.version("5.24.0 0.23.3 3.1.6")

    def behave(self, code: str) -> None:
        """Run `code` in every later call, before the model is written."""
        (self.folder / "stub.py").write_text(STUB.replace("BEHAVIOUR", code))

    def version(self, text: str) -> None:
        (self.folder / "versions").write_text(text)

    @property
    def calls(self) -> list[dict]:
        path = self.folder / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture(autouse=True)
def small_corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlmbench.workload.inputs.CORPUS_PROBLEMS", 8)


@pytest.fixture
def framework(tmp_path: Path) -> Framework:
    return Framework(tmp_path / "framework")


def experiment(model: dict | None = None, prompts: dict | None = None) -> Experiment:
    return Experiment.model_validate(
        {
            "model": model or {"shape": "tiny"},
            "workload": {"prompts": prompts or {"count": 12}, "prompts_per_step": 4, "max_prompt_tokens": 10, "max_response_tokens": 8},
            "optimization": {"algorithm": "grpo", "group_size": 2, "mini_batch_samples": 8, "micro_batch_samples": 8},
            "measurement": {"steps": 2},
        }
    )


def test_model_is_built_once_and_found_again(framework: Framework, tmp_path: Path) -> None:
    cache, said = tmp_path / "cache", []
    model_dir, plan_path = prepare_inputs(experiment(), framework.python, cache, tmp_path / "run1", said.append)
    assert json.loads((model_dir / "config.json").read_text())["hidden_size"] == 128
    assert model_dir.parent == cache / "models" and plan_path == tmp_path / "run1" / "plan.json"
    assert len(read_plan(plan_path)["rows"]) == 8
    assert said[0] == "starting the framework's interpreter"
    assert "progress: building" in (tmp_path / "run1" / "logs" / "prepare.log").read_text()
    again, second_plan = prepare_inputs(experiment(), framework.python, cache, tmp_path / "run2")
    assert again == model_dir and second_plan.read_text() == plan_path.read_text()
    assert len(framework.calls) == 1
    assert (framework.calls[0]["offline"], framework.calls[0]["threads"]) == ("1", "1")
    assert list((cache / "tmp").iterdir()) == []


def test_what_changes_the_ids_is_not_taken_from_the_cache(framework: Framework, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first, _ = prepare_inputs(experiment(), framework.python, cache, tmp_path / "run")
    framework.version("5.19.0 0.23.3 3.1.6")
    second, _ = prepare_inputs(experiment(), framework.python, cache, tmp_path / "run")
    assert first == second and [call["build"] for call in framework.calls] == [True, False], "same model, tokenized again"
    assert framework.calls[1]["model"]["vocab_size"] == 1024, "and the reloaded tokenizer is checked again"
    prepare_inputs(experiment(prompts={"count": 13}), framework.python, cache, tmp_path / "run")
    assert [call["build"] for call in framework.calls] == [True, False, False]
    third, _ = prepare_inputs(experiment({"shape": "tiny", "weights_seed": 1}), framework.python, cache, tmp_path / "run")
    fourth, _ = prepare_inputs(experiment({"shape": "tiny", "dtype": "float32"}), framework.python, cache, tmp_path / "run")
    assert len({first, third, fourth}) == 3


def test_half_built_model_is_never_used(framework: Framework, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    framework.behave("Path(request['model']['dir']).mkdir(); os.kill(os.getpid(), 9)")
    with pytest.raises(UserError, match=r"could not be prepared: signal SIGKILL \(log: .*prepare\.log\)"):
        prepare_inputs(experiment(), framework.python, cache, tmp_path / "run")
    assert not (cache / "models").exists() and list((cache / "tmp").iterdir()) == []
    framework.behave("")
    model_dir, _ = prepare_inputs(experiment(), framework.python, cache, tmp_path / "run")
    assert (model_dir / "config.json").is_file()


def test_leftovers_of_a_killed_run_are_removed(framework: Framework, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    framework.behave("(Path(sys.argv[2]).parent.parent.parent / 'where').write_text(sys.argv[2])")
    prepare_inputs(experiment(), framework.python, cache, tmp_path / "run")
    work = Path((cache / "where").read_text()).parent
    for path in (cache / "models").iterdir():
        (path / "config.json").unlink()
        path.rmdir()
    (work / "model").mkdir(parents=True)
    (work / "model" / "half.safetensors").write_text("half")
    model_dir, _ = prepare_inputs(experiment(), framework.python, cache, tmp_path / "run")
    assert [path.name for path in model_dir.iterdir()] == ["config.json"]


def test_two_at_once_build_one_model(framework: Framework, tmp_path: Path) -> None:
    framework.behave("assert not list(here.glob('busy')); (here / 'busy').touch(); time.sleep(0.2); (here / 'busy').unlink()")
    results: list[Path] = []

    def work(number: int) -> None:
        results.append(prepare_inputs(experiment(), framework.python, tmp_path / "cache", tmp_path / f"run{number}")[0])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=300)
    assert len(results) == 2 and len(set(results)) == 1
    assert [call["build"] for call in framework.calls].count(True) == 1


def test_error_of_the_child_is_quoted(framework: Framework, tmp_path: Path) -> None:
    framework.behave("print('error: the tokenizer has no chat template', file=sys.stderr); sys.exit(2)")
    with pytest.raises(UserError, match="could not be prepared: the tokenizer has no chat template"):
        prepare_inputs(experiment(), framework.python, tmp_path / "cache", tmp_path / "run")
    framework.behave("{}['missing']")
    with pytest.raises(UserError, match="could not be prepared: KeyError: 'missing'"):
        prepare_inputs(experiment(), framework.python, tmp_path / "cache", tmp_path / "run")


def test_local_model_is_used_where_it_lies(framework: Framework, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    with pytest.raises(UserError, match=r"model\.path: no model in .*mine: there is no config\.json"):
        prepare_inputs(experiment({"path": str(folder)}), framework.python, tmp_path / "cache", tmp_path / "run")
    (folder / "config.json").write_text("{}")
    (folder / "tokenizer.json").write_text("{}")
    wanted = experiment({"path": str(folder)})
    for _ in range(2):
        assert prepare_inputs(wanted, framework.python, tmp_path / "cache", tmp_path / "run")[0] == folder
    assert framework.calls == [
        {"build": False, "model": {"dir": str(folder), "vocab_size": None}, "problems": ["questions"], "offline": "1", "threads": "1"}
    ]
    (folder / "tokenizer.json").write_text('{"changed": true}')
    prepare_inputs(wanted, framework.python, tmp_path / "cache", tmp_path / "run")
    assert len(framework.calls) == 2


def test_hub_is_asked_every_time_and_online(framework: Framework, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    wanted = experiment({"hub": "owner/model"}, {"source": "hub", "hub": "openai/gsm8k"})
    for _ in range(2):
        model_dir, plan_path = prepare_inputs(wanted, framework.python, tmp_path / "cache", tmp_path / "run")
    assert str(model_dir) == "/from/the/hub"
    assert {row["answer"] for row in read_plan(plan_path)["rows"]} <= {str(number) for number in range(9)}
    assert len(framework.calls) == 2
    assert framework.calls[0]["model"] == {"hub": "owner/model"} and framework.calls[0]["offline"] is None


def test_interpreter_that_cannot_prepare(framework: Framework, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailure, match="cannot run the interpreter .*nowhere: No such file"):
        prepare_inputs(experiment(), tmp_path / "nowhere", tmp_path / "cache", tmp_path / "run")
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    bare.chmod(0o755)
    with pytest.raises(EnvironmentFailure, match="No package metadata was found for transformers"):
        library_versions(bare)


def test_no_room_for_the_weights(framework: Framework, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rlmbench.workload import inputs

    usage = inputs.shutil.disk_usage("/")._replace(free=10**9)
    monkeypatch.setattr(inputs.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(UserError, match=r"weights take 61\.1 GB, but .* has 1\.0 GB free"):
        prepare_inputs(experiment({"shape": "qwen3-30b-a3b"}), framework.python, tmp_path / "cache", tmp_path / "run")
    assert framework.calls == []


def test_cache_that_cannot_be_written(framework: Framework, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot write to the cache folder"):
        prepare_inputs(experiment(), framework.python, tmp_path / "file" / "cache", tmp_path / "run")


def test_quoted_error_is_the_one_that_ended_the_child() -> None:
    cause = "Traceback (most recent call last):\n  File x\n    call()\nKeyError: 1\n\n"
    log = f"progress: x\n{cause}During handling of the above exception, another exception occurred:\n\n{cause.replace('KeyError: 1', 'a.b.OSError: gone')}"
    assert quoted_error(log) == "a.b.OSError: gone"
    assert quoted_error(log + "error: the cause\n") == "the cause"
    assert quoted_error("progress: fine\nValueError: only mentioned\n") is None


def test_a_simulated_run_has_a_plan_of_words_and_no_model(tmp_path):
    experiment = build_experiment(load_suite("gsm8k_grpo"), "tiny")
    model_dir, plan_path = prepare_without_model(experiment, tmp_path)
    assert list(model_dir.iterdir()) == []
    plan = read_plan(plan_path)
    assert [row["prompt_tokens"] for row in plan["rows"]] == [len(row["question"].split()) for row in plan["rows"]]
    hub = experiment.model_copy(
        update={"workload": experiment.workload.model_copy(update={"prompts": Prompts(source="hub", hub="openai/gsm8k")})}
    )
    with pytest.raises(UserError, match="no library to ask the hub"):
        prepare_without_model(hub, tmp_path)
