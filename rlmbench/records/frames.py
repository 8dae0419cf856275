"""From pandas frames to plain Python values, which the arithmetic is done with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


def plain_rows(frame: pd.DataFrame, *columns: str) -> Iterator[tuple[Any, ...]]:
    """The frame's rows, `columns` only, with None for every null."""
    return zip(*(_plain(frame[name]) for name in columns), strict=True)


def _plain(values: pd.Series[Any]) -> list[Any]:
    return [None if null else value for value, null in zip(values.tolist(), values.isna().tolist(), strict=True)]


def by_step(values: pd.Series[Any]) -> dict[int, Any]:
    """A series indexed by step as a dictionary."""
    return dict(zip((int(step) for step in values.index.tolist()), values.tolist(), strict=True))
