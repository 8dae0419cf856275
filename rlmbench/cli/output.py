"""Standard output of the commands: text for people, or one JSON object for programs."""

from __future__ import annotations

import json
import os
import re
import sys
from typing import IO, TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from rich.console import Console


class _WithoutTrailingBlanks:
    """A text stream that takes blanks at the ends of lines away: rich fills its lines up to the width, which spoils diffs and quotations."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._held = ""
        """Blanks at the end of what was written so far: what follows says whether a line ends in them."""

    def write(self, text: str) -> int:
        whole = re.sub(r"[ \t]+(?=\n)", "", self._held + text)
        kept = whole.rstrip(" \t")
        self._held = whole[len(kept) :]
        self._stream.write(kept)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def console(stream: IO[str]) -> Console:
    """A console on `stream`; width and colour follow from it, and text is never taken for markup. In a file or pipe no line ends in blanks."""
    from rich.console import Console

    class Output(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich itself would end the program, whatever its exit code has to be

    made = Output(file=stream, markup=False, highlight=False)
    if not made.is_terminal:
        made.file = cast("IO[str]", _WithoutTrailingBlanks(stream))
    return made


def print_json(document: dict[str, Any]) -> None:
    """`document` on one line, the last of standard output."""
    print(json.dumps(document, separators=(",", ":"), allow_nan=False), flush=True)


def discard_output() -> None:
    """Send what standard output still holds nowhere: whoever read it has gone (`| head`), and nothing is wrong."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
