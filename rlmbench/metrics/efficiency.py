"""What was computed beside what the devices could have: FLOPs, MFU, HFU, MBU, roofline, weight sync and the step's least time.

FLOPs come from `rlmbench.costmodel` and from the tokens that the loss received in the measured steps, never from the configuration.
Definitions and conventions: docs/metrics.md, "Efficiency".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from rlmbench.costmodel.devices import Ceiling, by_nvml_name, datasheet
from rlmbench.costmodel.stages import Setup, StageWork, devices_of, least_seconds, least_step, setup_of, stage_work
from rlmbench.costmodel.work import Sequences
from rlmbench.workload.shapes import SHAPES

if TYPE_CHECKING:
    import pandas as pd

    from rlmbench.experiment import Experiment


@dataclass(frozen=True)
class StageEfficiency:
    """One stage, per measured step, over all devices that run it."""

    seconds: Annotated[
        float, Field(description="Mean driver seconds; those of the slowest process where the driver does not wait for all of the stage.")
    ]
    model_flops: Annotated[float, Field(description="What the algorithm needs for the valid tokens.")]
    hardware_flops: Annotated[float, Field(description="That, and what gradient checkpointing computes again.")]
    least_bytes: Annotated[float, Field(description="Least memory traffic: weights, KV cache, optimizer state.")]
    devices: int
    achieved_flops_per_s: Annotated[float, Field(description="model_flops over seconds, all devices together.")]
    achieved_bytes_per_s: Annotated[float, Field(description="least_bytes over seconds.")]
    intensity: Annotated[float, Field(description="hardware_flops / least_bytes, FLOPs per byte.")]


@dataclass(frozen=True)
class StageAgainst:
    """One stage against one ceiling; shares of 1."""

    mfu: Annotated[float | None, Field(description="model_flops / (seconds x devices x peak).")]
    hfu: Annotated[float | None, Field(description="hardware_flops / (seconds x devices x peak).")]
    mbu: Annotated[float | None, Field(description="least_bytes / (seconds x devices x bandwidth).")]
    limit: Annotated[str | None, Field(description="compute or memory: which side of the device's ridge the stage's intensity lies on.")]
    least_s: Annotated[float | None, Field(description="The stage cannot be shorter on these devices.")]
    roofline: Annotated[float | None, Field(description="least_s / seconds: how near the stage is to its roof.")]


@dataclass(frozen=True)
class Against:
    """Stages and the step against one ceiling."""

    basis: Annotated[str, Field(description="datasheet, or measured by `rlmbench doctor --ceilings`.")]
    device: str
    source: str
    flops_per_s: Annotated[float | None, Field(description="Of one device, in the run's dtype; null when unknown.")]
    bytes_per_s: float | None
    stages: dict[str, StageAgainst]
    step_mfu: Annotated[float | None, Field(description="Model FLOPs of all stages / (step seconds x devices x peak).")]
    step_hfu: float | None
    least_step_s: Annotated[float | None, Field(description="Least seconds of a step of the placement that ran.")]
    work_depth_ratio: Annotated[float | None, Field(description="Measured step / least_step_s; at least 1 if the bound holds.")]
    least_sync_s: Annotated[
        float | None, Field(description="weight_sync.least_bytes at the full memory bandwidth of the rollout's devices.")
    ] = None
    sync_roofline: Annotated[float | None, Field(description="least_sync_s / weight_sync.seconds.")] = None


@dataclass(frozen=True)
class SyncEfficiency:
    """Weight sync against the least it has to move."""

    seconds: float
    replicas: int
    least_bytes: Annotated[float, Field(description="The model's bytes into every rollout replica.")]
    bytes_per_s: Annotated[float, Field(description="least_bytes / seconds: the useful bandwidth of the sync.")]


@dataclass(frozen=True)
class Efficiency:
    """Over the measured steps."""

    shape: str
    dtype: Annotated[str, Field(description="That products are computed in.")]
    devices: Annotated[int, Field(description="All that the run held; a CPU machine is one device, however many processes.")]
    step_s: Annotated[float, Field(description="Mean seconds of a measured step.")]
    step_model_flops: Annotated[float, Field(description="Model FLOPs of the stages that ran.")]
    step_hardware_flops: float
    achieved_flops_per_s: Annotated[float, Field(description="step_model_flops over step_s, all devices together.")]
    stages: dict[str, StageEfficiency]
    weight_sync: SyncEfficiency | None
    against: Annotated[list[Against], Field(description="Data sheet first; empty when the device is unknown and nothing was measured.")]


def step_lengths(unique_samples: pd.DataFrame, steps: Sequence[int]) -> Sequences | None:
    """Sums over the samples of `steps`, per step: an average step. None without samples."""
    rows = unique_samples[unique_samples["step"].isin(steps)]
    if rows.empty or not steps:
        return None
    every = Sequences.of(zip(rows["prompt_tokens"].tolist(), rows["response_tokens"].tolist(), strict=True))
    longest = rows.groupby("step")["response_tokens"].max().mean()
    return every.per_step(len(steps), round(float(longest)))


def efficiency(
    experiment: Experiment,
    manifest: Mapping[str, Any],
    lengths: Sequences | None,
    stage_seconds: Mapping[str, float],
    step_s: float | None,
) -> Efficiency | str:
    """The figures, or why there are none. `manifest` holds traits, expected_facts, devices, ceilings and the environment's device."""
    if manifest.get("simulated"):
        return "simulated: no model computed anything"
    shape = SHAPES.get(experiment.model.shape or "")
    if shape is None:
        return "the model is not one of rlmbench's published shapes, so its FLOPs are not known"
    if lengths is None or not step_s:
        return "no sample reached the loss in a measured step"
    setup = setup_of(experiment, manifest.get("traits", {}), manifest.get("expected_facts", {}).get("weights_dtype"))
    if setup.critic and "critic_update" not in stage_seconds:
        setup = replace(setup, joint_critic=True)
    on_cpu = not manifest.get("devices")
    planned = stage_work(shape, lengths, setup)
    ran = {stage: planned[stage] for stage, seconds in stage_seconds.items() if stage in planned and seconds > 0}
    computing = {stage: done for stage, done in ran.items() if stage != "weight_sync"}
    held = 1 if on_cpu else setup.devices
    model, hardware = (sum(getattr(done, name) for done in computing.values()) for name in ("model_flops", "hardware_flops"))
    stages = {stage: _stage(done, stage_seconds[stage], _devices(stage, setup, on_cpu)) for stage, done in computing.items()}
    sync = ran.get("weight_sync")
    return Efficiency(
        shape=shape.name,
        dtype=setup.dtype,
        devices=held,
        step_s=step_s,
        step_model_flops=model,
        step_hardware_flops=hardware,
        achieved_flops_per_s=model / step_s,
        stages=stages,
        weight_sync=None if sync is None else _sync(sync, stage_seconds["weight_sync"], setup.replicas),
        against=[
            _against(ceiling, stages, ran, setup, on_cpu, held, step_s, stage_seconds.get("weight_sync"))
            for ceiling in ceilings_of(manifest.get("devices", []), manifest.get("ceilings", []), setup.dtype)
        ],
    )


