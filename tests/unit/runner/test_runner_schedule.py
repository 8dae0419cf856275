from __future__ import annotations

import hashlib

import pytest

from rlmbench.runner.schedule import content_hash, interleave


def test_two_frameworks_go_a_b_b_a() -> None:
    assert interleave(["A", "B"], 4) == [("A", 0), ("B", 0), ("B", 1), ("A", 1), ("A", 2), ("B", 2), ("B", 3), ("A", 3)]


def test_three_frameworks_have_the_same_mean_position() -> None:
    order = interleave(["A", "B", "C"], 2)
    assert "".join(framework for framework, _ in order) == "ABCCBA"
    assert interleave(["A"], 3) == [("A", 0), ("A", 1), ("A", 2)]
    assert interleave(["A", "B"], 0) == []


def test_content_hash_is_of_canonical_json() -> None:
    expected = hashlib.sha256(b'{"a":[1,2.5,null],"b":"\\u00e4"}').hexdigest()[:16]
    assert content_hash({"b": "ä", "a": (1, 2.5, None)}) == expected
    assert content_hash({"a": 1}) != content_hash({"a": 1.5})


def test_what_is_not_json_is_refused() -> None:
    with pytest.raises(TypeError):
        content_hash({"a": {1, 2}})
    with pytest.raises(ValueError):
        content_hash(float("nan"))
