"""Readings of counters and gauges, attributed to stretches of time.

A counter only grows (CPU seconds, joules): what it gained in a stretch is interpolated linearly between its readings, and bounded by
them. A gauge (memory, power) stands for the time between its readings. Times are nanoseconds of the driver's clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlmbench.metrics.figures import Amount, Level
from rlmbench.metrics.statistics import Estimate, slope

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Whole = NDArray[np.int64]

from rlmbench.metrics.stages import Interval, Window

GAP = 5
"""A gauge is not known between two readings that are more than this many times the median distance apart."""
COVERED_ENOUGH = 0.95
"""A counter's gain is given for stretches of which its readings enclose at least this share."""


@dataclass(frozen=True)
class Readings:
    """What one instrument said, in order of time; what it could not say is left out."""

    times_ns: Whole
    values: Floats

    @property
    def resolution_s(self) -> float | None:
        """Median time between two readings."""
        import numpy as np

        return float(np.median(np.diff(self.times_ns))) / 1e9 if len(self.times_ns) > 1 else None


@dataclass(frozen=True)
class Gains:
    """What a counter gained between each two readings: one value less than there are times; NaN where it is not known."""

    times_ns: Whole
    gained: Floats


def readings_of(frame: pd.DataFrame, column: str, shift_ns: int = 0) -> Readings:
    """A column of samples, moved to the driver's clock; of two readings at the same moment the first counts."""
    import numpy as np

    values = frame[column].to_numpy("float64", na_value=np.nan)
    known = ~np.isnan(values)
    times, first = np.unique(frame["t_ns"].to_numpy("int64")[known] + shift_ns, return_index=True)
    return Readings(times, values[known][first])


def changes(readings: Readings) -> Readings:
    """Without readings that repeat the one before: of a counter that the hardware renews more rarely than it is read."""
    import numpy as np

    if not len(readings.times_ns):
        return readings
    new = np.concatenate([[True], np.diff(readings.values) != 0])
    return Readings(readings.times_ns[new], readings.values[new])


def gains_of(counter: Readings) -> Gains:
    """A counter's gains. One that falls began anew: what it gained meanwhile is not known."""
    import numpy as np

    gained = np.diff(counter.values)
    return Gains(counter.times_ns, np.where(gained >= 0, gained, np.nan))


def integral_of(rate: Readings) -> Gains:
    """The integral of a rate per second, such as joules from watts; not known over a gap in the readings."""
    import numpy as np

    seconds = np.diff(rate.times_ns) / 1e9
    return Gains(rate.times_ns, np.where(_near(rate.times_ns), seconds * _between(rate.values), np.nan))


def gained(gains: Gains, stretches: Sequence[Interval], steps: int = 1) -> Amount | None:
    """What the counter gained within `stretches` (in order, disjoint), over `steps`.

    None without stretches, or where less than `COVERED_ENOUGH` of them lies between readings.
    """
    import numpy as np

    total_ns = _length_ns(stretches)
    if not total_ns or len(gains.times_ns) < 2:
        return None
    inside = _within_ns(gains.times_ns, stretches)
    known = ~np.isnan(gains.gained)
    if inside[known].sum() < COVERED_ENOUGH * total_ns:
        return None
    inside, got, lasted = inside[known], gains.gained[known], np.diff(gains.times_ns)[known]
    whole = inside == lasted
    return Amount(
        value=float((got * (inside / lasted)).sum()) / steps,
        low=float(got[whole].sum()) / steps,
        high=float(got[inside > 0].sum()) / steps,
        resolved=bool(whole.any()),
    )


def level(readings: Readings, stretches: Sequence[Interval], *, backward: bool = False) -> Level | None:
    """Mean over time and highest reading of a gauge within `stretches`; None when no reading lies there.

    Between two readings the gauge has the mean of both or, where each is a mean since the one before (`backward`), the second. A gap
    in the readings has no weight.
    """
    import numpy as np

    there = _lies_in(readings.times_ns, stretches)
    if not there.any():
        return None
    seen = readings.values[there]
    weights = np.where(_near(readings.times_ns), _within_ns(readings.times_ns, stretches), 0)
    values = readings.values[1:] if backward else _between(readings.values)
    mean = float((values * weights).sum() / weights.sum()) if weights.sum() else float(seen.mean())
    return Level(mean=mean, peak=float(seen.max()), readings=len(seen))


def within(readings: Readings, stretches: Sequence[Interval]) -> Floats:
    """The readings that lie within `stretches`."""
    there: Floats = readings.values[_lies_in(readings.times_ns, stretches)]
    return there


def growth(readings: Readings, windows: Sequence[Window]) -> Estimate | None:
    """Slope over steps of the last reading within each: above 0 with its whole interval, it leaks. None below 3 such steps."""
    last: dict[int, float] = {}
    for window in windows:
        first, end = readings.times_ns.searchsorted([window.start_ns, window.end_ns])
        if first < end:
            last[window.step] = float(readings.values[end - 1])
    return slope([float(step) for step in last], list(last.values()))


def together(amounts: Sequence[Amount | None]) -> Amount | None:
    """Several counters' gains as one; None unless all are known."""
    known = [amount for amount in amounts if amount is not None]
    if not known or len(known) < len(amounts):
        return None
    return Amount(
        value=sum(one.value for one in known),
        low=sum(one.low for one in known),
        high=sum(one.high for one in known),
        resolved=all(one.resolved for one in known),
    )


def _length_ns(stretches: Sequence[Interval]) -> int:
    return sum(end - start for start, end in stretches)


def _between(values: Floats) -> Floats:
    between: Floats = (values[1:] + values[:-1]) / 2
    return between


def _near(times_ns: Whole) -> NDArray[Any]:
    """For each two neighbouring readings, whether no gap lies between them."""
    import numpy as np

    apart = np.diff(times_ns)
    return apart <= GAP * np.median(apart) if len(apart) else apart.astype(bool)


def _within_ns(times_ns: Whole, stretches: Sequence[Interval]) -> Whole:
    """For each two neighbouring times, how much of the time between them lies within `stretches`; exact."""
    import numpy as np

    if not stretches:
        return np.zeros(max(len(times_ns) - 1, 0), dtype=np.int64)
    starts, lengths, place = _place(times_ns, stretches)
    before = np.concatenate([[0], np.cumsum(lengths)])
    last = np.maximum(place - 1, 0)
    until = before[last] + np.clip(times_ns - starts[last], 0, lengths[last])
    within_ns: Whole = np.diff(until)
    return within_ns


def _lies_in(times_ns: Whole, stretches: Sequence[Interval]) -> NDArray[Any]:
    """For each time, whether it lies within one of `stretches`, [start, end)."""
    import numpy as np

    if not stretches:
        return np.zeros(len(times_ns), dtype=bool)
    starts, lengths, place = _place(times_ns, stretches)
    last = np.maximum(place - 1, 0)
    inside: NDArray[Any] = (place > 0) & (times_ns - starts[last] < lengths[last])
    return inside


def _place(times_ns: Whole, stretches: Sequence[Interval]) -> tuple[Whole, Whole, Whole]:
    """Where the stretches start, how long they are, and for each time how many of them have begun."""
    import numpy as np

    edges = np.asarray(stretches, dtype=np.int64)
    starts = edges[:, 0]
    return starts, edges[:, 1] - starts, starts.searchsorted(times_ns, side="right")
