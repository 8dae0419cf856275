from __future__ import annotations

import math

import pytest

from rlmbench.report import numbers


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 s"),
        (0.000012, "12.0 µs"),
        (0.00999, "9.99 ms"),
        (0.8125, "812 ms"),
        (0.99949, "999 ms"),
        (0.99951, "1.00 s"),
        (9.996, "10.0 s"),
        (12.34, "12.3 s"),
        (104.4, "104 s"),
        (12345.6, "12,346 s"),
    ],
)
def test_seconds_keep_three_digits_and_a_unit(value: float, text: str) -> None:
    assert numbers.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0.0%"),
        (0.00001, "<0.1%"),
        (0.0002, "0.02%"),
        (0.4472, "44.7%"),
        (0.99949, "99.9%"),
        (0.99972, "99.97%"),
        (0.99999, "99.99%"),
        (1, "100.0%"),
    ],
)
def test_a_share_is_never_rounded_to_all_or_nothing(value: float, text: str) -> None:
    assert numbers.share(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0 B"), (1023, "1,023 B"), (1024, "1.00 KiB"), (3 * 1024**3, "3.00 GiB"), (1023.9 * 1024**3, "1.00 TiB")]
)
def test_sizes_are_in_binary_units(value: float, text: str) -> None:
    assert numbers.size(value) == text


@pytest.mark.parametrize(("value", "text"), [(0.987, "0.99x"), (9.994, "9.99x"), (9.996, "10.0x"), (315.94, "316x"), (12345.6, "12,346x")])
def test_a_ratio_has_three_digits_from_ten_on(value: float, text: str) -> None:
    assert numbers.ratio(value) == text


@pytest.mark.parametrize(("value", "text"), [(0, "0.00"), (0.0049, "<0.01"), (0.0488, "0.05"), (0.154, "0.15"), (12.345, "12.35")])
def test_cores_are_told_to_a_hundredth(value: float, text: str) -> None:
    assert numbers.cores(value) == text


def test_sizes_beside_each_other_have_one_unit() -> None:
    mib = 1024**2
    written = numbers.sizes([652 * mib, None, 6 * 1024 * mib])
    assert [written(value) for value in (652 * mib, 6 * 1024 * mib)] == ["0.637 GiB", "6.00 GiB"]
    assert numbers.sizes([])(5.0) == "5.00 B"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e-6, "1.00e-06"),
        (-3.874e-4, "-3.87e-04"),
        (0.001, "0.001"),
        (0.0028, "0.0028"),
        (5.83, "5.83"),
        (41103.0, "41,103"),
        (-0.5, "-0.5"),
    ],
)
def test_a_plain_number(value: float, text: str) -> None:
    assert numbers.plain(value) == text


@pytest.mark.parametrize(
    "form",
    [numbers.seconds, numbers.fixed_seconds, numbers.share, numbers.count, numbers.size, numbers.plain, numbers.ratio, numbers.cores],
)
@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_what_is_absent_says_so_and_is_never_zero(form, value: float | None) -> None:
    assert form(value, reason="no step was measured") == "n/a (no step was measured)"


def test_counts_rates_and_moments() -> None:
    assert numbers.count(12345, "tokens") == "12,345 tokens"
    assert numbers.count(92.1) == "92.1"
    assert numbers.rate(5982.4, "tokens") == "5,982 tokens/s"
    assert numbers.rate(None, "tokens") == "n/a (not recorded)"
    assert numbers.when(0) == "1970-01-01 00:00:00 UTC"
    assert numbers.fixed_seconds(0.0004) == "<0.001"
