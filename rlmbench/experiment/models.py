"""What to run: the experiment every adapter translates, as documented pydantic models.

One vocabulary for all frameworks. Batch sizes carry their unit in the name (`prompts_per_step`,
`mini_batch_samples`): frameworks disagree on whether a batch counts prompts or samples, and that
disagreement is what makes their configurations incomparable. A *sample* is one response to one prompt;
every prompt gets `group_size` samples, so a step holds ``prompts_per_step * group_size`` samples.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

PositiveInt = Annotated[int, Field(gt=0)]
NonNegativeInt = Annotated[int, Field(ge=0)]
PositiveFloat = Annotated[float, Field(gt=0)]
NonNegativeFloat = Annotated[float, Field(ge=0)]
UnitInterval = Annotated[float, Field(ge=0, le=1)]


class Strict(BaseModel):
    """Base of every model: unknown keys are an error, values are immutable once validated."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class Algorithm(StrEnum):
    """The estimator of the advantage, which also decides whether a critic is trained."""

    GRPO = "grpo"
    RLOO = "rloo"
    PPO = "ppo"
    REINFORCE_PP = "reinforce_pp"
    REMAX = "remax"


class Model(Strict):
    """The policy (and, for PPO, the shape of the critic). Exactly one of `shape`, `hub` and `path`."""

    shape: str | None = Field(
        None, description="A published shape built with random weights, by name: `rlmbench suites shapes` lists them."
    )
    hub: str | None = Field(None, description="A model on the Hugging Face hub, by name; weights are downloaded.")
    path: str | None = Field(None, description="A local folder with config, weights and tokenizer.")
    weights_seed: NonNegativeInt = Field(0, description="Seed of the random weights; used with `shape` only.")
    dtype: Literal["bfloat16", "float32"] = Field(
        "bfloat16", description="Compute dtype of training and rollout. Where a framework keeps other weights, its ledger says so."
    )
    gradient_checkpointing: bool = Field(False, description="Recompute activations in the backward pass.")
    attention: Literal["sdpa", "eager", "flash_attention_2"] = Field("sdpa", description="Attention implementation in training.")

    @model_validator(mode="after")
    def _one_source(self) -> Model:
        given = [name for name in ("shape", "hub", "path") if getattr(self, name)]
        if len(given) != 1:
            raise ValueError(f"give exactly one of shape, hub, path (given: {', '.join(given) or 'none'})")
        return self


class Prompts(Strict):
    """Where the prompts come from. Every source yields GSM8K-shaped problems: a question and a final answer."""

    source: Literal["generated", "file", "hub"] = Field(
        "generated",
        description="generated: rlmbench's own deterministic word problems; file: GSM8K JSON Lines with `question` and `answer`; hub: a data set by name.",
    )
    path: str | None = Field(None, description="JSON Lines file, for source=file.")
    hub: str | None = Field(None, description="Data set name such as openai/gsm8k, for source=hub.")
    split: str = Field("train", description="Split, for source=hub.")
    count: PositiveInt | None = Field(None, description="Use the first `count` problems; the default uses all (generated: 1024).")
    seed: NonNegativeInt = Field(0, description="Seed of the generator, and of the order in which prompts are visited.")

    @model_validator(mode="after")
    def _complete(self) -> Prompts:
        if self.source in ("file", "hub") and not getattr(self, "path" if self.source == "file" else "hub"):
            raise ValueError(f"source={self.source} needs `{'path' if self.source == 'file' else 'hub'}`")
        return self


class FixedLengths(Strict):
    """Every response has `tokens` tokens."""

    kind: Literal["fixed"] = "fixed"
    tokens: PositiveInt


class LognormalLengths(Strict):
    """Lognormal response lengths given by their median and 99th percentile, capped at `max_response_tokens`."""

    kind: Literal["lognormal"] = "lognormal"
    p50_tokens: PositiveInt
    p99_tokens: PositiveInt

    @model_validator(mode="after")
    def _ordered(self) -> LognormalLengths:
        if self.p99_tokens < self.p50_tokens:
            raise ValueError("p99_tokens must be at least p50_tokens")
        return self


