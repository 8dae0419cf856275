"""The charts of a page, as Vega-Lite specifications built with Altair from plain rows.

Text, grid and gaps take the page's own colours (`currentColor`, CSS variables), so that one drawing serves light, dark
and print. Legends and tables are HTML beside the drawing: they wrap on a phone and a screen reader finds them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rlmbench.report import numbers
from rlmbench.report.palette import SUBSTAGE_TINTS, in_order, ink_on, style_of, tint

if TYPE_CHECKING:
    import altair as alt

Row = dict[str, Any]

FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif'
"""The page's own face, by name: Vega measures text before it draws, and cannot measure `inherit`."""
TEXT = "currentColor"
SURFACE = "var(--surface)"
ACCENT = "var(--bar)"
MEMORY_COLOURS = ("#0072B2", "#56B4E9", "#009E73", "#E69F00")
TIME_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C8C8C", "#000000")
_LANE_HEIGHT = 22
_LANE_LABEL = 126
"""Width that lane labels get at least, so that the time axes of several timelines begin below each other."""
_TICKS = "max(2, min(10, width / 70))"
"""How many labels a horizontal axis has room for, as Vega evaluates it."""
_LATER = "rows"
"""Names the data of a chart whose rows `specification` is given."""


def specification(chart: alt.TopLevelMixin, rows: Sequence[Row] | None = None) -> dict[str, Any]:
    """`chart` as a Vega-Lite specification with the page's look, and `rows` in the place of data that it has by name: Altair would copy them
    with every layer and property."""
    axis = {
        "labelColor": TEXT,
        "titleColor": TEXT,
        "domainColor": TEXT,
        "tickColor": TEXT,
        "gridColor": TEXT,
        "domainOpacity": 0.35,
        "tickOpacity": 0.35,
        "gridOpacity": 0.13,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "titlePadding": 8,
        "labelOverlap": True,
    }
    spec: dict[str, Any] = chart.to_dict(validate=False)
    if rows is not None:
        spec["data"] = {"values": list(rows)}
    spec["config"] = {
        "aria": False,  # the figure as a whole has a text alternative; 400 labelled rectangles are none
        "background": None,
        "font": FONT,
        "view": {"stroke": None},
        "axis": axis,
        "axisX": {"grid": False},
        "autosize": {"type": "fit-x", "contains": "padding"},
    }
    return spec


def stage_seconds(rows: Sequence[Row], longest_s: float | None = None) -> dict[str, Any]:
    """Seconds of every stage, stacked per step. Rows: step, stage, seconds, measured (bool).

    `longest_s` is where the axis ends, over all drawings that are compared by eye, and longer bars are cut; else it follows from the rows.
    """
    import altair as alt

    stages = in_order({row["stage"] for row in rows})
    place = {stage: index for index, stage in enumerate(stages)}
    values = [
        {
            "step": row["step"],
            "stage": style_of(row["stage"]).label,
            "order": place[row["stage"]],
            "seconds": row["seconds"],
            "measured": row["measured"],
            "tip": f"step {row['step']} · {style_of(row['stage']).label}: {numbers.seconds(row['seconds'])}"
            + ("" if row["measured"] else " (left out)"),
        }
        for row in rows
    ]
    scale = alt.Undefined if longest_s is None else alt.Scale(domain=[0, longest_s])
    chart = (
        alt.Chart(alt.NamedData(name=_LATER))
        .mark_bar(stroke=SURFACE, strokeWidth=0.6, clip=longest_s is not None)
        .encode(
            x=alt.X("step:O", title="step", axis=alt.Axis(labelAngle=0, ticks=False)),
            y=alt.Y("seconds:Q", title="seconds", axis=alt.Axis(tickCount=5), scale=scale),
            color=_stage_colours(stages),
            order=alt.Order("order:Q"),
            opacity=alt.OpacityValue(0.4, condition={"test": "datum.measured", "value": 1}),
            tooltip=alt.Tooltip("tip:N"),
        )
        .properties(width="container", height=280)
    )
    return specification(chart, values)