def ceilings_of(devices: Sequence[Mapping[str, Any]], measured: Sequence[Mapping[str, Any]], dtype: str) -> list[Ceiling]:
    """The data sheet's ceiling of one of the run's devices, if known, and the measured one, if there is one: the fastest of those alike."""
    name = str(devices[0].get("name")) if devices else "cpu"
    known = by_nvml_name(name)
    found = [datasheet(known, dtype)] if known else []
    alike = [one for one in measured if one.get("device") == name]
    if alike:
        flops_per_s = max(filter(None, (one.get("flops_per_s", {}).get(dtype) for one in alike)), default=None)
        bytes_per_s = max(filter(None, (one.get("bytes_per_s") for one in alike)), default=None)
        source = f"rlmbench doctor --ceilings, torch {alike[0].get('torch')}"
        found.append(Ceiling("measured", name, flops_per_s, bytes_per_s, source))
    return found


def _devices(stage: str, setup: Setup, on_cpu: bool) -> int:
    return 1 if on_cpu else devices_of(stage, setup)


def _stage(done: StageWork, seconds: float, devices: int) -> StageEfficiency:
    return StageEfficiency(
        seconds=seconds,
        model_flops=done.model_flops,
        hardware_flops=done.hardware_flops,
        least_bytes=done.least_bytes,
        devices=devices,
        achieved_flops_per_s=done.model_flops / seconds,
        achieved_bytes_per_s=done.least_bytes / seconds,
        intensity=done.intensity,
    )


def _sync(done: StageWork, seconds: float, replicas: int) -> SyncEfficiency:
    return SyncEfficiency(seconds=seconds, replicas=replicas, least_bytes=done.least_bytes, bytes_per_s=done.least_bytes / seconds)


def _against(
    ceiling: Ceiling,
    stages: Mapping[str, StageEfficiency],
    ran: Mapping[str, StageWork],
    setup: Setup,
    on_cpu: bool,
    held: int,
    step_s: float,
    sync_s: float | None,
) -> Against:
    one_machine = 1 if on_cpu else None
    least = least_step(ran, setup, ceiling, one_machine)
    sync = least_seconds("weight_sync", ran["weight_sync"], setup, ceiling, one_machine) if "weight_sync" in ran else None
    peak = ceiling.flops_per_s
    model, hardware = (sum(getattr(stage, name) for stage in stages.values()) for name in ("model_flops", "hardware_flops"))
    return Against(
        basis=ceiling.basis,
        device=ceiling.device,
        source=ceiling.source,
        flops_per_s=peak,
        bytes_per_s=ceiling.bytes_per_s,
        stages={
            name: _stage_against(stage, ceiling, least_seconds(name, ran[name], setup, ceiling, one_machine))
            for name, stage in stages.items()
        },
        step_mfu=model / (step_s * held * peak) if peak else None,
        step_hfu=hardware / (step_s * held * peak) if peak else None,
        least_step_s=least,
        work_depth_ratio=step_s / least if least else None,
        least_sync_s=sync,
        sync_roofline=sync / sync_s if sync and sync_s else None,
    )


def _stage_against(stage: StageEfficiency, ceiling: Ceiling, least: float | None) -> StageAgainst:
    peak, bandwidth = ceiling.flops_per_s, ceiling.bytes_per_s
    products = stage.seconds * stage.devices * peak if peak else None
    traffic = stage.seconds * stage.devices * bandwidth if bandwidth else None
    ridge = peak / bandwidth if peak and bandwidth else None
    return StageAgainst(
        mfu=stage.model_flops / products if products else None,
        hfu=stage.hardware_flops / products if products else None,
        mbu=stage.least_bytes / traffic if traffic else None,
        limit=None if ridge is None else "compute" if stage.intensity >= ridge else "memory",
        least_s=least,
        roofline=least / stage.seconds if least else None,
    )
