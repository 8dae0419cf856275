"""One thing that was looked at, and what was seen."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """`check` says what must hold, `evidence` what was seen: the figures, or the first things that are wrong."""

    check: str
    ok: bool
    evidence: str


def finding(check: str, wrong: list[str], seen: str) -> Finding:
    """A check that holds unless `wrong` names something; `seen` is the evidence when it holds."""
    if not wrong:
        return Finding(check, True, seen)
    more = f" (and {len(wrong) - 3} more)" if len(wrong) > 3 else ""
    return Finding(check, False, "; ".join(wrong[:3]) + more)
