"""The GSM8K verifier: which number a response gives as its answer, and whether that is the right one.

Standard library only and without imports of rlmbench, because framework processes load this file by its path.
Nothing here raises on any text: a reward function that raises ends a training run.
"""

from __future__ import annotations

import re
from fractions import Fraction

_MARKER = "####"
_BOXED = re.compile(r"\\(?:boxed|fbox)\s*\{")
_LATEX_FRACTION = re.compile(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}")
_LATEX_SPACE = re.compile(r"\\[,!]")
_NUMBER = re.compile(
    r"""
    (?P<sign>(?<![\w)\]%])[-\u2212])?         # behind a number or a bracket it would be a subtraction
    (?:[$\u20ac\u00a3][ ]?)?
    (?P<inner_sign>(?<=[$\u20ac\u00a3])[-\u2212])?  # -$5 and $-5 are both written
    (?P<number>[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?|\.[0-9]+)
    (?:/(?P<denominator>[0-9]+)(?![0-9.]))?
    """,
    re.VERBOSE,
)
_MAX_DIGITS = 60  # longer digit strings are noise, and Python refuses to convert very long ones


def extract(text: str) -> Fraction | None:
    """The number that `text` gives as its final answer, exactly; None where it gives none.

    In this order: the first number after the last ``####`` on its line; the last number in the last ``\\boxed{}``;
    the last number of the text. A marker or box without a number is no answer: the text that follows it is not
    searched for another. Thousands separators, signs, decimals, fractions ``a/b``, currency signs, percent signs
    and a full stop behind the number are understood; a percentage is its number (50% is 50).
    """
    if _MARKER in text:
        lines = text.rsplit(_MARKER, 1)[1].strip().splitlines()
        found = _numbers(lines[0]) if lines else []
        return found[0] if found else None
    boxes = list(_BOXED.finditer(text))
    found = _numbers(_braced(text, boxes[-1].end()) if boxes else text)
    return found[-1] if found else None


def score(response: str, answer: str) -> float:
    """The reward: 1.0 if the final answers of `response` and `answer` are the same number, else 0.0.

    `answer` is the bare number or a whole GSM8K solution that ends with ``#### number``.
    """
    given, right = extract(response), extract(answer)
    return 1.0 if right is not None and given == right else 0.0


def _braced(text: str, start: int) -> str:
    """What stands between the brace that opened before `start` and the one that closes it (or the end)."""
    depth = 1
    for position in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[start:position]
    return text[start:]


def _numbers(text: str) -> list[Fraction]:
    plain = text.replace("\\$", "$").replace("\\%", "%").replace("{,}", ",")
    plain = _LATEX_FRACTION.sub(r"\1/\2", _LATEX_SPACE.sub("", plain))
    return [number for match in _NUMBER.finditer(plain) if (number := _value(match)) is not None]


def _value(match: re.Match[str]) -> Fraction | None:
    digits, denominator = match["number"].replace(",", ""), match["denominator"] or "1"
    if len(digits) > _MAX_DIGITS or len(denominator) > _MAX_DIGITS or not int(denominator):
        return None
    value = Fraction(digits) / int(denominator)
    return -value if match["sign"] or match["inner_sign"] else value
