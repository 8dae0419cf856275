"""Where a running framework is, read from what its probe has written so far (see docs/records.md)."""

from __future__ import annotations

import json
import statistics
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlmbench.records.vocabulary import STARTUP

STEPS_OF_TOKENS_KEPT = 3  # ranks may flush a step's last losses after the driver has closed the step


@dataclass
class ProbeState:
    """What the probe has told.

    `step` is the step under way or last ended (0 before the first), `stage` the stage under way (None between stages;
    after an exception the innermost stage that it left). `last_step_s` and `tokens_per_s` are of the last step that ended: the prompt
    and response tokens of its trained samples over its seconds, each sample once however many epochs train on it.
    `starting` is the part of the start-up that was begun last, in any process. None is "not known yet".
    `last_event_ns` is the latest CLOCK_MONOTONIC time in any event.
    """

    step: int = 0
    stage: str | None = None
    starting: str | None = None
    steps_done: int = 0
    last_step_s: float | None = None
    tokens_per_s: float | None = None
    last_event_ns: int | None = None
    step_seconds: list[float] = field(default_factory=list)

    def seconds_left(self, steps_planned: int) -> float | None:
        """An estimate for the steps not yet ended: the median of those that did, the first left out once there are others."""
        if not self.step_seconds:
            return None
        return statistics.median(self.step_seconds[1:] or self.step_seconds) * max(0, steps_planned - self.steps_done)


@dataclass
class _File:
    """How far one probe file has been read. `leads` tells whether its process drives the loop; only that one's stages are shown.

    `open` holds (stage, name) of its spans that have begun, outermost first; `raised` whether the last one to end was
    left by an exception.
    """

    offset: int = 0
    rest: bytes = b""
    leads: bool = False
    open: list[tuple[Any, Any]] = field(default_factory=list)
    raised: bool = False


class ProbeTail:
    """Follows the probe files of one run. Call `poll` to read on; it copes with absent folders and half-written lines.

    A sample that is not identified cannot be recognized in its next epoch: it counts for one of `epochs` each time.
    """

    def __init__(self, probe_dir: Path, epochs: int = 1) -> None:
        self._probe_dir = probe_dir
        self._epochs = epochs
        self._files: dict[Path, _File] = {}
        self._tokens: dict[int, dict[tuple[Any, ...], float]] = {}
        self._steps: deque[tuple[int, int, int]] = deque(maxlen=STEPS_OF_TOKENS_KEPT)  # (step, start, end) of the last that ended
        self._unplaced: list[tuple[int, dict[tuple[Any, ...], float]]] = []  # of workers that do not know the step: (time, tokens)
        self._last_ended = 0
        self.state = ProbeState()

    def poll(self) -> ProbeState:
        """Read what has been appended since, and return the state, which later calls update in place."""
        for path in sorted(self._probe_dir.glob("*.jsonl")):
            file = self._files.setdefault(path, _File())
            for event in self._new_events(path, file):
                with suppress(KeyError, TypeError, ValueError):  # a damaged event: the tables count it, and progress goes on
                    self._take(event, file, path.name)
        return self.state

    @staticmethod
    def _new_events(path: Path, file: _File) -> list[dict[str, Any]]:
        try:
            with path.open("rb") as handle:
                handle.seek(file.offset)
                data = handle.read()
        except OSError:
            return []
        file.offset += len(data)
        *lines, file.rest = (file.rest + data).split(b"\n")
        events = []
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:  # a line that a killed process left half-written, continued by another's
                continue
            if isinstance(event, dict):
                events.append(event)
        return events

    def _take(self, event: dict[str, Any], file: _File, name: str) -> None:
        time_ns = event.get("end_ns") or event.get("t_ns") or event.get("mono_ns")
        if time_ns:
            self.state.last_event_ns = max(self.state.last_event_ns or 0, time_ns)
        if event.get("ev") == "begin" and event.get("stage") == STARTUP:
            self.state.starting = event.get("name")
        match event.get("ev"):
            case "process" | "role":
                file.leads = event.get("role") == "driver"
            case "begin" if file.leads:
                self.state.step = max(self.state.step, event.get("step") or 0)
                self.state.stage = event.get("stage")
                file.open.append((event.get("stage"), event.get("name")))
                file.raised = False
            case "span" if file.leads:
                self._take_span(event, file)
            case "loss":
                self._take_loss(event, name)
            case "step":
                self._take_step(event)

    def _take_span(self, event: dict[str, Any], file: _File) -> None:
        """A span has ended. An exception ends those around it too: the first to end is where it was raised."""
        if "error" in event and not file.raised:
            self.state.stage, file.raised = event.get("stage"), True
        if event.get("parent") is None:
            file.open.clear()
        elif file.open[-1:] == [(event.get("stage"), event.get("name"))]:
            file.open.pop()
        else:
            return  # one whose beginning is not told
        if "error" not in event:
            self.state.stage, file.raised = file.open[-1][0] if file.open else None, False

    def _take_loss(self, event: dict[str, Any], name: str) -> None:
        tokens: dict[tuple[Any, ...], float] = {}
        for place, (row, sample, _, prompt_tokens, response_tokens) in enumerate(event["rows"]):
            known = row is not None and sample is not None
            key = (row, sample) if known else (name, event["t_ns"], place)  # unmatched samples are kept apart
            tokens[key] = (prompt_tokens + response_tokens) / (1 if known else self._epochs)
        if event["step"]:
            self._tokens.setdefault(event["step"], {}).update(tokens)
        elif event["t_ns"] is not None:
            self._unplaced.append((event["t_ns"], tokens))
        self._update_rate()

    def _take_step(self, event: dict[str, Any]) -> None:
        state = self.state
        state.step = max(state.step, event["step"])
        state.steps_done += 1
        self._last_ended = event["step"]
        self._steps.append((event["step"], event["start_ns"], event["end_ns"]))
        state.last_step_s = (event["end_ns"] - event["start_ns"]) / 1e9
        state.step_seconds.append(state.last_step_s)
        self._update_rate()

    def _update_rate(self) -> None:
        """Tokens of the last step that ended, over its seconds; the step under way is not that one."""
        state = self.state
        self._place()
        tokens = self._tokens.get(self._last_ended)
        if tokens and state.last_step_s:
            state.tokens_per_s = sum(tokens.values()) / state.last_step_s

    def _place(self) -> None:
        """Join what workers recorded without a step to the step in which it happened, once that has ended."""
        waiting = []
        for time_ns, tokens in self._unplaced:
            step = next((step for step, start_ns, end_ns in self._steps if start_ns <= time_ns < end_ns), None)
            if step is not None:
                self._tokens.setdefault(step, {}).update(tokens)
            elif not self._steps or time_ns >= self._steps[-1][2]:
                waiting.append((time_ns, tokens))
        self._unplaced = waiting
        for old in [step for step in self._tokens if step <= self._last_ended - STEPS_OF_TOKENS_KEPT]:
            del self._tokens[old]
