"""Which scale a machine gets, and why."""

from __future__ import annotations

import pytest

from rlmbench.errors import UserError
from rlmbench.experiment import Suite
from rlmbench.experiment.scale import GIB, choose_scale


def suite(**scales: tuple[int, float]) -> Suite:
    sizes = {name: {"devices": devices, "device_memory_gib": gib} for name, (devices, gib) in scales.items()}
    return Suite.model_validate({"name": "mine", "title": "", "description": "", "sources": [], "experiment": {}, "scales": sizes})


FOUR = suite(tiny=(0, 0), small=(1, 40), base=(8, 80), large=(64, 80))


@pytest.mark.parametrize(
    ("gpus", "memory_gib", "scale", "reason"),
    [
        (0, None, "tiny", "tiny is the largest scale that fits a CPU (no GPU was found): small needs 1 GPU"),
        (1, 139.8, "small", "small is the largest scale that fits 1 GPU of 139.8 GiB: base needs 8 GPUs"),
        (1, None, "small", "small is the largest scale that fits 1 GPU: base needs 8 GPUs"),
        # 24 GB is too little for `small`, but an "80 GB" card that reports 79.6 GiB is enough for `base`.
        (1, 24.0, "tiny", "tiny is the largest scale that fits 1 GPU of 24.0 GiB: small needs 40 GiB of memory per GPU"),
        (8, 79.6, "base", "base is the largest scale that fits 8 GPUs of 79.6 GiB: large needs 64 GPUs"),
        (8, 44.5, "small", "small is the largest scale that fits 8 GPUs of 44.5 GiB: base needs 80 GiB of memory per GPU"),
        (7, 79.6, "small", "small is the largest scale that fits 7 GPUs of 79.6 GiB: base needs 8 GPUs"),
        (64, 79.6, "large", "large is the largest scale that fits 64 GPUs of 79.6 GiB"),
    ],
)
def test_auto_takes_the_largest_that_fits(gpus: int, memory_gib: float | None, scale: str, reason: str) -> None:
    memory = None if memory_gib is None else int(memory_gib * GIB)
    assert choose_scale(FOUR, gpus, memory, "auto") == (scale, reason)


def test_the_order_of_scales_does_not_matter() -> None:
    assert choose_scale(suite(base=(8, 0), tiny=(0, 0), small=(1, 0)), 8, None, "auto")[0] == "base"


def test_auto_with_nothing_that_fits_is_refused() -> None:
    with pytest.raises(UserError, match=r"^no scale of suite mine fits a CPU \(no GPU was found\): small needs 1 GPU$"):
        choose_scale(suite(base=(8, 80), small=(1, 40)), 0, None, "auto")


def test_a_named_scale_is_taken_where_its_gpus_are() -> None:
    assert choose_scale(FOUR, 8, 80 * GIB, "small") == ("small", "small was asked for")
    assert choose_scale(FOUR, 8, 80 * GIB, "tiny") == ("tiny", "tiny was asked for")


def test_a_named_scale_with_little_memory_is_taken_with_a_warning() -> None:
    assert choose_scale(FOUR, 1, 24 * GIB, "small") == (
        "small",
        "small was asked for, although it needs 40 GiB of memory per GPU and this machine has 1 GPU of 24.0 GiB",
    )


def test_a_named_scale_without_its_gpus_is_refused_unless_forced() -> None:
    with pytest.raises(UserError) as caught:
        choose_scale(FOUR, 1, 80 * GIB, "base")
    assert str(caught.value) == "--scale base: needs 8 GPUs, this machine has 1 GPU of 80.0 GiB; --scale auto picks one that fits"
    assert choose_scale(FOUR, 0, None, "base", force=True) == (
        "base",
        "base was asked for, although it needs 8 GPUs and this machine has a CPU (no GPU was found)",
    )


@pytest.mark.parametrize(("asked", "meant"), [("smal", "small"), ("atuo", "auto"), ("Base", "base")])
def test_an_unknown_scale_names_the_nearest(asked: str, meant: str) -> None:
    with pytest.raises(UserError) as caught:
        choose_scale(FOUR, 8, None, asked)
    assert str(caught.value) == f"--scale {asked}: unknown scale (did you mean '{meant}'?); suite mine has tiny, small, base, large"
