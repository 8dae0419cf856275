"""What can be measured here and what not: one line each, with the reason."""

from __future__ import annotations

from typing import NamedTuple


class Capability(NamedTuple):
    """One thing that a collector can measure, or cannot for `reason`. `device` is a UUID, or None for the host.

    An available one may have a `reason` too: in what it is less than it could be.
    """

    name: str
    available: bool
    reason: str | None = None
    device: str | None = None
