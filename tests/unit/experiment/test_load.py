"""Suite files: finding them, refusing wrong ones with file, line and nearest key."""

from __future__ import annotations

import copy
import json
from functools import cache
from pathlib import Path

import pytest
import yaml

from rlmbench.errors import UserError
from rlmbench.experiment import Experiment
from rlmbench.experiment.load import build_experiment, check_suite, find_suite, load_suite, suite_files
from rlmbench.experiment.problems import key_paths, validate

SUITE = """\
name: mine
title: A suite
description: For tests.
sources: [nowhere]
experiment:
  model: {shape: tiny, dtype: float32}
  workload:
    prompts_per_step: 8
    max_prompt_tokens: 160
    max_response_tokens: 64
  optimization:
    algorithm: grpo
    group_size: 4
    mini_batch_samples: 16
    micro_batch_samples: 8
  measurement: {steps: 5}
scales:
  tiny:
    devices: 0
  base:
    devices: 8
    experiment:
      optimization:
        micro_batch_samples: 2
      parallelism:
        data: 8
"""


@pytest.fixture
def suite_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mine.yaml"
    path.write_text(SUITE)
    return path


def problems_after(path: Path, old: str, new: str) -> list[str]:
    """The problems of the test suite with one piece of its text replaced."""
    assert SUITE.count(old) == 1
    path.write_text(SUITE.replace(old, new))
    suite, problems = check_suite(path)
    assert suite is None
    return problems


def test_a_right_suite_loads_and_scales_are_laid_over_the_base(suite_file: Path) -> None:
    suite = load_suite(suite_file)
    assert suite.experiment_at("tiny").optimization.micro_batch_samples == 8
    base = suite.experiment_at("base")
    assert (base.optimization.micro_batch_samples, base.optimization.mini_batch_samples, base.devices) == (2, 16, 8)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "    group_size: 4",
            "    grup_size: 4",
            ["mine.yaml:13: experiment.optimization.grup_size: unknown key (did you mean 'group_size'?)"],
        ),
        ("title: A suite", "titel: A suite", ["mine.yaml:1: title: is required, but missing", "mine.yaml:2: titel: unknown key (did you mean 'title'?)"]),
        ("    group_size: 4", "    group_size: four", ['mine.yaml:13: experiment.optimization.group_size: should be a valid integer, not "four"']),
        ("    group_size: 4", '    group_size: "4"', ['mine.yaml:13: experiment.optimization.group_size: should be a valid integer, not "4"']),
        ("{steps: 5}", "{steps: yes}", ["mine.yaml:16: experiment.measurement.steps: should be a valid integer, not true"]),
        ("{steps: 5}", "{steps: -5}", ["mine.yaml:16: experiment.measurement.steps: should be greater than 0, not -5"]),
        (
            "    algorithm: grpo",
            "    algorithm: gprp",
            ["mine.yaml:12: experiment.optimization.algorithm: \"gprp\" is not one of grpo, rloo, ppo, reinforce_pp, remax (did you mean 'grpo'?)"],
        ),
        (
            "dtype: float32",
            "dtype: flot32",
            ["mine.yaml:6: experiment.model.dtype: \"flot32\" is not one of bfloat16, float32 (did you mean 'float32'?)"],
        ),
        (
            "    micro_batch_samples: 8",
            "    clip_high: .inf",
            ["mine.yaml:15: experiment.optimization.clip_high: .inf is not a finite number"],
        ),
        ("  tiny:\n", "  tny:\n", ["mine.yaml:18: scales.tny: \"tny\" is not one of tiny, small, base, large (did you mean 'tiny'?)"]),
        ("    devices: 8", "    devces: 8", [
            "mine.yaml:20: scales.base.devices: is required, but missing",
            "mine.yaml:21: scales.base.devces: unknown key (did you mean 'devices'?)",
        ]),
        ("        data: 8", "        dta: 8", ["mine.yaml:26: scales.base.experiment.parallelism.dta: unknown key (did you mean 'data'?)"]),
        (
            "        data: 8",
            "        group_size: 8",
            ["mine.yaml:26: scales.base.experiment.parallelism.group_size: unknown key (did you mean 'optimization.group_size'?)"],
        ),
        (
            "    max_prompt_tokens: 160\n",
            "",
            [
                # Nobody gives it, in neither scale: the section that lacks it is the place.
                "mine.yaml:7: experiment.workload.max_prompt_tokens: is required, but missing",
            ],
        ),
        (
            "        micro_batch_samples: 2",
            "        micro_batch_samples: 3",
            [
                "mine.yaml:22: scales.base.experiment: optimization.micro_batch_samples x parallelism.data (3 x 8 = 24) must divide mini_batch_samples (16)"
            ],
        ),
        ("shape: tiny, ", "", ["mine.yaml:6: experiment.model: give exactly one of shape, hub, path (given: none)"]),
        ("    devices: 8", "    devices: 16", ["mine.yaml:21: scales.base.devices: 16, but the experiment is split over 8"]),
        ("  measurement: {steps: 5}", "  measurement:", ["mine.yaml:16: experiment.measurement: should be a mapping of keys, not null"]),
        ("name: mine", "name: My Suite", ["mine.yaml:1: name: String should match pattern '^[a-z0-9_]+$', not \"My Suite\""]),
        ("    group_size: 4", "    group_size: 4\n    group_size: 8", [
            "mine.yaml:14: experiment.optimization.group_size: given twice (first on line 13)"
        ]),
    ],
)  # fmt: skip
def test_each_mistake_is_one_line_with_place_and_fix(suite_file: Path, old: str, new: str, expected: list[str]) -> None:
    assert problems_after(suite_file, old, new) == expected