def timeline(lanes: Sequence[str], length_ms: float) -> dict[str, Any]:
    """Spans of one step. Rows come later, as the data set `spans`: see `timeline_rows`.

    `lanes` holds one label per line, empty for the lines of nested spans; `length_ms` is where the axis ends, the same for
    all steps that can be chosen, so that they compare by eye.
    """
    import altair as alt

    base = alt.Chart(alt.NamedData(name="spans"))
    labels = json.dumps(list(lanes))
    y = alt.Y(
        "lane:O",
        title=None,
        scale=alt.Scale(domain=list(range(len(lanes))), paddingInner=0.12, paddingOuter=0.05),
        axis=alt.Axis(
            labelExpr=f"{labels}[datum.value]", ticks=False, domain=False, labelOverlap=False, labelLimit=150, minExtent=_LANE_LABEL
        ),
    )
    wide = f"(datum.end - datum.start) / {length_ms} * width > 5"  # the stroke would hide a bar that is little wider than itself
    bars = base.mark_rect(stroke=SURFACE, cornerRadius=1.5, clip=True).encode(
        strokeWidth=alt.StrokeWidthValue(0, condition={"test": wide, "value": 0.8}),
        x=alt.X("start:Q", title="ms since the step began", scale=alt.Scale(domain=[0, length_ms], nice=False), axis=_fitting()),
        x2=alt.X2("end:Q"),
        y=y,
        color=alt.Color("colour:N", scale=None),
        tooltip=alt.Tooltip("tip:N"),
    )
    names = (
        # A name is drawn only where it fits; the tooltip and the table hold the rest.
        base.transform_calculate(end=f"min(datum.end, {length_ms})")
        .transform_filter(f"(datum.end - datum.start) / {length_ms} * width > 7 * length(datum.label) + 10")
        .transform_calculate(middle="(datum.start + datum.end) / 2")
        .mark_text(fontSize=11, baseline="middle")
        .encode(x=alt.X("middle:Q"), y=y, text=alt.Text("label:N"), color=alt.Color("ink:N", scale=None))
    )
    chart = (bars + names).properties(width="container", height=_LANE_HEIGHT * len(lanes))
    return specification(chart)


def timeline_rows(spans: Iterable[Row]) -> list[Row]:
    """What `timeline` draws: spans with lane, depth, stage, substage (or None), name, start_ms and end_ms."""
    return [_timeline_row(**span) for span in spans]


def _timeline_row(lane: int, depth: int, stage: str, substage: str | None, name: str, start_ms: float, end_ms: float) -> Row:
    style = style_of(stage)
    colour = tint(style.colour, SUBSTAGE_TINTS.get(substage or "", 0))
    kind = f"{style.label} · {substage}" if substage else style.label
    return {
        "lane": lane,
        "label": substage or (style.label if depth == 0 else name),
        "start": round(start_ms, 3),
        "end": round(end_ms, 3),
        "colour": colour,
        "ink": ink_on(colour),
        "tip": f"{kind} · {name}: {end_ms - start_ms:.2f} ms, from {start_ms:.2f} ms",
    }


def lengths(values: Sequence[int], p50: float, p99: float, cap: int | None) -> dict[str, Any]:
    """Histogram of response lengths in tokens, with the median, the 99th percentile and the cap marked."""
    import altair as alt

    bins = histogram(values, top=cap)
    for row in bins:
        row["tip"] = f"{row['low']:,} to {row['high'] - 1:,} tokens: {row['samples']:,} samples"
    bars = (
        alt.Chart(alt.Data(values=bins))
        .mark_bar(color=ACCENT, stroke=SURFACE, strokeWidth=0.8)
        .encode(
            x=alt.X("low:Q", title="response tokens", bin="binned", axis=alt.Axis(tickCount=8, format=",d")),
            x2=alt.X2("high:Q"),
            y=alt.Y("samples:Q", title="samples", axis=alt.Axis(tickCount=4, format=",d")),
            tooltip=alt.Tooltip("tip:N"),
        )
    )
    marks = _length_marks(p50, p99, cap)
    base = alt.Chart(alt.Data(values=marks))
    at = alt.X("at:Q")
    rules = base.mark_rule(color=TEXT, strokeDash=[4, 3], opacity=0.75).encode(x=at)
    names = base.mark_text(align="right", dx=-4, baseline="top", fontSize=12, color=TEXT).encode(
        x=at, y=alt.YValue(-2), text=alt.Text("name:N")
    )
    chart = alt.layer(bars, rules, names).properties(width="container", height=200)
    return specification(chart)


def _length_marks(p50: float, p99: float, cap: int | None) -> list[Row]:
    """Where lines stand and what they are called; lines too close for two names share the first one's."""
    marks: list[Row] = []
    for at, name in ((p50, "p50"), (p99, "p99"), *([(cap, "cap")] if cap is not None else [])):
        named = next((mark for mark in reversed(marks) if mark["name"]), None)
        if named is not None and at - named["at"] < 0.1 * (cap or p99):
            named["name"] += f", {name}"
            name = ""
        if not any(mark["at"] == at for mark in marks):
            marks.append({"at": at, "name": name})
    return marks


