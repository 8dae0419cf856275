"""Make a run's inputs ready: the model's folder and the workload plan.

A tokenizer is only as trustworthy as the library that reloads it, so prompts are tokenized by the interpreter that
will train on them (`prepare.py`, in a child process). What that costs is paid once: models are cached by what they
are made of, token ids by tokenizer, questions and library versions.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

from rlmbench.errors import EnvironmentFailure, UserError
from rlmbench.experiment import Experiment, Model, Prompts
from rlmbench.files import write_atomically
from rlmbench.workload import generated
from rlmbench.workload.plan import TokenizedPrompt, draw_plan, write_plan
from rlmbench.workload.prompts import Problem, load_problems, parse_records
from rlmbench.workload.shapes import Shape, find_shape

PREPARE = Path(__file__).with_name("prepare.py")
CORPUS_PROBLEMS = 1024
"""Generated problems that a built model's tokenizer is trained on."""
TOKENIZER_FILES = ("config.json", "tokenizer*", "special_tokens_map.json", "chat_template*", "added_tokens.json", "vocab*", "merges.txt")
SIGN_OF_LIFE_S = 3.0

Progress = Callable[[str], None]


def prepare_inputs(
    experiment: Experiment, python: Path, cache_dir: Path, run_dir: Path, progress: Progress | None = None
) -> tuple[Path, Path]:
    """The folder with the model of `experiment`, and the plan that was drawn for it.

    `python` is the interpreter of the framework's environment. A model given by shape is built below `cache_dir`, a
    local one is used where it lies, one of the hub in the hub's own cache. The plan is ``run_dir/plan.json``, the
    child's output ``run_dir/logs/prepare.log``. `progress` gets a line at every stage, and at least every 3 s.

    Raises:
        UserError: an input is missing or wrong, or the child failed; the message quotes its error.
        EnvironmentFailure: `python` is not an interpreter with transformers and tokenizers.
    """
    tell = progress or (lambda _: None)
    model, workload = experiment.model, experiment.workload
    versions = library_versions(python)
    problems = None if workload.prompts.source == "hub" else load_problems(workload.prompts)
    shape = find_shape(model.shape) if model.shape else None
    build = _build_request(shape, model) if shape else None
    model_dir = _model_dir(model, build, cache_dir)

    def run_locked() -> dict[str, Any]:
        name = _digest(str(model_dir or model.hub))
        with _lock(cache_dir, name, tell):
            work = cache_dir.absolute() / "tmp" / name
            return _run_prepare(
                python, model, shape, build, model_dir, workload.prompts, problems, work, run_dir / "logs" / "prepare.log", tell
            )

    if problems is None or model_dir is None:
        # What comes from the hub may change there, so the library is asked every time; it has its own cache.
        output = run_locked()
    else:
        identity = _digest(build) if build else _folder_digest(model_dir)
        key = _digest([identity, versions, [problem.question for problem in problems], PREPARE.read_text(encoding="utf-8")])
        cached = cache_dir / "prompts" / f"{key}.json"
        if not (model_dir.is_dir() and cached.is_file()):
            write_atomically(cached, json.dumps(run_locked()["prompt_ids"]).encode())
        output = {"model_dir": str(model_dir), "prompt_ids": json.loads(cached.read_text(encoding="utf-8"))}
    if problems is None:
        numbered = enumerate(output["records"], start=1)
        problems = parse_records(numbered, count=workload.prompts.count, place=str(workload.prompts.hub))
    prompts = [
        TokenizedPrompt(number, problem.question, problem.answer, tuple(ids))
        for number, (problem, ids) in enumerate(zip(problems, output["prompt_ids"], strict=True))
    ]
    plan_path = run_dir / "plan.json"
    write_plan(draw_plan(experiment, prompts), plan_path)
    return Path(output["model_dir"]), plan_path


