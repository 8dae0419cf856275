"""How long a step is by execution mode, and who idles: closed forms, exact where every duration is fixed.

Source: arXiv 2608.27046, Section 4 and Table 9, which states depths. The same forms hold for seconds where each stage takes a
fixed time, which is how `StageTimes` is used here: any one unit, as long as it is the same one throughout.
The idle formulas and the one-step-off form are rlmbench's (cost model, "What real models need beyond the paper").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class StageTimes:
    """One step's stages, each on the devices that it has.

    `generation` is D_G. `assessment` are the parts of D_A by role: reference, reward, critic (its values), policy (recomputed old
    log-probs). `training` are the parts of D_T: policy, critic. `sync` is what passing weights from training to generation takes.
    """

    generation: float
    assessment: Mapping[str, float] = field(default_factory=dict)
    training: Mapping[str, float] = field(default_factory=dict)
    sync: float = 0.0

    @property
    def assessment_sum(self) -> float:
        """D_A(sum): the roles one after the other."""
        return sum(self.assessment.values())

    @property
    def assessment_max(self) -> float:
        """D_A(max): the roles beside each other, each on devices of its own."""
        return max(self.assessment.values(), default=0.0)

    @property
    def training_sum(self) -> float:
        """D_T(sum)."""
        return sum(self.training.values())

    @property
    def training_max(self) -> float:
        """D_T(max)."""
        return max(self.training.values(), default=0.0)


def colocated(times: StageTimes) -> float:
    """D_G + D_A(sum) + D_T(sum): every role on the same devices, one after the other (Table 9, baseline)."""
    return times.generation + times.assessment_sum + times.training_sum + times.sync


def shared_actor_critic(times: StageTimes) -> float:
    """Co-located, with one backbone for policy and critic (Table 9): the only mode that lowers total work.

    One forward serves recomputed log-probs and values, one update serves both losses; each takes as long as the longer of the two.
    """
    return colocated(replace(times, assessment=_shared(times.assessment), training=_shared(times.training)))


def _shared(parts: Mapping[str, float]) -> dict[str, float]:
    both = [parts[role] for role in ("policy", "critic") if role in parts]
    others = {role: time for role, time in parts.items() if role not in ("policy", "critic")}
    return {**others, "policy": max(both)} if both else others


def disaggregated(times: StageTimes) -> float:
    """D_G + D_A(max) + D_T(max): roles on devices of their own, stages still in turn (Table 9)."""
    return times.generation + times.assessment_max + times.training_max + times.sync


def stage_fusion(times: StageTimes) -> float:
    """max{D_G, D_A(max)} + D_T(max): samples are assessed as they end, beside those still generated (Table 9)."""
    return max(times.generation, times.assessment_max) + times.training_max + times.sync


def bounded_asynchrony(times: StageTimes) -> float:
    """max{D_G + D_A(max), D_T(max)} in steady state: training runs beside the next generation (Table 9)."""
    return max(times.generation + times.assessment_max, times.training_max) + times.sync


def one_step_off(times: StageTimes) -> float:
    """max(T_G, T_A + T_T) + T_sync: generation is one step ahead, assessment lies with training (as in verl and NeMo-RL)."""
    return max(times.generation, times.assessment_sum + times.training_sum) + times.sync


def trainer_assessed_asynchrony(times: StageTimes) -> float:
    """max{D_G, D_A(max) + D_T(max)}: as bounded asynchrony, but the trainer assesses, as in verl, OpenRLHF and the reference framework.

    Table 9's form, which adds D_A to D_G, is no lower bound of it: where generation is the longest, assessment hides beside it.
    """
    return max(times.generation, times.assessment_max + times.training_max) + times.sync


def combined(times: StageTimes) -> float:
    """max{max{D_G, D_A}, D_T}: fusion and asynchrony; tensor-parallel generation and sharded training lie in the times (Table 9)."""
    return max(times.generation, times.assessment_max, times.training_max) + times.sync


def hybrid_layouts(times: StageTimes, generation: float, training: Mapping[str, float], resharding: float) -> float:
    """Co-located with a layout of its own for each stage (Table 9): `generation` under tensor parallelism, `training` under ZeRO-3,
    and `resharding` between them, both ways together."""
    return colocated(replace(times, generation=generation, training=training)) + resharding


MODES: Mapping[str, Callable[[StageTimes], float]] = {
    "colocated": colocated,
    "shared_actor_critic": shared_actor_critic,
    "disaggregated": disaggregated,
    "stage_fusion": stage_fusion,
    "bounded_asynchrony": bounded_asynchrony,
    "one_step_off": one_step_off,
    "trainer_assessed_asynchrony": trainer_assessed_asynchrony,
    "combined": combined,
}
"""Every mode whose step follows from the stages' times alone."""


def pipeline_bubble(stages: int, micro_batches: int) -> float:
    """Idle share of a pipeline of p `stages`: (p - 1) / (micro-batches + p - 1)."""
    return (stages - 1) / (micro_batches + stages - 1)


def skew_idle(busy: Sequence[float]) -> float:
    """Idle share of N ranks that wait for the slowest: 1 - sum(busy) / (N max(busy)). 0 where none is busy."""
    longest = max(busy, default=0.0)
    return 1 - sum(busy) / (len(busy) * longest) if longest else 0.0


def disaggregated_idle(generation_devices: int, generation: float, training_devices: int, training: float, sync: float = 0.0) -> float:
    """Idle share of synchronous disaggregation: 1 - (N_G T_G + N_T T_T) / ((N_G + N_T)(T_G + T_T + T_sync)).

    Nobody counts as busy during the sync."""
    held = (generation_devices + training_devices) * (generation + training + sync)
    return 1 - (generation_devices * generation + training_devices * training) / held


def one_step_off_idle(generation_devices: int, generation: float, training_devices: int, training: float, sync: float = 0.0) -> float:
    """Idle share of one step off: as above, but a step takes max(T_G, T_T) + T_sync; `training` holds assessment too."""
    held = (generation_devices + training_devices) * (max(generation, training) + sync)
    return 1 - (generation_devices * generation + training_devices * training) / held


def balanced_split(generation_work: float, training_work: float, devices: int) -> tuple[int, int]:
    """Devices for generation and training that make one step off shortest, when a stage's time is its work over its devices.

    The exact optimum over whole devices, at least one each. Works are in device-seconds.
    """
    if devices < 2:
        raise ValueError("a split needs at least two devices")
    at = devices * generation_work / (generation_work + training_work)
    near = {min(max(int(at) + more, 1), devices - 1) for more in (0, 1)}
    best = min(sorted(near), key=lambda n: max(generation_work / n, training_work / (devices - n)))
    return best, devices - best


def resharding_bytes_deepspeed_chat(model_bytes: float, tensor: int, pipeline: int, data: int) -> float:
    """Bytes each device receives at the transition from training to generation: (tpd - 1) / (tpd) M (HybridFlow, Table 2)."""
    ranks = tensor * pipeline * data
    return (ranks - 1) / ranks * model_bytes


def resharding_bytes_hybridflow(model_bytes: float, tensor: int, pipeline: int, generation_tensor: int, generation_pipeline: int) -> float:
    """The same for HybridFlow's 3D-HybridEngine: (tp - t_g p_g) / (t_g p_g t p) M (HybridFlow, Table 2)."""
    training, generation = tensor * pipeline, generation_tensor * generation_pipeline
    return (training - generation) / (generation * training) * model_bytes
