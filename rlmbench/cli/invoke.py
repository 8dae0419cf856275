"""Runs a typer app so that every error comes back as one line and a documented exit code."""

from __future__ import annotations

import typer
from typer.exceptions import TyperException

from rlmbench.errors import UserError


def invoke(app: typer.Typer, name: str, arguments: list[str]) -> int:
    """Run `app` as ``rlmbench <name> <arguments>``; its command may return an exit code.

    Raises:
        UserError: the arguments are wrong.
    """
    app.pretty_exceptions_enable = False  # an error of ours is a plain traceback, which can be pasted into a report
    try:
        result = app(arguments, prog_name=f"rlmbench {name}", standalone_mode=False)
    except TyperException as error:
        message = " ".join(str(getattr(error, "format_message", error.__str__)()).split()).rstrip(".")
        raise UserError(f"{message}; see rlmbench {name} --help") from None
    except SystemExit:  # typer's way to say that whoever read the output has gone (`| head`)
        raise BrokenPipeError from None
    return result if isinstance(result, int) else 0