def prepare_without_model(experiment: Experiment, run_dir: Path) -> tuple[Path, Path]:
    """The plan of `experiment` for what only simulates a framework: no model, and a token for each word of a prompt.

    The folder that stands for the model is empty. An id is the first 2 bytes of sha256 over the word.

    Raises:
        UserError: prompts of the hub, which need a framework's libraries; or as for `prepare_inputs`.
    """
    prompts = experiment.workload.prompts
    if prompts.source == "hub":
        raise UserError("workload.prompts.source: a simulated run has no library to ask the hub; take generated or file")
    tokenized = [
        TokenizedPrompt(number, problem.question, problem.answer, tuple(map(_word_id, problem.question.split())))
        for number, problem in enumerate(load_problems(prompts))
    ]
    model_dir, plan_path = run_dir / "scratch" / "model", run_dir / "plan.json"
    model_dir.mkdir(parents=True, exist_ok=True)
    write_plan(draw_plan(experiment, tokenized), plan_path)
    return model_dir, plan_path


def _word_id(word: str) -> int:
    return int.from_bytes(sha256(word.encode()).digest()[:2], "big")


def library_versions(python: Path) -> dict[str, str]:
    """Versions of the libraries that decide token ids, as `python` has them.

    Raises:
        EnvironmentFailure: `python` does not run, or lacks one of them.
    """
    code = "import importlib.metadata as m; print(*(m.version(p) for p in ('transformers', 'tokenizers', 'jinja2')))"
    try:
        done = subprocess.run([str(python), "-c", code], capture_output=True, text=True, timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentFailure(f"cannot run the interpreter {python}: {getattr(error, 'strerror', None) or error}") from error
    if done.returncode:
        reason = quoted_error(done.stderr) or " ".join(done.stderr.split())[-200:] or f"exit code {done.returncode}"
        raise EnvironmentFailure(f"{python} cannot prepare a model: {reason}")
    return dict(zip(("transformers", "tokenizers", "jinja2"), done.stdout.split(), strict=True))


def quoted_error(log: str) -> str | None:
    """What ended the child, by its log: a line of prepare.py's own, else the exception that was not caught, else None."""
    own = re.findall(r"^error: (.+)$", log, re.MULTILINE)
    raised = re.findall(r"^Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(\S.*)$", log, re.MULTILINE)
    found = own or raised
    return found[-1].strip() if found else None


def _build_request(shape: Shape, model: Model) -> dict[str, Any]:
    """What the child builds, complete: equal requests give equal models, so its digest names the model in the cache."""
    return {
        "config": shape.config(model.dtype),
        "dtype": model.dtype,
        "seed": model.weights_seed,
        "tensors": [list(tensor) for tensor in shape.tensors()],
        "corpus": [f"{problem.question}\n{problem.solution}" for problem in islice(generated.problems(0), CORPUS_PROBLEMS)],
    }


def _model_dir(model: Model, build: dict[str, Any] | None, cache_dir: Path) -> Path | None:
    """Where the model is or will be; None for the hub, which decides that itself."""
    if build:
        key = _digest([build, PREPARE.read_text(encoding="utf-8")])
        return (cache_dir / "models" / f"{model.shape}-{key}").absolute()
    if model.path:
        folder = Path(model.path).expanduser().absolute()
        if not (folder / "config.json").is_file():
            raise UserError(
                f"model.path: no model in {folder}: there is no config.json; give the folder that holds config, weights and tokenizer"
            )
        return folder
    return None


def _run_prepare(
    python: Path,
    model: Model,
    shape: Shape | None,
    build: dict[str, Any] | None,
    model_dir: Path | None,
    prompts: Prompts,
    problems: list[Problem] | None,
    work: Path,
    log_path: Path,
    tell: Progress,
) -> dict[str, Any]:
    """Run prepare.py in the folder `work`, which is removed; its output, with the built model moved to `model_dir`."""
    missing = model_dir if build and model_dir and not model_dir.exists() else None
    shutil.rmtree(work, ignore_errors=True)  # a killed run may have left one
    work.mkdir(parents=True)
    try:
        if missing and shape:
            _check_space(work, shape.weight_bytes(model.dtype))
        request = {
            "build": build if missing else None,
            "model": {"dir": str(work / "model" if missing else model_dir), "vocab_size": shape and shape.vocab_size}
            if model_dir
            else {"hub": model.hub},
            "problems": {"questions": [problem.question for problem in problems]}
            if problems is not None
            else {"hub": prompts.hub, "split": prompts.split, "count": prompts.count},
        }
        (work / "request.json").write_text(json.dumps(request), encoding="utf-8")
        offline = not model.hub and prompts.source != "hub"
        _run_child([str(python), str(PREPARE), str(work / "request.json"), str(work / "output.json")], offline, log_path, tell)
        output = json.loads((work / "output.json").read_text(encoding="utf-8"))
        if missing:
            missing.parent.mkdir(parents=True, exist_ok=True)
            os.replace(work / "model", missing)
            output["model_dir"] = str(missing)
        return output
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _run_child(argv: list[str], offline: bool, log_path: Path, tell: Progress) -> None:
    log_path.parent.mkdir(parents=True, exist_ok=True)
    with log_path.open("wb") as log:
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=_child_environment(offline))
        try:
            _follow(child, log_path, tell)
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
    if child.returncode:
        text = log_path.read_text(encoding="utf-8", errors="replace")
        how = f"signal {signal.Signals(-child.returncode).name}" if child.returncode < 0 else f"exit code {child.returncode}"
        raise UserError(f"the inputs could not be prepared: {quoted_error(text) or how} (log: {log_path})")


