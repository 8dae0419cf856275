import json
from pathlib import Path

import pytest

from rlmbench.errors import UserError
from rlmbench.experiment import Prompts
from rlmbench.workload.prompts import Problem, load_problems, parse_records

GOOD = {"question": "What is 40 + 32?", "answer": "40+32 = <<40+32=72>>72\n#### 72"}


def file_prompts(path: Path, lines: list[str], **settings) -> Prompts:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return Prompts(source="file", path=str(path), **settings)


def test_generated_default_and_count() -> None:
    assert len(load_problems(Prompts())) == 1024
    assert load_problems(Prompts(count=5)) == load_problems(Prompts())[:5]
    assert load_problems(Prompts(count=5, seed=1)) != load_problems(Prompts(count=5))


def test_file_gives_final_answers(tmp_path: Path) -> None:
    big = {"question": "How many?", "answer": "a lot\n#### 1,000"}
    prompts = file_prompts(tmp_path / "p.jsonl", [json.dumps(GOOD), "", json.dumps(big)])
    assert load_problems(prompts) == [Problem("What is 40 + 32?", "72"), Problem("How many?", "1000")]


def test_count_stops_before_later_records(tmp_path: Path) -> None:
    assert len(load_problems(file_prompts(tmp_path / "p.jsonl", [json.dumps(GOOD), "{"], count=1))) == 1


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "not JSON"),
        ("[1]", "expected an object with `question` and `answer`, found list"),
        (json.dumps({"answer": "#### 1"}), "`question` is missing"),
        (json.dumps({"question": "q", "answer": 72}), "`answer` is empty or not a text"),
        (json.dumps({"question": " ", "answer": "#### 1"}), "`question` is empty or not a text"),
        (json.dumps({"question": "q", "answer": "#### none"}), "`answer` gives no number"),
    ],
)
def test_bad_record_is_named_by_file_and_line(tmp_path: Path, line: str, complaint: str) -> None:
    prompts = file_prompts(tmp_path / "bad.jsonl", [json.dumps(GOOD), "", line])
    with pytest.raises(UserError) as caught:
        load_problems(prompts)
    assert str(caught.value).startswith(f"{tmp_path / 'bad.jsonl'}:3: {complaint}")
    assert "\n" not in str(caught.value)


def test_missing_short_and_empty_files(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read .*nowhere\.jsonl: No such file"):
        load_problems(Prompts(source="file", path=str(tmp_path / "nowhere.jsonl")))
    with pytest.raises(UserError, match=r"holds 1 problems, but workload\.prompts\.count is 2"):
        load_problems(file_prompts(tmp_path / "p.jsonl", [json.dumps(GOOD)], count=2))
    with pytest.raises(UserError, match="no problem in it"):
        load_problems(file_prompts(tmp_path / "empty.jsonl", [""]))
    (tmp_path / "latin.jsonl").write_bytes(b'{"question": "caf\xe9"}\n')
    with pytest.raises(UserError, match="is not UTF-8"):
        load_problems(Prompts(source="file", path=str(tmp_path / "latin.jsonl")))


def test_records_of_a_data_set_are_named_by_row() -> None:
    with pytest.raises(UserError, match=r"^openai/gsm8k:2: `answer` is missing"):
        parse_records(enumerate([GOOD, {"question": "q"}], start=1), count=None, place="openai/gsm8k")
