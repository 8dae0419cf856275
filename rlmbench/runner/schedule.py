"""In which order runs happen, and how a piece of work is recognized when it comes again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any, TypeVar

T = TypeVar("T")


def interleave(frameworks: Sequence[T], repeats: int) -> list[tuple[T, int]]:
    """Every framework (or framework and variant) `repeats` times, as (framework, repeat from 0), in the order A B B A A B ...

    Rounds alternate their direction, so that a slow drift of the machine (temperature, neighbours) weighs equally on
    all frameworks for an even number of repeats.
    """
    order: list[tuple[T, int]] = []
    for repeat in range(repeats):
        round_order = frameworks if repeat % 2 == 0 else list(reversed(frameworks))
        order += [(framework, repeat) for framework in round_order]
    return order


def content_hash(content: Any) -> str:
    """16 hex digits that stand for a JSON value: of sha256 over its canonical text, whatever the order of its keys.

    Raises TypeError for what is not JSON, and ValueError for NaN and infinities, which JSON lacks.
    """
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]