def replay(lengths: str) -> str:
    return f"    max_response_tokens: 64\n    replay:\n      lengths: {lengths}"


@pytest.mark.parametrize(
    ("lengths", "place", "message"),
    [
        (
            "{kind: lognrmal, p50_tokens: 8, p99_tokens: 9}",
            ".kind",
            "\"lognrmal\" is not one of fixed, lognormal, trace (did you mean 'lognormal'?)",
        ),
        ("{knd: fixed, tokens: 8}", ".knd", "unknown key (did you mean 'kind'?)"),
        ("{tokens: 8}", ".kind", "is required, but missing"),
        ("{kind: fixed, tokens: 8, p50_tokens: 8}", ".p50_tokens", "is not a key of this kind; its keys are kind, tokens"),
        ("{kind: lognormal, p50_tokens: 8}", ".p99_tokens", "is required, but missing"),
        ("{kind: lognormal, p50_tokens: 8, p99_tokens: 4}", "", "p99_tokens must be at least p50_tokens"),
    ],
)
def test_alternatives_are_told_apart_by_kind(suite_file: Path, lengths: str, place: str, message: str) -> None:
    problems = problems_after(suite_file, "    max_response_tokens: 64", replay(lengths))
    assert problems == [f"mine.yaml:12: experiment.workload.replay.lengths{place}: {message}"]


def test_all_problems_are_found_and_loading_names_the_first(suite_file: Path) -> None:
    suite_file.write_text(SUITE.replace("group_size", "grup_size").replace("data: 8", "dta: 8"))
    with pytest.raises(UserError) as caught:
        load_suite(suite_file)
    first = "mine.yaml:13: experiment.optimization.grup_size: unknown key (did you mean 'group_size'?)"
    assert str(caught.value) == f"{first} (and 1 more: rlmbench suites validate mine.yaml)"


