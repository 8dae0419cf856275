"""Memory, energy, activity, clocks and traffic of each device that the run held.

Source: `device_samples` and `device_processes`; definitions: docs/metrics.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from rlmbench.metrics.attribution import Attribution, Binding, Stretches, seconds_of
from rlmbench.metrics.figures import Amount, DeviceFigures, DeviceStage, Energy, Level
from rlmbench.metrics.idle import bubbles_of
from rlmbench.metrics.readings import (
    Gains,
    Readings,
    changes,
    gained,
    gains_of,
    growth,
    integral_of,
    level,
    readings_of,
    together,
    within,
)

if TYPE_CHECKING:
    import pandas as pd

SLOWED_BY = ("slowdown", "thermal", "brake")
"""Parts of the names of reasons that mean throttling. The others (idle, power cap, clocks as set) are no fault of the machine."""
POWER_CAP = "power_cap"

Source = Literal["counter", "power"]


@dataclass(frozen=True)
class _Instruments:
    """The readings of one device, each derived once."""

    samples: pd.DataFrame
    shift_ns: int

    def readings(self, column: str) -> Readings:
        return readings_of(self.samples, column, self.shift_ns)

    @cached_property
    def energy(self) -> tuple[Gains, Source, float | None] | None:
        """Joules gained, from what, and how finely; None where the device gives neither energy nor power."""
        counter = changes(self.readings("energy_j"))
        if len(counter.times_ns) > 1:
            return gains_of(counter), "counter", counter.resolution_s
        power = self.readings("power_w")
        return (integral_of(power), "power", power.resolution_s) if len(power.times_ns) > 1 else None

    @cached_property
    def throttled(self) -> dict[str, Readings]:
        """Reason -> 1 where the device gave it, else 0; empty where it gave none of it all."""
        known = self.samples[self.samples["throttle_reasons"].notna()]
        given = [set(filter(None, map(str.strip, str(text).split(",")))) for text in known["throttle_reasons"]]
        return {name: self._flags(known, [name in of for of in given]) for name in sorted(set().union(*given))}

    def any_of(self, parts: Sequence[str]) -> Readings:
        """1 where any reason was given whose name holds one of `parts`, else 0."""
        known = self.samples[self.samples["throttle_reasons"].notna()]
        return self._flags(known, [any(part in str(text) for part in parts) for text in known["throttle_reasons"]])

    def _flags(self, known: pd.DataFrame, flags: Sequence[bool]) -> Readings:
        return readings_of(known.assign(flag=[float(flag) for flag in flags]), "flag", self.shift_ns)

    @cached_property
    def gauges(self) -> dict[str, Readings]:
        return {name: self.readings(name) for name in ("power_w", "memory_used_bytes", *AVERAGED)} | {"slowed": self.any_of(SLOWED_BY)}

    def mean(self, name: str, stretches: Stretches) -> float | None:
        found = level(self.gauges[name], stretches, backward=name in AVERAGED)
        return found.mean if found is not None else None

    def level(self, name: str, stretches: Stretches) -> Level | None:
        return level(self.gauges[name], stretches)

    def low_sm(self, stretches: Stretches) -> float | None:
        active = self.mean("sm_active", stretches)
        return 1 - active if active is not None else None

    def joules(self, stretches: Stretches, steps: int) -> Amount | None:
        return gained(self.energy[0], stretches, steps) if self.energy is not None else None


AVERAGED = (
    "nvml_kernel_present",
    "sm_active",
    "sm_occupancy",
    "tensor_active",
    "dram_active",
    "nvlink_rx_bytes_per_s",
    "nvlink_tx_bytes_per_s",
)
"""Gauges each of whose readings is a mean over the time since the one before."""


@dataclass(frozen=True)
class Measured:
    """A device's figures, with what the run's energy is added up from."""

    figures: DeviceFigures
    no_stage_j: Amount | None
    shared_j: Amount | None


def device_figures(run: Attribution) -> list[Measured]:
    """Each device that the run held, by node and device; nothing of nodes whose clock is not known."""
    return [_device(run, binding) for binding in run.bindings if binding.node in run.shift_ns]


def _device(run: Attribution, binding: Binding) -> Measured:
    shift = run.shift_ns[binding.node]
    device = _Instruments(run.of(run.tables.device_samples, binding.node, binding.device), shift)
    stages, everything, steps = run.stages_on(binding), run.measured, run.steps
    nothing = run.without(stages)
    clocks, temperature = within(device.readings("sm_clock_hz"), everything), within(device.readings("temperature_c"), everything)
    energy, active = device.energy, device.mean("sm_active", everything)
    figures = DeviceFigures(
        device=binding.device,
        node=binding.node,
        processes=list(binding.processes),
        bound_by=binding.by,
        role_waiting=seconds_of(nothing) / run.seconds if run.seconds and stages else None,
        bubbles=bubbles_of((end - start for start, end in nothing), steps) if stages else None,
        energy_j=device.joules(everything, steps),
        energy_source=energy[1] if energy is not None else None,
        energy_resolution_s=energy[2] if energy is not None else None,
        power_w=device.level("power_w", everything),
        memory_used_bytes=device.level("memory_used_bytes", everything),
        memory_growth_bytes_per_step=growth(device.gauges["memory_used_bytes"], run.windows),
        nvml_kernel_present=device.mean("nvml_kernel_present", everything),
        sm_active=active,
        low_sm=device.low_sm(everything),
        sm_occupancy=device.mean("sm_occupancy", everything),
        tensor_active=device.mean("tensor_active", everything),
        dram_active=device.mean("dram_active", everything),
        sm_clock_min_hz=float(clocks.min()) if len(clocks) else None,
        sm_clock_median_hz=_median(clocks),
        memory_clock_median_hz=_median(within(device.readings("memory_clock_hz"), everything)),
        throttled_share=device.mean("slowed", everything),
        power_capped_share=_mean(device.any_of((POWER_CAP,)), everything),
        throttle_reasons={name: share for name, flags in device.throttled.items() if (share := _mean(flags, everything))},
        temperature_max_c=float(temperature.max()) if len(temperature) else None,
        pcie_rx_bytes_per_s=_mean(device.readings("pcie_rx_bytes_per_s"), everything),
        pcie_tx_bytes_per_s=_mean(device.readings("pcie_tx_bytes_per_s"), everything),
        nvlink_rx_bytes=_per_step(device.readings("nvlink_rx_bytes"), run),
        nvlink_tx_bytes=_per_step(device.readings("nvlink_tx_bytes"), run),
        nvlink_rx_bytes_per_s=device.mean("nvlink_rx_bytes_per_s", everything),
        nvlink_tx_bytes_per_s=device.mean("nvlink_tx_bytes_per_s", everything),
        stages={stage: _stage(device, stretches, steps) for stage, stretches in stages.items()},
    )
    shared = [device.joules(stretches, steps) for stretches in run.shared(stages)]
    return Measured(figures, device.joules(nothing, steps) if nothing else _nothing(), together(shared) if shared else _nothing())


def _stage(device: _Instruments, stretches: Stretches, steps: int) -> DeviceStage:
    return DeviceStage(
        seconds=seconds_of(stretches) / steps,
        energy_j=device.joules(stretches, steps),
        power_w=device.level("power_w", stretches),
        memory_used_bytes=device.level("memory_used_bytes", stretches),
        nvml_kernel_present=device.mean("nvml_kernel_present", stretches),
        low_sm=device.low_sm(stretches),
        tensor_active=device.mean("tensor_active", stretches),
        dram_active=device.mean("dram_active", stretches),
        throttled_share=device.mean("slowed", stretches),
    )


def energy_figures(devices: Sequence[Measured], response_tokens: int | None, steps: int) -> Energy | None:
    """Of all devices together; None unless each gave its energy or its power. A stage is left out where a device that ran it did not.

    `response_tokens` are those of the measured steps, of which there are `steps`.
    """
    per_step = together([one.figures.energy_j for one in devices])
    if per_step is None:
        return None
    names = dict.fromkeys(name for one in devices for name in one.figures.stages)
    stages = {name: together([one.figures.stages[name].energy_j for one in devices if name in one.figures.stages]) for name in names}
    sources = {one.figures.energy_source for one in devices}
    shared = together([one.shared_j for one in devices])
    return Energy(
        devices=len(devices),
        source="both" if len(sources) > 1 else "counter" if "counter" in sources else "power",
        j_per_step=per_step,
        j_per_1000_response_tokens=per_step.value * steps * 1000 / response_tokens if response_tokens else None,
        stages_j={name: amount for name, amount in stages.items() if amount is not None},
        no_stage_j=together([one.no_stage_j for one in devices]),
        overlap_j=shared.value if shared is not None else None,
    )


def mean_over(values: Iterable[float | None]) -> float | None:
    """Mean over devices; None unless all are known."""
    listed = list(values)
    known = [value for value in listed if value is not None]
    return sum(known) / len(known) if known and len(known) == len(listed) else None


def _nothing() -> Amount:
    return Amount(value=0.0, low=0.0, high=0.0, resolved=True)


def _mean(readings: Readings, stretches: Stretches) -> float | None:
    found = level(readings, stretches)
    return found.mean if found is not None else None


def _per_step(counter: Readings, run: Attribution) -> float | None:
    amount = gained(gains_of(counter), run.measured, run.steps)
    return amount.value if amount is not None else None


def _median(values: object) -> float | None:
    import numpy as np

    array = np.asarray(values)
    return float(np.median(array)) if len(array) else None
