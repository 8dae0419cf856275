"""Errors that a user can act on, and the exit codes of the command line.

| code | meaning |
|---|---|
| 0 | everything asked for was done, and every run passed its audit |
| 1 | a run failed (its record says why); `publish`: something damaged was left out |
| 2 | the command could not start as given: unknown name or key, bad value, missing file |
| 3 | an environment could not be built or does not pass its check |
| 4 | `compare --strict`: runs that may not be compared; `compare --fail-on`: something could not be judged, or is missing |
| 5 | `compare --fail-on`: something is slower than its baseline |
| 6 | the machine is not free for a measurement (`run`): somebody holds a GPU, say |
| 130, 143 | ended by Ctrl-C or SIGTERM; what was measured is kept |
"""

from __future__ import annotations

import re
from collections.abc import Iterable

EXIT_OK = 0
EXIT_RUN_FAILED = 1
EXIT_USAGE = 2
EXIT_ENVIRONMENT = 3
EXIT_NOT_COMPARABLE = 4
EXIT_SLOWER = 5
EXIT_BUSY = 6
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143


class UserError(Exception):
    """Something the user can fix. Each of `lines`, mostly one, names a place and the fix; what was given may itself hold a line break."""

    exit_code = EXIT_USAGE

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


class EnvironmentFailure(UserError):
    """A framework's environment cannot be built or used."""

    exit_code = EXIT_ENVIRONMENT


_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """`text` without what would move a terminal's cursor, colour it or worse; names in records are anybody's."""
    return _CONTROL.sub("", text)


def as_line(text: str) -> str:
    """`text` as one printable line."""
    return " ".join(printable(text).split())


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`` (did you mean 'x'?)`` for the nearest known word, or an empty string."""
    from difflib import get_close_matches

    near = get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f" (did you mean {near[0]!r}?)" if near else ""