HOSTILE = {
    "python object": (
        b"name: !!python/object/apply:os.system ['touch /tmp/x']",
        ":1: name: tag !!python/object/apply:os.system is not allowed",
    ),
    "python name": (b"a: 1\nb: !!python/name:os.system", ":2: b: tag !!python/name:os.system is not allowed"),
    "binary": (b"name: !!binary aGk=", ":1: name: tag !!binary is not allowed"),
    "set": (b"name: !!set {a, b}", ":1: name: tag !!set is not allowed"),
    "own tag": (b"name: !suite x", ":1: name: tag !suite is not allowed"),
    "wrong tag": (b"name: !!int x", ":1: name: 'x' is not a valid int"),
    "tabs": (b"name: x\nexperiment:\n\tmodel: 1", ":3: not valid YAML: indent with spaces, not tabs"),
    "empty": (b"", ": is empty"),
    "only comments": (b"# nothing\n", ": is empty"),
    "list": (b"- name: x", ":1: a suite is a mapping of keys (name, title, ...), not a list"),
    "text": (b"just words", ":1: a suite is a mapping of keys (name, title, ...), not plain text"),
    "number": (b"7", ":1: a suite is a mapping of keys (name, title, ...), not a single value"),
    "latin-1": (b"name: x\ntitle: caf\xe9", ":2: not UTF-8 text (byte 0xe9); save the file as UTF-8"),
    "utf-16": ("name: x".encode("utf-16"), ":1: not UTF-8 text (byte 0xff); save the file as UTF-8"),
    "control character": (b"name: x\ntitle: a\x07b", ":2: not valid YAML: character U+0007 is not allowed"),
    "open bracket": (b"name: x\nsources: [a, b", ":2: not valid YAML: expected ',' or ']', but got '<stream end>'"),
    "two documents": (b"name: x\n---\nname: y", ":2: not valid YAML: but found another document"),
    "unknown alias": (b"name: *nobody", ":1: not valid YAML: found undefined alias 'nobody'"),
    "merge key": (b"base: &b {x: 1}\nname:\n  <<: *b", ":3: name: merge keys (<<) are not supported"),
    "number as key": (b"1: x", ":1: a key must be text; put it in quotes"),
    "mapping as key": (b"? {a: 1}\n: x", ":1: a key must be text; put it in quotes"),
    "alias in itself": (b"name: &a\n  b: *a", ": nested deeper than 32 levels"),
    "deep nesting": (b"[" * 5000, ":1: not valid YAML: nested deeper than 32 levels"),
    "huge": (b"#" * 1_000_001, ": larger than 1000000 bytes"),
    "long number": (b"name: " + b"9" * 5000, "is not a valid int"),
    "alias bomb": (
        b"a: &a [x, x, x, x, x, x, x, x, x]\n"
        + b"".join(b"%c: &%c [%s]\n" % (c, c, b", ".join([b"*%c" % (c - 1)] * 9)) for c in range(ord("b"), ord("k"))),
        "more than 20000 values: aliases (*name) repeat too much",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    content, expected = HOSTILE[name]
    path = tmp_path / "bad.yaml"
    path.write_bytes(content)
    suite, problems = check_suite(path)
    assert suite is None and len(problems) == 1
    assert problems[0].startswith("bad.yaml:") and expected in problems[0] and "\n" not in problems[0]


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    assert check_suite(tmp_path / "gone.yaml")[1] == [f"{tmp_path}/gone.yaml: cannot be read: No such file or directory"]


def test_exponents_without_a_point_are_numbers(suite_file: Path) -> None:
    suite_file.write_text(SUITE.replace("    group_size: 4", "    group_size: 4\n    learning_rate: 5e-6"))
    assert load_suite(suite_file).experiment_at("tiny").optimization.learning_rate == 5e-6


@pytest.mark.parametrize("spelling", ["mine", "suites/mine", "suites/mine.yaml", "./suites/mine"])
def test_a_suite_is_found_by_name_and_by_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelling: str) -> None:
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "mine.yaml").write_text(SUITE)
    monkeypatch.chdir(tmp_path)
    assert find_suite(spelling).resolve() == tmp_path / "suites" / "mine.yaml"
    assert load_suite(spelling).name == "mine"


def test_the_suite_of_the_working_directory_comes_before_the_shipped_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "gsm8k_grpo.yaml").write_text(SUITE)
    monkeypatch.chdir(tmp_path)
    assert find_suite("gsm8k_grpo").parent == tmp_path / "suites"
    assert "gsm8k_ppo" in suite_files()


def test_shipped_suites_are_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert (
        load_suite("gsm8k_grpo").name == load_suite("suites/gsm8k_grpo").name == load_suite("suites/gsm8k_grpo.yaml").name == "gsm8k_grpo"
    )


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("gsm8k_gpro", "gsm8k_gpro: no such suite (did you mean 'gsm8k_grpo'?); known suites: "),
        ("elsewhere/gsm8k_pp.yaml", "elsewhere/gsm8k_pp.yaml: no such suite (did you mean 'gsm8k_ppo'?)"),
        ("folder", "folder: is a folder, not a suite file"),
        ("", ": no such suite; known suites: "),
    ],
)
def test_an_unknown_suite_names_the_nearest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str, expected: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError) as caught:
        find_suite(asked)
    assert str(caught.value).startswith(expected) and "\n" not in str(caught.value)


