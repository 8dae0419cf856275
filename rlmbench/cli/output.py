"""Standard output of the commands: text for people, or one JSON object for programs."""

from __future__ import annotations

import json
import os
import sys
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


def console(stream: IO[str]) -> Console:
    """A console on `stream`; width and colour follow from it, and text is never taken for markup."""
    from rich.console import Console

    class Output(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich itself would end the program, whatever its exit code has to be

    return Output(file=stream, markup=False, highlight=False)


def print_json(document: dict[str, Any]) -> None:
    """`document` on one line, the last of standard output."""
    print(json.dumps(document, separators=(",", ":"), allow_nan=False), flush=True)


def discard_output() -> None:
    """Send what standard output still holds nowhere: whoever read it has gone (`| head`), and nothing is wrong."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
