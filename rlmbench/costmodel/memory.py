"""Bytes that one device holds in each stage, term by term, for real shapes.

State is exact. Activations count the values that transformers' layers save for the backward pass (counted with torch's saved_tensors_hooks in
transformers 5.24 with sdpa; tests/frameworks/test_costmodel.py holds the formula to 3%). What is assumed is said at each constant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rlmbench.costmodel import work
from rlmbench.costmodel.paper import Sharding
from rlmbench.costmodel.stages import Setup
from rlmbench.costmodel.work import Sequences
from rlmbench.experiment import Experiment
from rlmbench.workload.shapes import BYTES_PER_VALUE, Shape

STATE_BYTES: Mapping[str, tuple[int, int, int]] = {"float32": (4, 4, 8), "bfloat16": (2, 2, 12)}
"""Bytes per parameter of weights, gradients and optimizer by the dtype of the trained weights: 16 in all either way. float32: two Adam moments
(FSDP, accelerate). bfloat16: float32 copies and moments in the optimizer (DeepSpeed, Megatron)."""
RESERVED_BYTES = 2 << 30
"""Assumed: a CUDA context, communication buffers and fragmentation, per device."""
LOGIT_COPIES_BYTES = 8
"""Per token and vocabulary entry besides the logits themselves: log-softmax in float32, and its gradient."""
TRAINER_PROCESS_BYTES, ENGINE_PROCESS_BYTES, RAY_BYTES = 650_000_000, 1_900_000_000, 2_500_000_000
"""What a process that trains, one of vLLM's, and Ray with the driver hold on a CPU besides the model: Python, torch, the engine's cache (docs/plan.md)."""

ENGINE, CACHE = "rollout weights", "KV cache of one sample"
ENGINE_TERMS = (ENGINE, CACHE)
"""What each of the rollout engine's ranks holds; all other terms are of each training rank."""


@dataclass(frozen=True)
class StageMemory:
    """Bytes on one device while a stage runs, by term. `wanted_cache` is the KV cache of all samples at once; `terms` hold what is needed at least."""

    terms: Mapping[str, float]
    wanted_cache: float = 0.0

    @property
    def total(self) -> float:
        return sum(self.terms.values())


def held_parameters(shape: Shape, experiment: Experiment, head: work.Head = "vocabulary", shards: int = 1) -> float:
    """Parameters of one model on the device that holds most, when `shards` ranks share each of its parts.

    Tensor and pipeline parallelism split all of it; embedding and head lie on the first and the last pipeline stage. Experts are spread over the
    expert-parallel ranks, which are among the sharding ones: those that are left share them.
    """
    split = experiment.parallelism
    experts = work.expert_parameters(shape)
    table = shape.vocab_size * shape.hidden_size
    ends = table if shape.tied_embeddings else table + work.head_weights(shape, head)
    layers = work.parameters(shape, head) - experts - ends
    rest = layers / split.pipeline + (ends if split.pipeline == 1 else table)
    return rest / split.tensor / shards + experts / (split.tensor * split.pipeline * max(split.expert, shards))


def saved_values_per_token(shape: Shape) -> float:
    """Values that one layer saves for its backward, per token: 6d + 2(n_q + n_kv)d_h + 4I; queries and keys once more where they are normed.

    Two norms with three values each, queries, keys, values and their sum, and gate, activation, up and product. Experts: 4 I_e k and k inputs.
    """
    heads = 2 * (shape.heads + shape.key_value_heads) * shape.head_dim
    normed = 2 * normed_values(shape)
    ffn = 4 * shape.intermediate_size
    if shape.experts:
        ffn = shape.experts_per_token * (4 * shape.expert_intermediate_size + shape.hidden_size)
    return 6 * shape.hidden_size + heads + normed + ffn


def normed_values(shape: Shape) -> int:
    """Queries and keys of a token, where a norm of their own follows them (Qwen3)."""
    return (shape.heads + shape.key_value_heads) * shape.head_dim if shape.model_type in ("qwen3", "qwen3_moe") else 0


def activation_bytes(shape: Shape, dtype: str, tokens: float, layers: float, *, checkpointing: bool) -> float:
    """Of a forward over `tokens` on a device that holds `layers`: saved for the backward; checkpointed, each layer's input and one layer whole.

    In bfloat16 each norm saves its input in float32, which is as much as one value more for each that it norms.
    """
    size = BYTES_PER_VALUE[dtype]
    half = dtype == "bfloat16"
    whole = (saved_values_per_token(shape) + half * (2 * shape.hidden_size + normed_values(shape))) * size
    final = (2 + half) * shape.hidden_size * size
    if checkpointing:
        return tokens * (layers * shape.hidden_size * size + whole + final)
    return tokens * (layers * whole + final)


def logits_bytes(shape: Shape, dtype: str, tokens: float) -> float:
    """Logits of `tokens`, their log-softmax and its gradient."""
    return tokens * shape.vocab_size * (BYTES_PER_VALUE[dtype] + LOGIT_COPIES_BYTES)