def typos(word: str) -> set[str]:
    """Words one slip away: any one letter lost, and in the middle one doubled, replaced, or swapped with the next."""
    i = len(word) // 2
    lost = {word[:at] + word[at + 1 :] for at in range(len(word))}
    return (lost | {word[:i] + word[i - 1 :], word[:i] + "z" + word[i + 1 :], word[: i - 1] + word[i] + word[i - 1] + word[i + 1 :]}) - {
        word
    }


@cache
def complete(kind: str) -> dict:
    """An experiment that gives every section; response lengths of `kind`."""
    data = yaml.safe_load(SUITE)["experiment"]
    lengths = {"fixed": {"tokens": 8}, "lognormal": {"p50_tokens": 8, "p99_tokens": 9}, "trace": {"path": "lengths.txt"}}[kind]
    data["workload"]["replay"] = {"lengths": {"kind": kind, **lengths}, "pass_rate": 0.5}
    data["optimization"] |= {"algorithm": "ppo", "critic": {}}
    experiment, problems = validate(Experiment, data)
    assert experiment is not None, problems
    return experiment.model_dump(mode="json")


def mapping_at(data: dict, path: tuple) -> dict:
    for key in path:
        data = data[key]
    return data


def test_every_key_of_the_model_is_guessed_from_every_slip() -> None:
    tried, paths = 0, key_paths(Experiment)
    for path in paths:
        kinds = [kind for kind in ("fixed", "lognormal", "trace") if path[-1] in mapping_at(complete(kind), path[:-1])]
        assert kinds, path
        data = copy.deepcopy(complete(kinds[0]))
        section = mapping_at(data, path[:-1])
        siblings = {other[-1] for other in paths if other[:-1] == path[:-1]} - {path[-1]}
        ambiguous = siblings | {word for sibling in siblings for word in typos(sibling)}
        held = section.pop(path[-1])
        for typo in typos(path[-1]) - ambiguous:
            section[typo] = held
            _, problems = validate(Experiment, data)
            del section[typo]
            found = [problem.message for problem in problems if problem.path == (*path[:-1], typo)]
            assert found == [f"unknown key (did you mean {path[-1]!r}?)"], (path, typo, problems)
            tried += 1
    assert tried > 1000


def test_key_paths_are_those_of_the_json_schema() -> None:
    definitions = Experiment.model_json_schema()["$defs"]
    keys = [name for definition in definitions.values() for name in definition.get("properties", {})] + list(Experiment.model_fields)
    assert len(key_paths(Experiment)) == len(keys) - 2  # `kind` stands once, for three alternatives
    assert json.dumps(sorted({path[-1] for path in key_paths(Experiment)})) == json.dumps(sorted(set(keys)))


SWEEP = (
    SUITE
    + """\
sweep:
  short: {workload: {max_response_tokens: 16}}
"""
)


def test_a_variant_is_laid_over_its_scale_and_settings_over_the_variant(suite_file: Path) -> None:
    suite_file.write_text(SWEEP.replace("  tiny:\n", "  tiny:\n    sweep: {short: {workload: {max_prompt_tokens: 99}}, long: {}}\n"))
    suite = load_suite(suite_file)
    assert list(suite.variants_at("tiny")) == ["short", "long"] and list(suite.variants_at("base")) == ["short"]
    short = build_experiment(suite, "tiny", variant="short").workload
    assert (short.max_response_tokens, short.max_prompt_tokens) == (16, 99)
    assert build_experiment(suite, "tiny", ["workload.max_response_tokens=8"], "short").workload.max_response_tokens == 8
    assert build_experiment(suite, "tiny", variant="long") == build_experiment(suite, "tiny")


def test_a_mistake_in_a_variant_is_named_with_its_line(suite_file: Path) -> None:
    suite_file.write_text(SWEEP.replace("max_response_tokens: 16", "max_respons_tokens: 16"))
    lines = len(SWEEP.splitlines())
    with pytest.raises(UserError) as caught:
        load_suite(suite_file)
    assert str(caught.value).startswith(
        f"mine.yaml:{lines}: sweep.short.workload.max_respons_tokens: unknown key (did you mean 'max_response_tokens'?)"
    )
