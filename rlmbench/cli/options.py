"""Options that several commands share, with the same words and the same check."""

from __future__ import annotations

from typing import Annotated

import typer

from rlmbench.errors import UserError

Campaign = Annotated[str | None, typer.Option(metavar="ID|latest", help="Only the runs of this campaign (latest: of each suite).")]
Since = Annotated[str | None, typer.Option(metavar="WHEN", help="Only runs begun since: 2026-11-30, 2026-11-30T18:00 (UTC), 12h, 7d.")]


def check_minimum_effect(share: float) -> None:
    """Raises UserError for what is no share."""
    if not 0 <= share < 1:
        raise UserError(f"--minimum-effect {share:g}: give a share from 0 to 1, such as 0.03 for 3%")
