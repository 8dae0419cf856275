"""How many GPUs a run may have: those that CUDA would see."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from rlmbench.collectors.devices import Inventory, Listed
from rlmbench.environment import host
from rlmbench.errors import UserError
from rlmbench.runner import cells
from rlmbench.runner.cells import check_devices

NOTHING = Inventory(reason="NVML: Driver Not Loaded; install NVIDIA's driver")


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Inventory, str | None], None]]:
    def make(found: Inventory, visible: str | None) -> None:
        monkeypatch.setattr(host, "inventory", lambda: found)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        host.gpus.cache_clear()

    yield make
    host.gpus.cache_clear()


def asking_for(count: int, device: str = "cuda") -> Any:
    """A plan whose one framework holds `count` devices."""
    one = SimpleNamespace(parts=["toy"], experiment=SimpleNamespace(devices=count))
    return SimpleNamespace(device=device, each=[one])


@pytest.fixture(autouse=True)
def _counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "devices_needed", lambda plan, framework: plan.experiment.devices)


FOUR = Inventory(tuple(Listed(f"GPU-{number}", "NVIDIA L4", 24 << 30, "570") for number in range(4)), "570")


@pytest.mark.parametrize(
    ("found", "visible", "count", "words"),
    [
        (FOUR, None, 8, "the experiment needs 8 GPUs, this machine has 4 GPUs: choose a smaller --scale"),
        (FOUR, "2,3", 4, "needs 4 GPUs, this machine has 4 GPUs, of which CUDA_VISIBLE_DEVICES leaves 2: choose"),
        (FOUR, "", 1, "needs 1 GPU, this machine has 4 GPUs, of which CUDA_VISIBLE_DEVICES leaves none: choose"),
        (NOTHING, None, 1, "this machine has no GPUs (NVML: Driver Not Loaded; install NVIDIA's driver): choose"),
    ],
)
def test_more_gpus_than_cuda_would_see_are_refused(
    gpus: Callable[[Inventory, str | None], None], found: Inventory, visible: str | None, count: int, words: str
) -> None:
    gpus(found, visible)
    with pytest.raises(UserError) as caught:
        check_devices(asking_for(count))
    assert words in str(caught.value)
    check_devices(asking_for(count, "cpu"))


def test_as_many_as_it_sees_are_not(gpus: Callable[[Inventory, str | None], None]) -> None:
    gpus(FOUR, "GPU-3,GPU-0")
    check_devices(asking_for(2))
    assert [one["uuid"] for one in host.visible_devices()] == ["GPU-3", "GPU-0"]
