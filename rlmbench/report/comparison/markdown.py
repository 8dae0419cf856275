"""A comparison as Markdown, for a pull request. What stands in a record is escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rlmbench.comparison.figures import Comparison, Pair
from rlmbench.errors import as_line
from rlmbench.report.comparison import words


def markdown(comparison: Comparison) -> str:
    """The whole comparison; it ends in a newline."""
    parts = [f"### {_text(words.title(comparison))}", _text(words.device_line(comparison)), _verdicts(comparison)]
    alone = [f"- **{what}**: {_text(sentence)}" for what, sentence in words.alone(comparison)]
    if comparison.gate:
        judged = [f"- **{_text(pair.outcome)}**: {_text(pair.sentence)}" for pair in comparison.gate.pairs]
        parts.insert(1, "\n".join([f"**{_text(words.gate_line(comparison))}**", "", *judged, *alone]))
    elif alone:
        parts.append("\n".join(alone))
    if (more := words.left_out(comparison)) is not None:
        parts.append(_text(more))
    found = words.shared_reasons(comparison)
    if found:
        lines = [f"- **{_severity(reason.severity)}** ({words.few(pairs)}): {_text(reason.sentence)}" for pairs, reason in found]
        parts.append(_listed(lines, "reasons"))
    parts.append(_table(words.HEADLINE, [words.headline(one, comparison) for one in words.told_first(comparison)], numbers_from=2))
    if (cut := words.more(len(comparison.configurations), "configurations")) is not None:
        parts.append(_text(cut))
    lost = [
        f"- **{one.key}** {_text(run.id)}: {_text(ending)}" for one in comparison.configurations for run, ending in words.lost_runs(one)
    ]
    if lost:
        parts.append(f"Runs that did not end well:\n\n{_listed(lost, 'runs')}")
    if (again := words.made_again(comparison)) is not None:
        parts.append(_text(words.sentence(again)))
    if (warning := words.many_pairs(comparison)) is not None:
        parts.append(_text(warning))
    differing = [pair for pair in comparison.pairs if pair.differences]
    parts += [_differences(pair, comparison) for pair in differing[: words.MOST_LINES]]
    if (cut := words.more(len(differing), "pairs with their differences")) is not None:
        parts.append(_text(cut))
    heads = words.stage_heads(comparison)[: words.MOST_COLUMNS]
    rows = [(row.label, *row.cells[: len(heads)]) for row in words.stage_rows(comparison)]
    parts.append(
        _details(
            "Where a step's time goes: mean seconds of a measured step",
            _table(("stage", *heads), rows, numbers_from=1),
        )
    )
    parts.append(f"<sub>{_text(words.CAPTION)}</sub>")
    return "\n\n".join(parts) + "\n"


def _severity(severity: str) -> str:
    return "prevents it" if severity == "prevents" else "reservation"


def _verdicts(comparison: Comparison) -> str:
    if not comparison.pairs:
        return _text(words.nothing_to_compare(comparison))
    told = words.verdicts(comparison)
    return _listed([f"- **{words.few(pairs)}: {verdict}**; {_text(speed)}" for pairs, verdict, speed in told], "verdicts")


def _listed(lines: Sequence[str], what: str) -> str:
    cut = words.more(len(lines), what)
    return "\n".join([*lines[: words.MOST_LINES], *([f"- {_text(cut)}"] if cut else [])])


def _differences(pair: Pair, comparison: Comparison) -> str:
    a, b = comparison.configuration(pair.a), comparison.configuration(pair.b)
    rows = [
        (difference.changes, difference.subject, difference.a, difference.b, difference.why, difference.unify or "nothing")
        for difference in pair.differences
    ]
    made = _table(("changes", "what", a.key, b.key, "why", "made equal by"), rows, numbers_from=6)
    return _details(f"In what {words.named(a)} and {words.named(b)} differ: {len(rows)}", made)


def _details(summary: str, body: str) -> str:
    return f"<details><summary>{_text(summary)}</summary>\n\n{body}\n\n</details>"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers_from: int) -> str:
    rule = ["---:" if place >= numbers_from else "---" for place in range(len(heads))]
    lines = [[_text(cell) for cell in heads], rule, *[[_text(cell) for cell in row] for row in rows]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _text(value: str) -> str:
    """`value` as text: no markup, no table cell and no mention of a person comes out of a record."""
    escaped = re.sub(r"([\\`*_\[\]|~#])", r"\\\1", as_line(value))
    return escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("@", "@\u200b")