def stage_memory(
    shape: Shape, experiment: Experiment, setup: Setup, lengths: Sequences, weights_dtype: str, sharding: Sharding, *, on_gpu: bool = True
) -> dict[str, StageMemory]:
    """generation, assessment and training -> bytes on one device that runs it. On shared devices generation also holds the training state.

    The rollout engine is taken to free its cache while others work (sleep), and to keep its weights.
    """
    split, colocated = experiment.parallelism, not setup.apart
    state = _state(shape, experiment, setup, weights_dtype, sharding)
    read_only = held_parameters(shape, experiment, shards=_shards(sharding, experiment, "weights"))
    reference = {"reference weights": read_only * BYTES_PER_VALUE[setup.reference_dtype or setup.dtype]}
    reserved = {"reserved": float(RESERVED_BYTES)} if on_gpu else {}
    longest = experiment.workload.max_prompt_tokens + experiment.workload.max_response_tokens
    # Devices beyond the key/value heads hold copies of them.
    per_token = work.kv_bytes_per_token(shape, setup.dtype) / min(split.rollout_tensor, shape.key_value_heads)
    engine = {ENGINE: shape.weight_bytes(setup.dtype) / split.rollout_tensor} if setup.syncs else {}
    cache = {CACHE: float(longest * per_token)}
    tokens = _largest_micro_batch(experiment.optimization.micro_batch_samples, lengths, setup) / split.context
    passing = {"logits": logits_bytes(shape, setup.dtype, tokens) / split.tensor}
    saved = activation_bytes(shape, setup.dtype, tokens, shape.layers / split.pipeline, checkpointing=setup.checkpointing) / split.tensor
    backward = _before_backward(saved, passing["logits"], experiment)
    kept = {**(reference if setup.reference else {}), **reserved}
    generating = {**engine, **cache, **reserved, **({**state, **kept} if colocated else {} if setup.syncs else state)}
    beside = engine if colocated else {}
    return {
        "generation": StageMemory(generating, lengths.tokens / setup.replicas * per_token),
        "assessment": StageMemory({**state, **beside, **kept, **passing}),
        "training": StageMemory({**state, **beside, **kept, **backward}),
    }


def processes_bytes(setup: Setup, process_model: str) -> float:
    """Host memory of a run on a CPU besides the model; `process_model` as in ``Translation.traits``."""
    models = 1 + setup.reference + setup.critic if "one for each model" in process_model else 1
    engines = setup.rollout_devices if setup.syncs else 0
    ray = RAY_BYTES if "Ray" in process_model else 0
    return float(setup.training_devices * models * TRAINER_PROCESS_BYTES + engines * ENGINE_PROCESS_BYTES + ray)


def _largest_micro_batch(samples: int, lengths: Sequences, setup: Setup) -> float:
    """Tokens of the micro-batch that needs most: as many samples as long as a step's longest; packed at random, that one and average ones."""
    prompt, mean = (total / max(lengths.samples, 1) for total in (lengths.prompt_tokens, lengths.tokens))
    longest = prompt + lengths.longest_response
    return longest + (samples - 1) * (mean if setup.mixed else longest)


def _before_backward(saved: float, logits: float, experiment: Experiment) -> dict[str, float]:
    """Activations and logits when a backward begins. Of a pipeline (one forward, one backward in turn) the first stage then keeps a micro-batch
    for each stage, the last one and its logits: the larger of the two."""
    opt, split = experiment.optimization, experiment.parallelism
    micro_batches = max(opt.mini_batch_samples // (opt.micro_batch_samples * split.data), 1)
    under_way = min(split.pipeline, micro_batches)
    first, last = {"activations": saved * under_way}, {"activations": saved, "logits": logits}
    return first if sum(first.values()) > sum(last.values()) else last


def _state(shape: Shape, experiment: Experiment, setup: Setup, weights_dtype: str, sharding: Sharding) -> dict[str, float]:
    shared = setup.critic and not setup.critic_devices  # a critic on devices of its own leaves the actor's, which hold more, alone
    heads: tuple[work.Head, ...] = ("vocabulary", "value") if shared else ("vocabulary",)
    parts = dict(zip(("weights", "gradients", "optimizer"), STATE_BYTES[weights_dtype], strict=True))
    shards = {part: _shards(sharding, experiment, part) for part in parts}
    return {part: size * sum(held_parameters(shape, experiment, head, shards[part]) for head in heads) for part, size in parts.items()}


def _shards(sharding: Sharding, experiment: Experiment, part: str) -> int:
    """Over how many ranks `part` is cut (Table 3): optimizer from ZeRO-1, gradients from ZeRO-2, weights from ZeRO-3."""
    cut = {"none": (), "zero1": ("optimizer",), "zero2": ("optimizer", "gradients"), "zero3": ("optimizer", "gradients", "weights")}[
        sharding
    ]
    return experiment.parallelism.data * experiment.parallelism.context if part in cut else 1
