from __future__ import annotations

import io
import time

import pytest

from rlmbench.runner.progress import LiveProgress, PlainProgress, QuietProgress, Shown, describe, describe_within, duration, open_progress


def test_the_line_names_everything_known() -> None:
    shown = Shown("trl 1/4", "training", 3, 5, 2.123, 812.4, 4.2, "actor_update", since=100)
    assert (
        describe(shown, now=109) == "trl 1/4 · training · step 3 of 5 · actor_update · last step 2.12 s · 812 tokens/s · 0:04 left · 0:09"
    )
    assert describe(Shown(phase="installing torch", since=100), now=161) == "installing torch · 1:01"
    assert describe_within(shown, now=109, width=102) == describe(shown, now=109)
    assert describe_within(shown, now=109, width=80).splitlines() == [
        "trl 1/4 · training · step 3 of 5 · actor_update",
        "last step 2.12 s · 812 tokens/s · 0:04 left · 0:09",
    ]


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (750, "12:30"), (3723, "1:02:03"), (-1, "0:00")])
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_plain_lines_come_with_phases_and_steps_only() -> None:
    stream = io.StringIO()
    with PlainProgress(stream) as progress:
        progress.run("trl 1/1")
        for stage in ("generation", "reward"):
            progress.phase("training")
            progress.step(1, 3)
            progress.stage(stage)
        progress.step(2, 3, step_s=1.5, tokens_per_s=100, left_s=3)
        progress.message("hook sync absent: no vLLM")
        progress.finish("ok")
    assert stream.getvalue().splitlines() == [
        "trl 1/1 · training · 0:00",
        "trl 1/1 · training · step 1 of 3 · 0:00",
        "trl 1/1 · training · step 2 of 3 · reward · last step 1.5 s · 100 tokens/s · 0:03 left · 0:00",
        "hook sync absent: no vLLM",
        "trl 1/1: ok",
    ]


def test_plain_lines_show_a_sign_of_life_while_the_caller_waits() -> None:
    stream = io.StringIO()
    with PlainProgress(stream, sign_of_life_s=0.1) as progress:
        time.sleep(0.15)
        assert stream.getvalue() == ""
        progress.phase("installing torch")
        until = time.monotonic() + 60
        while stream.getvalue().count("installing torch") < 5 and time.monotonic() < until:
            time.sleep(0.01)  # and calls nothing
    assert stream.getvalue().count("installing torch") >= 5


def test_a_sign_of_life_comes_a_second_before_it_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over 22 s of a clock that only waiting moves: 4 s after the line before, so that one which a busy machine holds up is still in time."""
    now, printed = [100.0], list[float]()

    class Stream(io.StringIO):
        def write(self, text: str) -> int:
            if text.strip():
                printed.append(now[0])
            return super().write(text)

    def wait(seconds: float) -> bool:
        now[0] += seconds
        return now[0] > 122

    monkeypatch.setattr("rlmbench.runner.progress.time.monotonic", lambda: now[0])
    progress = PlainProgress(Stream())
    monkeypatch.setattr(progress._over, "wait", wait)
    progress.phase("installing torch")
    progress._stay_alive()
    assert printed == [100.0, 104.0, 108.0, 112.0, 116.0, 120.0]


def test_a_reader_that_left_stops_nothing() -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    with PlainProgress(Closed()) as progress:
        progress.phase("training")


def test_quiet_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with open_progress(quiet=True) as progress:
        progress.phase("training")
        progress.message("text")
        progress.finish("ok")
    assert isinstance(progress, QuietProgress)
    assert capsys.readouterr() == ("", "")


def test_front_end_by_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert isinstance(open_progress(stream=io.StringIO()), PlainProgress)
    monkeypatch.setattr("sys.stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm-256color")
    assert isinstance(open_progress(), LiveProgress)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(open_progress(), PlainProgress)


def test_the_live_line_shows_the_state_and_keeps_messages(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    with open_progress() as progress:
        progress.run("trl 1/1")
        progress.phase("training")
        progress.step(2, 5, step_s=1.5)
        until = time.monotonic() + 10
        while "last step 1.5 s" not in terminal.getvalue() and time.monotonic() < until:
            time.sleep(0.01)
        print("result")
        progress.finish("ok [bold]")
    text = terminal.getvalue()
    assert "trl 1/1 · training · step 2 of 5 · last step 1.5 s" in text
    assert "trl 1/1: ok [bold]" in text and "result" not in text
    assert capsys.readouterr().out == "result\n"