def histogram(values: Sequence[int], top: int | None = None, most_bins: int = 40) -> list[Row]:
    """Counts of whole numbers in equally wide bins of whole width: rows of low (in), high (out) and samples."""
    highest = max([*values, top or 0])
    low = 0
    width = max(1, -(-(highest + 1 - low) // most_bins))
    counts: dict[int, int] = {}
    for value in values:
        counts[(value - low) // width] = counts.get((value - low) // width, 0) + 1
    return [
        {"low": low + index * width, "high": low + (index + 1) * width, "samples": counts.get(index, 0)} for index in range(max(counts) + 1)
    ]


def memory(rows: Sequence[Row], colours: Sequence[str] = MEMORY_COLOURS) -> dict[str, Any]:
    """Peak memory per stage. Rows: stage, kind, bytes; kinds are drawn beside each other in the given order.

    The axis has the unit in which its largest value is written.
    """
    import altair as alt

    stages = [style_of(name).label for name in in_order({row["stage"] for row in rows})]
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    unit = numbers.size(max(row["bytes"] for row in rows)).split()[-1]
    divisor = 1024 ** numbers.SIZE_UNITS.index(unit)
    values = [
        {
            "stage": style_of(row["stage"]).label,
            "kind": row["kind"],
            "size": row["bytes"] / divisor,
            "tip": f"{style_of(row['stage']).label} · {row['kind']}: {numbers.size(row['bytes'])}",
        }
        for row in rows
    ]
    chart = (
        alt.Chart(alt.NamedData(name=_LATER))
        .mark_bar(stroke=SURFACE, strokeWidth=0.8)
        .encode(
            y=alt.Y("stage:N", title=None, sort=stages, axis=alt.Axis(ticks=False, domain=False, labelLimit=150)),
            yOffset=alt.YOffset("kind:N", sort=kinds),
            x=alt.X("size:Q", title=unit, axis=alt.Axis(grid=True, tickCount=alt.ExprRef(_TICKS)), scale=alt.Scale(zero=True)),
            color=alt.Color("kind:N", sort=kinds, legend=None, scale=alt.Scale(domain=kinds, range=list(colours[: len(kinds)]))),
            tooltip=alt.Tooltip("tip:N"),
        )
        .properties(width="container", height=max(60, len(stages) * (12 + 13 * len(kinds))))
    )
    return specification(chart, values)


def energy(rows: Sequence[Row]) -> dict[str, Any]:
    """Joules per step of each stage. Rows: stage, joules."""
    import altair as alt

    stages = in_order({row["stage"] for row in rows})
    values = [
        {
            "stage": style_of(row["stage"]).label,
            "joules": row["joules"],
            "tip": f"{style_of(row['stage']).label}: {numbers.joules(row['joules'])}",
        }
        for row in rows
    ]
    chart = (
        alt.Chart(alt.NamedData(name=_LATER))
        .mark_bar(stroke=SURFACE, strokeWidth=0.8)
        .encode(
            y=alt.Y(
                "stage:N",
                title=None,
                sort=[style_of(stage).label for stage in stages],
                axis=alt.Axis(ticks=False, domain=False, labelLimit=150),
            ),
            x=alt.X("joules:Q", title="J", axis=alt.Axis(grid=True, tickCount=alt.ExprRef(_TICKS)), scale=alt.Scale(zero=True)),
            color=_stage_colours(stages),
            tooltip=alt.Tooltip("tip:N"),
        )
        .properties(width="container", height=max(60, len(stages) * 25))
    )
    return specification(chart, values)


def line(rows: Sequence[Row]) -> dict[str, Any]:
    """One figure over the steps. Rows: step, value."""
    import altair as alt

    values = [{**row, "tip": f"step {row['step']}: {row['value']:.5g}"} for row in rows]
    base = alt.Chart(alt.NamedData(name=_LATER))
    x = alt.X("step:Q", title="step", axis=alt.Axis(tickMinStep=1, tickCount=6, format="d"), scale=alt.Scale(nice=False, padding=8))
    y = alt.Y("value:Q", title=None, axis=_value_axis(rows), scale=alt.Scale(zero=False))
    if len({row["value"] for row in rows}) == 1:  # a scale without extent would label its one value as 0
        only = rows[0]["value"]
        room = abs(only) / 10 or 1
        y = alt.Y("value:Q", title=None, axis=alt.Axis(values=[only], format="~g"), scale=alt.Scale(domain=[only - room, only + room]))
    drawn = base.mark_line(color=ACCENT, strokeWidth=2).encode(x=x, y=y)
    points = base.mark_point(color=ACCENT, filled=True, size=36, opacity=1).encode(x=x, y=y, tooltip=alt.Tooltip("tip:N"))
    return specification((drawn + points).properties(width="container", height=130), values)


def over_time(rows: Sequence[Row], unit: str, keys: Sequence[str], steps_s: Sequence[float]) -> dict[str, Any]:
    """Readings over seconds. Rows: t, value, key, one line for each of `keys`; `steps_s` are where steps begin, drawn as faint rules."""
    import altair as alt

    colour = alt.Color("key:N", sort=list(keys), legend=None, scale=alt.Scale(domain=list(keys), range=list(TIME_COLOURS[: len(keys)])))
    drawn = (
        alt.Chart(alt.Data(values=list(rows)))
        .mark_line(strokeWidth=1.4)
        .encode(
            x=alt.X("t:Q", title="seconds since the first step began", axis=_fitting(), scale=alt.Scale(nice=False)),
            y=alt.Y("value:Q", title=unit, axis=alt.Axis(tickCount=4), scale=alt.Scale(zero=True)),
            color=colour,
        )
    )
    rules = alt.Chart(alt.Data(values=[{"t": at} for at in steps_s])).mark_rule(color=TEXT, opacity=0.18).encode(x=alt.X("t:Q"))
    return specification(alt.layer(rules, drawn).properties(width="container", height=130))


def lines(rows: Sequence[Row]) -> dict[str, Any]:
    """One figure of several configurations over the steps. Rows: step, value, key, colour, dash; a key stands at its line's end."""
    import altair as alt

    styles = {row["key"]: row for row in rows}
    keys = list(styles)
    names_at_end = _names_at_end(rows)
    values = [
        {
            "step": row["step"],
            "value": row["value"],
            "key": row["key"],
            "name": names_at_end.get((row["key"], row["step"]), ""),
            "tip": f"{row['key']} · step {row['step']}: {row['value']:.5g}",
        }
        for row in rows
    ]
    base = alt.Chart(alt.NamedData(name=_LATER))
    colour = alt.Color("key:N", sort=keys, legend=None, scale=alt.Scale(domain=keys, range=[styles[key]["colour"] for key in keys]))
    dash = alt.StrokeDash("key:N", sort=keys, legend=None, scale=alt.Scale(domain=keys, range=[styles[key]["dash"] for key in keys]))
    x = alt.X("step:Q", title="step", axis=alt.Axis(tickMinStep=1, tickCount=6, format="d"), scale=alt.Scale(nice=False, padding=16))
    y = alt.Y("value:Q", title=None, axis=_value_axis(rows), scale=alt.Scale(zero=False))
    drawn = base.mark_line(strokeWidth=2).encode(x=x, y=y, color=colour, strokeDash=dash)
    points = base.mark_point(filled=True, size=26, opacity=1).encode(x=x, y=y, color=colour, tooltip=alt.Tooltip("tip:N"))
    names = base.mark_text(align="left", dx=6, fontSize=12, color=TEXT).encode(x=x, y=y, text=alt.Text("name:N"))
    return specification((drawn + points + names).properties(width="container", height=150), values)


def _value_axis(rows: Sequence[Row]) -> alt.Axis:
    """Four labels or so; of very small values with an exponent, since as many zeros would take the room of the drawing."""
    import altair as alt

    tiny = 0 < max(abs(row["value"]) for row in rows) < 1e-3
    label = "datum.value === 0 ? '0' : format(datum.value, '.3~e')"
    return alt.Axis(tickCount=4, labelExpr=label) if tiny else alt.Axis(tickCount=4)


def _names_at_end(rows: Sequence[Row]) -> dict[tuple[str, int], str]:
    """(key, last step) -> the name that stands there; lines that end at nearly the same place share one: ``A, B``."""
    ends = {row["key"]: row for row in rows}
    values = [row["value"] for row in rows]
    near = (max(values) - min(values)) * 0.08
    groups: list[list[Row]] = []
    for row in sorted(ends.values(), key=lambda row: (row["step"], row["value"])):
        if groups and groups[-1][-1]["step"] == row["step"] and row["value"] - groups[-1][-1]["value"] <= near:
            groups[-1].append(row)
        else:
            groups.append([row])
    return {(group[0]["key"], group[0]["step"]): ", ".join(sorted(row["key"] for row in group)) for group in groups}


def _fitting() -> alt.Axis:
    """A horizontal axis with as many labels as its width has room for."""
    import altair as alt

    return alt.Axis(tickCount=alt.ExprRef(_TICKS), format=",~f")


def _stage_colours(stages: Sequence[str]) -> alt.Color:
    import altair as alt

    styles = [style_of(stage) for stage in stages]
    return alt.Color(
        "stage:N", legend=None, scale=alt.Scale(domain=[style.label for style in styles], range=[style.colour for style in styles])
    )