def _child_environment(offline: bool) -> Mapping[str, str]:
    settings = {
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "TRANSFORMERS_VERBOSITY": "error",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }
    if offline:
        settings["HF_HUB_OFFLINE"] = "1"
    return {**os.environ, **settings}


def _follow(child: subprocess.Popen[bytes], log_path: Path, tell: Progress) -> None:
    """Pass the child's progress on until it ends."""
    started = told = time.monotonic()
    said = "starting the framework's interpreter"
    tell(said)
    while child.poll() is None:
        time.sleep(0.05)
        lines = [line for line in log_path.read_text(encoding="utf-8", errors="replace").splitlines() if line.startswith("progress: ")]
        now = time.monotonic()
        if lines and lines[-1] != f"progress: {said}":
            said, told = lines[-1].removeprefix("progress: "), now
            tell(said)
        elif now - told >= SIGN_OF_LIFE_S:
            told = now
            tell(f"{said} ({now - started:.0f} s)")


@contextmanager
def _lock(cache_dir: Path, name: str, tell: Progress) -> Iterator[None]:
    """Hold the lock called `name`, telling about the wait."""
    from filelock import FileLock, Timeout

    folder = cache_dir / "locks"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot write to the cache folder {cache_dir}: {error.strerror}") from error
    lock = FileLock(folder / f"{name}.lock")
    while True:
        try:
            lock.acquire(timeout=SIGN_OF_LIFE_S)
            break
        except Timeout:
            tell("waiting for another process that prepares the same model")
    try:
        yield
    finally:
        lock.release()


def _check_space(folder: Path, weight_bytes: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < 1.02 * weight_bytes:
        raise UserError(f"the model's weights take {weight_bytes / 1e9:.1f} GB, but {folder} has {free / 1e9:.1f} GB free: make room there")


def _folder_digest(folder: Path) -> str:
    """Digest of the files that decide token ids."""
    files = sorted({path for pattern in TOKENIZER_FILES for path in folder.glob(pattern) if path.is_file()})
    return _digest([[path.name, sha256(path.read_bytes()).hexdigest()] for path in files])


def _digest(content: Any) -> str:
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
