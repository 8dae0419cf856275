"""The chapter on verdicts: may the pairs be compared, who is faster, and by which evidence."""

from __future__ import annotations

from dataclasses import replace

from rlmbench.comparison.figures import Comparison, Pair, Verdict
from rlmbench.comparison.wording import ratio
from rlmbench.report import numbers
from rlmbench.report.comparison import words
from rlmbench.report.parts import Cell, Folded, Line, Note, Part, Section, State, Table, columns, line
from rlmbench.report.words import unbroken

MANY = 15
"""Lines from which on a table is folded."""
MOST_LINES = 500
STATES: dict[Verdict, State] = {"comparable": "ok", "comparable with reservations": "warn", "not comparable": "bad"}


def verdicts_section(comparison: Comparison, shown_above: int) -> Section:
    """Every pair, every reason, and every configuration where the page's head shows only `shown_above` of them."""
    parts: list[Part] = []
    if comparison.pairs:
        parts.append(folded_if_long(_pairs_table(comparison)))
        parts.append(folded_if_long(_reasons_table(comparison)))
    else:
        parts.append(Note(words.sentence(words.nothing_to_compare(comparison))))
    if len(comparison.configurations) > shown_above or any(words.short(one.name) != one.name for one in comparison.configurations):
        parts.append(folded_if_long(_configurations_table(comparison)))
    parts += [Note(f"{one.sentence}.") for one in comparison.alone]
    parts += [Note(note) for note in (words.left_out(comparison), words.many_pairs(comparison)) if note is not None]
    intro = (
        f"The run is the unit. Faster or slower needs all three: p of an exact permutation test at most {comparison.alpha:.0%}, a 95% interval "
        f"without 1, and a ratio that differs from 1 by at least {numbers.share(comparison.minimum_effect)}. The smallest p that so many runs "
        "can give is looked at first."
    )
    return Section("verdicts", "May they be compared, and who is faster?", "Verdicts", intro, tuple(parts))


def pairs_text(pairs: str) -> str:
    """``A v B, A v C``, where a line may end between two pairs only."""
    return words.few(pairs).replace(" v ", unbroken(" v "))


def folded_if_long(table: Table) -> Part:
    """A long table on demand; of a very long one the beginning, and the caption says so."""
    if len(table.lines) > MOST_LINES:
        caption = f"{table.caption}: the first {MOST_LINES} of {len(table.lines):,}, rlmbench compare --json prints all"
        table = replace(table, caption=caption, lines=table.lines[:MOST_LINES])
    return Folded(table) if len(table.lines) > MANY else table


def _pairs_table(comparison: Comparison) -> Table:
    headings = columns("pair", "verdict", "tokens/s", "#ratio", "#95% interval", "#p", "#smallest p", "#runs", "reasons")
    return Table("Every pair", headings, tuple(_pair_line(pair) for pair in comparison.pairs), prose=True)


def _pair_line(pair: Pair) -> Line:
    verdict = Cell(pair.verdict, state=STATES[pair.verdict])
    counted = f"{len(pair.reasons)}"
    speed = pair.speed
    if speed is None:
        return line(words.pair_name(pair), verdict, "no speed is claimed", *["–"] * 5, counted)
    interval = words.NOT_GIVEN if speed.low is None or speed.high is None else f"{ratio(speed.low)} to {ratio(speed.high)}"
    return line(
        words.pair_name(pair),
        verdict,
        (f"{pair.a} {speed.verdict}" if speed.verdict in ("faster", "slower") else speed.verdict)
        + (", at equal tokens" if speed.adjustment else "")
        + (f"; {waitless}" if (waitless := words.without_waits(speed)) else ""),
        ratio(speed.ratio),
        interval,
        f"{speed.p:.2g}",
        f"{speed.attainable_p:.2g}",
        f"{speed.runs_a} and {speed.runs_b}",
        counted,
    )


def _reasons_table(comparison: Comparison) -> Table:
    lines = tuple(
        line(
            pairs_text(pairs),
            Cell("prevents it", state="bad") if reason.severity == "prevents" else Cell("reservation", state="warn"),
            reason.sentence,
            Cell(reason.kind, code=True),
        )
        for pairs, reason in words.shared_reasons(comparison)
    )
    empty = "none: the same work was asked and proven, on the same hardware, in enough runs"
    return Table(
        "What speaks against comparing them", columns("pairs", "weight", "reason, with its evidence", "kind"), lines, empty, prose=True
    )


def _configurations_table(comparison: Comparison) -> Table:
    headings = columns(*(head if place < 2 else f"#{head}" for place, head in enumerate(words.HEADLINE)))
    return Table("Every configuration", headings, tuple(line(*words.headline(one, comparison)) for one in comparison.configurations))