class TraceLengths(Strict):
    """Response lengths drawn from a file with one integer per line (# starts a comment)."""

    kind: Literal["trace"] = "trace"
    path: str


class Replay(Strict):
    """Lengths and rewards drawn once by rlmbench per (seed, prompt, visit, sample), the same for every framework."""

    lengths: Annotated[FixedLengths | LognormalLengths | TraceLengths, Field(discriminator="kind")]
    pass_rate: UnitInterval = Field(0.5, description="Mean reward. Rewards are multiples of 1/64, exact in bfloat16.")
    seed: NonNegativeInt = 0


class Sampling(Strict):
    """How tokens are sampled during the rollout."""

    temperature: PositiveFloat = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    top_k: NonNegativeInt = Field(0, description="0 keeps the whole vocabulary.")


class Workload(Strict):
    """Prompts in, samples out: how many per step, how long, and whether lengths and rewards are replayed."""

    prompts: Prompts = Prompts()
    prompts_per_step: PositiveInt = Field(description="Prompts per step, over all devices.")
    max_prompt_tokens: PositiveInt = Field(description="Longer prompts are left out before the run, never cut.")
    max_response_tokens: PositiveInt = Field(description="Cap on the response length.")
    replay: Replay | None = Field(None, description="Replayed lengths and rewards; leave out for a natural workload.")
    sampling: Sampling = Sampling()

    @property
    def mode(self) -> Literal["replay", "natural"]:
        return "replay" if self.replay else "natural"


class KL(Strict):
    """Penalty towards the reference policy. With coefficient 0 no reference model is needed."""

    coefficient: NonNegativeFloat = 0.0
    placement: Literal["loss", "reward"] = "loss"
    estimator: Literal["k1", "k2", "k3"] = "k3"


class Critic(Strict):
    """Value model of PPO."""

    learning_rate: PositiveFloat = 1e-5
    gamma: UnitInterval = 1.0
    gae_lambda: UnitInterval = 0.95
    value_clip: PositiveFloat = 0.2
    value_loss_coefficient: PositiveFloat = 0.5


class Optimization(Strict):
    """Algorithm, batches and optimizer. Samples are counted over all devices unless the name says per device."""

    algorithm: Algorithm
    group_size: PositiveInt = Field(1, description="Samples per prompt.")
    mini_batch_samples: PositiveInt = Field(description="Samples per optimizer step, over all devices.")
    micro_batch_samples: PositiveInt = Field(description="Samples per forward and backward, per device.")
    epochs: PositiveInt = Field(1, description="Passes over each step's samples.")
    policy_loss: Literal["clip", "cispo", "sapo", "luspo", "vespo"] = "clip"
    loss_aggregation: Literal["token_mean", "sequence_mean", "sequence_sum_constant", "micro_batch_token_mean"] = Field(
        "token_mean",
        description="token_mean: mean over all tokens of the mini-batch (DAPO); sequence_mean: mean per sample, then over samples (GRPO); "
        "sequence_sum_constant: sum per sample over a constant (Dr. GRPO); micro_batch_token_mean: token mean per micro-batch (BNPO).",
    )
    importance_sampling: Literal["token", "sequence"] = Field("token", description="sequence is GSPO.")
    advantage_scaling: Literal["group", "batch", "none"] = Field("group", description="Standard deviation that advantages are divided by.")
    clip_low: PositiveFloat = 0.2
    clip_high: PositiveFloat = 0.2
    kl: KL = KL()
    critic: Critic | None = None
    learning_rate: PositiveFloat = 1e-6
    lr_schedule: Literal["constant", "linear", "cosine"] = "constant"
    warmup_steps: NonNegativeInt = Field(0, description="Optimizer steps of linear learning-rate warm-up.")
    weight_decay: NonNegativeFloat = 0.0
    adam_beta1: UnitInterval = 0.9
    adam_beta2: UnitInterval = 0.95
    max_grad_norm: PositiveFloat = 1.0
    mask_truncated: bool = Field(False, description="Leave samples that hit the cap out of the loss (DAPO's overlong filtering).")
    dynamic_sampling: bool = Field(False, description="Drop groups whose rewards are all equal and sample again (DAPO).")
    overlong_buffer_tokens: NonNegativeInt = Field(0, description="Length of DAPO's soft overlong penalty before the cap; 0 is off.")

    @model_validator(mode="after")
    def _consistent(self) -> Optimization:
        if self.algorithm is Algorithm.PPO and self.critic is None:
            raise ValueError("algorithm ppo needs `critic` (an empty mapping takes the defaults)")
        if self.algorithm is not Algorithm.PPO and self.critic is not None:
            raise ValueError(f"`critic` is for ppo; algorithm {self.algorithm} trains none")
        if self.algorithm in (Algorithm.GRPO, Algorithm.RLOO) and self.group_size < 2:
            raise ValueError(f"{self.algorithm} compares the samples of one prompt: group_size must be at least 2")
        return self


