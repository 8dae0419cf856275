"""What a run would have been, in the terminal and on its page: predictions with all that they assume."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from rlmbench.errors import UserError
from rlmbench.report import numbers
from rlmbench.report.console_parts import fitting, hanging, heading, text
from rlmbench.report.parts import Cell, Folded, Note, Part, columns, line
from rlmbench.report.parts import Table as PageTable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from rlmbench.metrics import RunSummary
    from rlmbench.records import Run
    from rlmbench.whatif import Prediction, WhatIf


GIVEN_BACK = 0.005
"""A replay that differs by less gives the run back; where an assumption is set that the run did not meet, it need not."""


def print_what_if(found: WhatIf, console: Console) -> None:
    """The table of modes, what the model says of the run as it was, and every assumption."""
    heading(console, f"What if: {found.run}")
    was = f"{found.measured_mode} on {devices(found.measured_devices)}, {numbers.seconds(found.measured_step_s)} a step, mean of {found.measured_steps}"
    hanging(console, "measured: ", was)
    hanging(console, "model:    ", replayed(found))
    console.print(_table(found, console))
    for mode, why in found.impossible.items():
        hanging(console, "n/a:      ", f"{mode}: {why}", "dim")
    hanging(console, "best:     ", best_text(found), "bold")
    for note in found.notes:
        hanging(console, "note:     ", note, "yellow")
    heading(console, "Assumed (set with --assume NAME=VALUE)")
    for name, value, meaning in found.assumptions:
        hanging(console, f"  {name} = {value_text(value)}: ", meaning, "dim")
    hanging(console, "  decode: ", decode_text(found), "dim")


def what_if_parts(run: Run, summary: RunSummary) -> tuple[Part, ...]:
    """The same predictions for the page, on the run's own number of devices, with the default assumptions."""
    from rlmbench.whatif import Question, what_if
    from rlmbench.whatif.inputs import affordable_steps

    if not summary.measured_steps:
        return ()
    try:
        found = what_if(
            run, summary, Question(steps=affordable_steps(summary.lengths.samples // summary.measured_steps if summary.lengths else 1))
        )
    except UserError as error:
        return (Note(f"No prediction of other modes: {error}"),)
    rows = tuple(
        line(
            Cell(one.mode, code=True),
            split_text(one).strip(),
            numbers.seconds(one.step_s),
            numbers.ratio(one.own_ratio, "does not fit"),
            waiting_text(one),
            f"{one.staleness_mean:.1f}",
        )
        for one in sorted(found.predictions, key=lambda one: one.step_s)
    )
    shown = PageTable(
        f"The same run in other modes on {devices(found.devices)}, simulated (rlmbench whatif); it ran on {found.measured_devices}",
        columns("mode", "split", "#step", f"#of {found.measured_mode} there", "waiting", "#versions behind"),
        rows,
    )
    assumed = PageTable(
        "What these predictions assume",
        columns("assumption", "value", "meaning"),
        (
            *(line(Cell(name, code=True), value_text(value), meaning) for name, value, meaning in found.assumptions),
            line(Cell("decode", code=True), "", decode_text(found)),
        ),
        prose=True,
    )
    return (shown, Note(f"Best: {best_text(found)}."), *(Note(f"{note[0].upper()}{note[1:]}.") for note in found.notes), Folded(assumed))


def waiting_text(one: Prediction) -> str:
    """Each role's share of the time in which its devices do no work."""
    return ", ".join(f"{role} {share:.0%}" for role, share in one.waiting.items())


def replayed(found: WhatIf) -> str:
    """The model's word on the run as it was."""
    off = round(found.replay.step_s / found.measured_step_s - 1, 3) + 0.0  # no -0.0%
    told = f"gives {numbers.seconds(found.replay.step_s)} for the same run ({off:+.1%}), "
    if found.measured_ahead:
        told += "from each role's own seconds"
    else:
        told += "so that nothing is lost or counted twice" if abs(off) < GIVEN_BACK else "with what is assumed of it"
    return f"{told}; other modes rest on the assumptions below"


def best_text(found: WhatIf) -> str:
    """The fastest mode, its split, and against the run."""
    best = next(one for one in found.predictions if one.mode == found.best)
    own = "" if best.own_ratio is None else f"{numbers.ratio(best.own_ratio)} of {found.measured_mode} on the same devices, "
    measured = f"{numbers.ratio(best.ratio)} of the step measured on {devices(found.measured_devices)}"
    text_ = f"{best.mode}{split_text(best)} on {devices(found.devices)}: {numbers.seconds(best.step_s)} a step, {own}{measured}"
    return text_ + (f", with samples {best.staleness_mean:.1f} versions behind on average" if best.staleness_max else "")


def split_text(one: Prediction) -> str:
    """`` 4:12`` where the devices are divided."""
    return f" {one.layout.rollout}:{one.layout.training}" if one.layout.rollout + one.layout.training == one.layout.devices else ""


def devices(count: int) -> str:
    return "1 device" if count == 1 else f"{count:,} devices"


def value_text(value: object) -> str:
    return (
        "null"
        if value is None
        else str(value).lower()
        if isinstance(value, bool)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )


def decode_text(found: WhatIf) -> str:
    """What generation costs a replica, and whence it is known."""
    cost = found.decode
    parts = (
        f"{numbers.seconds(cost.latency_s)} per token of the longest response",
        f"{numbers.seconds(cost.token_s)} per token {'computed' if cost.is_static else 'generated'}",
        f"{numbers.seconds(cost.sample_s)} per sample",
    )
    return f"{', '.join(parts)}, of one replica; {cost.source}"


def _memory_text(found: WhatIf) -> str:
    own = [one.mode.replace("_", " ") for one in found.predictions if one.memory_source == "measured"]
    if len(own) == len(found.predictions):
        return "the run's own peaks in the role's stages, not rescaled."
    but = f" (of {', '.join(own)} the run's own peaks, not rescaled)" if own else ""
    return f"what one device holds at least, by the cost model{but}."


def _table(found: WhatIf, console: Console) -> Table:
    """All columns, or as many as fit the terminal without a word broken: those that matter least go first."""
    columns = {title: [cell(one) for one in sorted(found.predictions, key=lambda one: one.step_s)] for title, cell in _COLUMNS}
    shown, titles = fitting(columns, _DISPENSABLE, console.width, f"On {devices(found.devices)}")
    shown.caption = text(" ".join(_caption(found, titles)), "dim")
    shown.caption_justify = "left"
    return shown


_COLUMNS: tuple[tuple[str, Callable[[Prediction], str]], ...] = (
    ("mode", lambda one: one.mode.replace("_", " ")),  # wraps between its words
    ("split", lambda one: split_text(one).strip()),
    ("#step s", lambda one: numbers.significant(one.step_s)),
    ("#p90", lambda one: numbers.significant(one.p90_s)),
    ("#ratio", lambda one: "n/a" if one.own_ratio is None else f"{one.own_ratio:.2f}"),
    ("#tok/s", lambda one: numbers.significant(one.tokens_per_s)),
    ("#waiting", lambda one: ", ".join(f"{share:.0%}" for share in one.waiting.values())),
    ("#stale", lambda one: f"{one.staleness_mean:.1f}/{one.staleness_max}" if one.staleness_max else "0"),
    ("#memory", lambda one: "\n".join(numbers.size(peak) for peak in one.memory_bytes.values()) or "n/a"),
)
_DISPENSABLE = ("#p90", "#tok/s", "#memory", "#stale", "#waiting")


def _caption(found: WhatIf, titles: Sequence[str]) -> Iterator[str]:
    """What the columns that are shown mean, and which are not."""
    yield "Means over the simulated steps."
    if found.own is None:
        yield f"No ratio: {found.measured_mode}, as the run ran, does not fit these devices."
    else:
        yield f"Ratio: to {found.measured_mode}{split_text(found.own)}, as the run ran, on the same devices."
    told = {
        "#waiting": "Waiting: the devices neither generate, assess nor train.",
        "#stale": "Stale: policy versions behind, mean/most.",
        "#memory": f"Memory: {_memory_text(found)}",
    }
    yield from (meaning for title, meaning in told.items() if title in titles)
    if titles[-1] in ("#memory", "#stale", "#waiting") and (order := _order_text(found)):
        yield order.strip()
    if left := [title.removeprefix("#") for title, _ in _COLUMNS if title not in titles]:
        yield f"Too narrow here for {', '.join(left)}: see --json."


def _order_text(found: WhatIf) -> str:
    """Which devices the two figures of a divided mode are of, in the order of its split."""
    orders = {tuple(one.waiting): one.mode.replace("_", " ") for one in found.predictions if len(one.waiting) > 1}
    told = "; ".join(
        f"{', '.join(order)} ({mode})" if order != ("rollout", "training") else ", ".join(order) for order, mode in orders.items()
    )
    return f" Of two groups of devices: {told}." if told else ""
