"""Standard output of the commands: text for people, or one JSON object for programs."""

from __future__ import annotations

import json
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


def console(stream: IO[str]) -> Console:
    """A console on `stream`; width and colour follow from it, and text is never taken for markup."""
    from rich.console import Console

    return Console(file=stream, markup=False, highlight=False)


def print_json(document: dict[str, Any]) -> None:
    """`document` on one line, the last of standard output."""
    print(json.dumps(document, separators=(",", ":"), allow_nan=False), flush=True)
