import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

from rlmbench.workload import verifier
from rlmbench.workload.verifier import extract, score

GSM8K = Path(__file__).resolve().parents[4] / "shared" / "data" / "gsm8k"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("#### 72", 72),
        ("####72", 72),
        ("so 3 + 4 = 7\n#### 7 apples\nThat was question 12.", 7),
        ("#### 5\nWait, no.\n#### 6", 6),
        ("#### $1,234,567.50.", Fraction("1234567.5")),
        ("#### -7", -7),
        ("#### \u22127", -7),
        ("#### -$5", -5),
        ("#### $-5", -5),
        ("#### \u20ac 12", 12),
        ("#### \u00a30.75", Fraction(3, 4)),
        ("#### 50%", 50),
        ("#### 0.5", Fraction(1, 2)),
        ("#### .5", Fraction(1, 2)),
        ("#### 1/2", Fraction(1, 2)),
        ("#### **18**", 18),
        ("#### 72.0", 72),
        ("\\boxed{72}", 72),
        ("first \\boxed{1}, then $\\boxed{2}$", 2),
        ("\\boxed{\\text{Total: } \\$1{,}200}", 1200),
        ("\\boxed{10\\,000}", 10_000),
        ("\\boxed{\\frac{3}{4}}", Fraction(3, 4)),
        ("\\boxed{-\\dfrac{6}{4}}", Fraction(-3, 2)),
        ("\\boxed{50\\%}", 50),
        ("\\boxed{x = {8}}", 8),
        ("\\boxed{42", 42),
        ("\\boxed{3} and more text with 9\n#### 4", 4),
        ("She had 3 apples and now has 12.", 12),
        ("The answer is 1,000.", 1000),
        ("2, 3, 5", 5),
        ("10-5", 5),
        ("(4)-3", 3),
        ("a loss of -15 dollars", -15),
        ("The total is $3.50.", Fraction(7, 2)),
        ("003", 3),
        ("#### ", None),
        ("5 apples\n####", None),
        ("5 apples\n#### none\n6", None),
        ("5 then \\boxed{\\text{none}}", None),
        ("no number", None),
        ("", None),
        ("5/0", None),
        ("9" * 5000, None),
        ("\\boxed{" * 2000, None),
    ],
)
def test_extract(text: str, number: int | Fraction | None) -> None:
    assert extract(text) == number


@pytest.mark.parametrize(
    ("response", "answer", "reward"),
    [
        ("#### 72", "72", 1.0),
        ("#### 1000", "1,000", 1.0),
        ("It is $72.00", "reasoning with 48 and 24\n#### 72", 1.0),
        ("#### 73", "72", 0.0),
        ("#### 2", "1/2", 0.0),
        ("#### 7", "-7", 0.0),
        ("#### 0.3333", "1/3", 0.0),
        ("", "72", 0.0),
        ("72", "no number at all", 0.0),
        ("nothing", "nothing", 0.0),
    ],
)
def test_score(response: str, answer: str, reward: float) -> None:
    assert score(response, answer) == reward


@pytest.mark.skipif(not GSM8K.is_dir(), reason="GSM8K is not beside the repository (../shared/data/gsm8k)")
def test_every_real_answer_is_understood() -> None:
    checked = 0
    for name in ("train.jsonl", "test.jsonl"):
        for line in (GSM8K / name).read_text(encoding="utf-8").splitlines():
            answer = json.loads(line)["answer"]
            plain = answer.rsplit("#### ", 1)[1]
            right = int(plain.replace(",", ""))
            assert extract(answer) == right, plain
            checked += 1
            if checked % 8 == 0:  # every form for a sample of them, to stay quick
                for form in (f"The answer is \\boxed{{{plain}}}.", f"Altogether that is ${plain}.", f"{right}.00", f"**{plain}%**"):
                    assert score(form, answer) == 1.0, form
                assert score(f"#### {right + 1}", answer) == score(f"#### {right}1", answer) == 0.0
    assert checked == 7473 + 1319


def test_stands_alone() -> None:
    code = (
        "import runpy, sys; m = runpy.run_path(sys.argv[1]); assert m['score']('#### 4', '4') == 1.0; assert 'rlmbench' not in sys.modules"
    )
    subprocess.run([sys.executable, "-I", "-S", "-c", code, str(verifier.__file__)], check=True)
