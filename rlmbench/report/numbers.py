"""Figures as a person reads them: three significant digits, always a unit, and never 0 for what is absent.

Every function takes None for an absent figure and answers ``n/a (reason)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

DEFAULT_REASON = "not recorded"


def absent(reason: str | None = None) -> str:
    """What stands where a figure cannot be given."""
    return f"n/a ({reason or DEFAULT_REASON})"


def _missing(value: float | None) -> bool:
    return value is None or not math.isfinite(value)


def significant(value: float, digits: int = 3) -> str:
    """`value` to `digits` significant digits, without an exponent, thousands separated; whole digits are never cut."""
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    rounded = round(value, decimals)
    # 9.996 rounds up to 10.0, which has one digit more before the point.
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(rounded)))) if rounded else decimals
    return f"{value:,.{decimals}f}"


def seconds(value: float | None, reason: str | None = None) -> str:
    """Seconds, or milli- or microseconds where seconds would be a row of zeros."""
    if _missing(value):
        return absent(reason)
    assert value is not None
    for limit, factor, unit in ((0.9995e-3, 1e6, "µs"), (0.9995, 1e3, "ms")):
        if 0 < abs(value) < limit:
            return f"{significant(value * factor)} {unit}"
    return f"{significant(value)} s"


def fixed_seconds(value: float | None, reason: str | None = None) -> str:
    """Seconds with three decimals and no unit, for a column whose heading carries it."""
    if _missing(value):
        return absent(reason)
    assert value is not None
    return "<0.001" if 0 < value < 0.0005 else f"{value:,.3f}"


def share(value: float | None, reason: str | None = None) -> str:
    """A share of 1 in per cent with one decimal; more near the ends, so that 99.97% does not read as all of it."""
    if _missing(value):
        return absent(reason)
    assert value is not None
    percent = value * 100
    if 0 < percent < 0.05:
        return "<0.1%" if percent < 0.005 else f"{percent:.2f}%"
    if 99.95 <= percent < 100:
        return f"{math.floor(percent * 100) / 100:.2f}%"
    return f"{percent:.1f}%"


def count(value: float | None, unit: str = "", reason: str | None = None) -> str:
    """A whole number with thousands separated, or one decimal where the mean of counts is not whole."""
    if _missing(value):
        return absent(reason)
    assert value is not None
    text = f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"
    return f"{text} {unit}".rstrip()


def rate(value: float | None, unit: str, reason: str | None = None) -> str:
    """So many per second: `unit` names what is counted."""
    if _missing(value):
        return absent(reason)
    assert value is not None
    return f"{significant(value)} {unit}/s"


SIZE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size(value: float | None, reason: str | None = None) -> str:
    """Bytes in binary units."""
    if _missing(value):
        return absent(reason)
    assert value is not None
    return _size_in(value, _size_unit(value))


def sizes(values: Iterable[float | None]) -> Callable[[float | None], str]:
    """How each of `values` is written where they stand beside each other: in one unit, that of the largest, so that they compare at a glance."""
    known = [value for value in values if value is not None]
    unit = _size_unit(max(known, default=0.0))
    return lambda value: absent() if value is None else _size_in(value, unit)


def _size_unit(value: float) -> int:
    place = 0
    while abs(value) / 1024**place >= 1023.5 and place < len(SIZE_UNITS) - 1:
        place += 1
    return place


def _size_in(value: float, unit: int) -> str:
    return f"{significant(value / 1024**unit)} {SIZE_UNITS[unit]}"


def joules(value: float | None, reason: str | None = None) -> str:
    """Energy, in kilojoules where joules would be many digits."""
    if _missing(value):
        return absent(reason)
    assert value is not None
    return f"{significant(value)} J" if abs(value) < 99_950 else f"{significant(value / 1e3)} kJ"


def clock(value: float | None, reason: str | None = None) -> str:
    """A clock's rate."""
    return absent(reason) if _missing(value) else f"{value / 1e6:,.0f} MHz"  # type: ignore[operator]


def plain(value: float | None, reason: str | None = None) -> str:
    """A dimensionless number; small or large ones with an exponent."""
    if _missing(value):
        return absent(reason)
    assert value is not None
    if value != 0 and not 1e-3 <= abs(value) < 1e7:
        return f"{value:.2e}"
    text = significant(value, 4)
    return text.rstrip("0").rstrip(".") if "." in text else text


def ratio(value: float | None, reason: str | None = None) -> str:
    """How many times as large: two decimals, and three digits from ten times on."""
    if _missing(value):
        return absent(reason)
    assert value is not None
    return f"{value:,.2f}x" if abs(value) < 9.995 else f"{significant(value)}x"


def cores(value: float | None, reason: str | None = None) -> str:
    """Processor cores in the mean over time, to a hundredth of one."""
    if _missing(value):
        return absent(reason)
    assert value is not None
    return "<0.01" if 0 < value < 0.005 else f"{value:,.2f}"


def when(unix_s: float | None) -> str:
    """A moment given in seconds since 1970, to the second, in UTC."""
    from datetime import UTC, datetime

    return absent() if unix_s is None else datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
