"""Ratios of speed as text: one rule, so that a figure reads alike in every sentence and every format."""

from __future__ import annotations


def ratio(value: float) -> str:
    """How many times as fast, to three digits; near 1 to a thousandth, since two decimals would hide the difference there."""
    if value >= 9.995:
        return f"{value:,.0f}x" if value >= 99.95 else f"{value:.1f}x"
    return f"{value:.3f}x" if value < 1.1 else f"{value:.2f}x"


def about(value: float) -> str:
    """A ratio that is reckoned, not measured, to two digits: ``about 1.6x``."""
    return f"about {value:,.0f}x" if value >= 9.95 else f"about {value:.1f}x" if value >= 0.995 else f"about {value:.2f}x"
