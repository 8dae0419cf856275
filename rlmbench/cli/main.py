"""The `rlmbench` command: finds the subcommand's module and runs it.

Only this module and `rlmbench.errors` are imported for ``rlmbench --help``; each command's own imports (typer among
them, which alone takes longer than Python's start) happen when that command is asked for.
"""

from __future__ import annotations

import signal
import sys
from importlib import import_module
from types import FrameType

from rlmbench.errors import EXIT_INTERRUPTED, EXIT_OK, EXIT_TERMINATED, EXIT_USAGE, UserError, as_line, did_you_mean

COMMANDS = {
    "run": ("rlmbench.cli.run", "Run a suite with one or more frameworks, and report."),
    "plan": ("rlmbench.cli.plan", "Say what a suite will need: memory, least time, cost. Starts nothing."),
    "show": ("rlmbench.cli.show", "Print the figures of recorded runs."),
    "compare": ("rlmbench.cli.compare", "Compare runs: may they be compared, who is faster, why do they differ."),
    "whatif": ("rlmbench.cli.whatif", "Predict a run in other execution modes and on other devices."),
    "report": ("rlmbench.cli.report", "Write the HTML page of a run, or of several side by side."),
    "publish": ("rlmbench.cli.publish", "Copy records for others, without what names this machine."),
    "timeline": ("rlmbench.cli.timeline", "Write a run as a trace for Perfetto or Chrome."),
    "trace": ("rlmbench.cli.trace", "Say what the devices of a torch.profiler trace did, by stage."),
    "suites": ("rlmbench.cli.suites", "List, show and check suites."),
    "env": ("rlmbench.cli.env", "Build, list, check and remove framework environments."),
    "frameworks": ("rlmbench.cli.frameworks", "Say which parallelism and techniques each framework can run."),
    "adapter": ("rlmbench.cli.adapter", "Check whether an adapter keeps its promises."),
    "overhead": ("rlmbench.cli.overhead", "Measure what measuring costs, by paired runs."),
    "doctor": ("rlmbench.cli.doctor", "Say what this machine can measure, and what is missing."),
}

HELP = """\
Usage: rlmbench COMMAND [ARGUMENTS]

Runs RL post-training frameworks on equal work and measures them from outside.

Commands:
{commands}

Options:
  --help     Show this, or a command's own help: rlmbench run --help
  --version  Show the version.

Examples:
  rlmbench run suites/gsm8k_grpo --framework trl
  rlmbench run gsm8k_ppo --framework trl --repeats 3 --set optimization.learning_rate=1e-5
  rlmbench show latest
  rlmbench compare gsm8k_grpo
  rlmbench suites list

Exit codes:
  0 done, 1 a run failed, 2 wrong usage, 3 an environment failed,
  4 not comparable, 5 slower, 6 machine busy, 130 interrupted, 143 terminated
"""


class Stopped(BaseException):
    """SIGINT, SIGTERM or SIGHUP, as an exception that reaches every `finally` and that no library takes for its own."""


def main(arguments: list[str]) -> int:
    """Run one command and return its exit code."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
            signal.signal(number, _stop)
    try:
        code = _dispatch(arguments)
        sys.stdout.flush()
        return code
    except UserError as error:
        print("\n".join(f"error: {as_line(line)}" for line in error.lines), file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        from rlmbench.cli.output import discard_output

        discard_output()
        return EXIT_OK
    except Stopped as stopped:
        by_ctrl_c = stopped.args == (signal.SIGINT,)
        print("interrupted" if by_ctrl_c else "terminated", file=sys.stderr)
        return EXIT_INTERRUPTED if by_ctrl_c else EXIT_TERMINATED


def _dispatch(arguments: list[str]) -> int:
    name = arguments[0] if arguments else ""
    if name in ("", "--help", "-h", "help"):
        print(HELP.format(commands="\n".join(f"  {name:<10} {text}" for name, (_, text) in COMMANDS.items())), end="")
        return EXIT_OK if arguments else EXIT_USAGE
    if name == "--version":
        from rlmbench import __version__

        print(f"rlmbench {__version__}")
        return EXIT_OK
    if name not in COMMANDS:
        raise UserError(f"unknown command {name!r}{did_you_mean(name, COMMANDS)}; rlmbench --help lists them")
    app = import_module(COMMANDS[name][0]).app
    from rlmbench.cli.invoke import invoke

    return invoke(app, name, arguments[1:])


def _stop(number: int, frame: FrameType | None) -> None:
    raise Stopped(number)


def entry() -> None:
    """The console script."""
    sys.exit(main(sys.argv[1:]))
