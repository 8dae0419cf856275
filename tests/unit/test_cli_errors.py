"""What standard error says of a mistake: a line each, whatever was typed."""

from __future__ import annotations

from rlmbench.cli import main as command
from rlmbench.errors import UserError


def test_a_line_break_in_an_argument_does_not_break_the_error_line(capsys):
    assert command.main(["show", "no/such\nerror: forged\x1b[31m"]) == 2
    assert capsys.readouterr().err.splitlines() == ["error: no/such error: forged: no run there: a run's folder holds manifest.json"]


def test_several_mistakes_are_a_line_each(capsys, monkeypatch):
    def mistaken(arguments):
        raise UserError("one\nthing", "another")

    monkeypatch.setattr(command, "_dispatch", mistaken)
    assert command.main([]) == 2
    assert capsys.readouterr().err == "error: one thing\nerror: another\n"