class Parallelism(Strict):
    """How the models are split over devices. Every degree defaults to 1."""

    data: PositiveInt = Field(1, description="Data-parallel ranks of training.")
    sharding: Literal["none", "zero1", "zero2", "zero3"] = Field(
        "none", description="Sharding of the training state over data-parallel ranks."
    )
    tensor: PositiveInt = 1
    pipeline: PositiveInt = 1
    context: PositiveInt = 1
    expert: PositiveInt = 1
    rollout_tensor: PositiveInt = Field(1, description="Tensor-parallel degree of the rollout engine.")


class Placement(Strict):
    """Where the roles run and which engine generates."""

    rollout_engine: Literal["auto", "hf", "vllm", "sglang"] = Field(
        "auto",
        description="auto: on a CPU the training process's own generate where the framework has one (hf), else vllm; the ledger says which.",
    )
    mode: Literal["colocated", "disaggregated", "async"] = Field(
        "colocated",
        description="colocated: rollout shares the training devices; disaggregated: rollout devices of its own; async: and runs ahead.",
    )
    rollout_devices: NonNegativeInt = Field(0, description="Devices held by the rollout engine alone (disaggregated and async).")
    max_staleness: NonNegativeInt = Field(0, description="Policy versions a trained sample may lag behind, for async.")
    fast_rollout_poll: bool = Field(
        False, description="Look for finished rollouts every 10 ms where the framework polls for them more slowly (verl: every 2 s)."
    )


class Measurement(Strict):
    """How much is measured and when a run is given up."""

    steps: PositiveInt = Field(description="Steps, warm-up included.")
    warmup_steps: NonNegativeInt = Field(1, description="First steps that are recorded but left out of the figures.")
    seed: NonNegativeInt = Field(0, description="Seed of the framework: weights of new heads, sampling.")
    wall_timeout_s: PositiveFloat = Field(3600.0, description="The cell is ended after this long.")
    stall_timeout_s: PositiveFloat = Field(300.0, description="The cell is ended after this long without span, output or CPU time.")
    probe: bool = Field(True, description="Record spans. Off only to measure the probe's own cost.")
    collector_interval_s: Annotated[float, Field(ge=0.01)] | None = Field(
        0.1, description="Seconds between two samples of devices and host by the collector beside the run; null is no collector."
    )
    synchronize_stages: bool = Field(
        True, description="Wait for the GPU at stage boundaries, so that a stage's seconds are its own. No effect on a CPU."
    )
    threads_per_process: PositiveInt = Field(1, description="OMP_NUM_THREADS of every process; more than the cores only adds noise.")
    strict_order: bool = Field(
        False, description="Keep samples in plan order inside a step, so that micro-batches agree between frameworks."
    )

    @model_validator(mode="after")
    def _something_measured(self) -> Measurement:
        if self.steps <= self.warmup_steps:
            raise ValueError(f"steps ({self.steps}) must exceed warmup_steps ({self.warmup_steps}), or nothing is measured")
        return self


