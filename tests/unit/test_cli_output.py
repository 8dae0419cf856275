"""What commands print into a file or pipe: no line ends in blanks, which spoil diffs and quotations."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from rlmbench.cli.main import main
from rlmbench.cli.output import console
from rlmbench.report.console_parts import hanging, table, text

PUBLISHED = Path(__file__).parents[2] / "results" / "reference" / "gsm8k_grpo"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def printed(stream, monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setenv("TERM", "xterm")
    for forced in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(forced, raising=False)
    out = console(stream)
    made = table("name", "#value")
    made.add_row(text("one"), text("1"))
    out.print(made)
    hanging(out, "label: ", "a sentence that is too long for a single line")
    return stream.getvalue()


def test_a_file_gets_no_blanks_at_the_end_of_a_line_and_a_terminal_what_rich_writes(monkeypatch):
    into_file, on_terminal = printed(io.StringIO(), monkeypatch), printed(Terminal(), monkeypatch)
    lines = into_file.splitlines()
    assert [line.rstrip() for line in lines] == lines and len(lines) == len(on_terminal.splitlines())
    assert "label: a sentence that is too\n       long for a single line\n" in into_file
    assert any(line.endswith(" ") for line in on_terminal.splitlines())


def test_blanks_within_a_line_stay_however_the_line_is_written():
    stream = io.StringIO()
    out = console(stream)
    for piece in ("a  ", "b", "  ", "\n", " c \n", "d "):
        out.print(text(piece), end="", soft_wrap=True)
    assert stream.getvalue() == "a  b\n c\nd"


@pytest.mark.parametrize("command", [("compare", str(PUBLISHED)), ("show", str(next(PUBLISHED.glob("*-verl-*-r0")))), ("frameworks",)])
def test_no_command_ends_a_line_in_blanks(command, capsys):
    assert main(list(command)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 10 and [line for line in lines if line != line.rstrip()] == []