class Experiment(Strict):
    """One fully specified piece of work, for any framework."""

    model: Model
    workload: Workload
    optimization: Optimization
    parallelism: Parallelism = Parallelism()
    placement: Placement = Placement()
    measurement: Measurement

    @property
    def samples_per_step(self) -> int:
        return self.workload.prompts_per_step * self.optimization.group_size

    @property
    def updates_per_step(self) -> int:
        """Optimizer steps per step."""
        return self.optimization.epochs * self.samples_per_step // self.optimization.mini_batch_samples

    @property
    def devices(self) -> int:
        """Devices that the experiment asks for: training ranks (all model-parallel degrees) plus rollout devices of their own.

        What a framework holds besides (OpenRLHF's critic, disaggregated) is in `rlmbench.costmodel.stages.devices_held`.
        """
        p = self.parallelism
        return p.data * p.tensor * p.pipeline * p.context + self.placement.rollout_devices

    @model_validator(mode="after")
    def _divisible(self) -> Experiment:
        o, p = self.optimization, self.parallelism
        if self.samples_per_step % o.mini_batch_samples:
            raise ValueError(
                f"optimization.mini_batch_samples ({o.mini_batch_samples}) must divide the step's samples "
                f"({self.workload.prompts_per_step} prompts x {o.group_size} = {self.samples_per_step})"
            )
        per_rank = o.micro_batch_samples * p.data
        if o.mini_batch_samples % per_rank:
            raise ValueError(
                f"optimization.micro_batch_samples x parallelism.data ({o.micro_batch_samples} x {p.data} = {per_rank}) "
                f"must divide mini_batch_samples ({o.mini_batch_samples})"
            )
        if self.placement.mode == "colocated" and self.placement.rollout_devices:
            raise ValueError("placement.rollout_devices is for disaggregated and async placements")
        return self


VariantName = Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]


class Scale(Strict):
    """One size of a suite: what it needs, and the settings it lays over the suite's base."""

    devices: NonNegativeInt = Field(description="GPUs the scale is written for; 0 is a CPU.")
    device_memory_gib: NonNegativeFloat = Field(0, description="Memory each of them needs, as far as known.")
    experiment: dict[str, Any] = Field(default_factory=dict, description="Laid over the suite's `experiment`, key by key.")
    sweep: dict[VariantName, dict[str, Any]] = Field(
        default_factory=dict,
        description="Variants of this scale by name: settings laid over the scale's; each is run as a cell of its own.",
    )


ScaleName = Literal["tiny", "small", "base", "large"]


class Suite(Strict):
    """A standard piece of work at several scales, readable by a person."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]
    title: str
    description: str
    sources: list[str] = Field(description="Where the parameters were published.")
    experiment: dict[str, Any] = Field(description="Settings shared by all scales.")
    sweep: dict[VariantName, dict[str, Any]] = Field(
        default_factory=dict, description="Variants at every scale by name; a scale's own `sweep` is laid over them, key by key."
    )
    scales: dict[ScaleName, Scale]

    def experiment_at(self, scale: str) -> Experiment:
        """The validated experiment at `scale`: the suite's base with the scale's settings laid over it."""
        return Experiment.model_validate(merge(self.experiment, self.scales[scale].experiment))  # type: ignore[index]

    def variants_at(self, scale: str) -> dict[str, dict[str, Any]]:
        """Variant -> its settings at `scale`, to be laid over those of the scale; empty for a suite that is no sweep."""
        return merge(self.sweep, self.scales[scale].sweep)  # type: ignore[index]


def merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """`over` laid on `base`, mapping by mapping; anything that is not a mapping replaces what was there."""
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = merge(merged[key], value) if both else value
    return merged
