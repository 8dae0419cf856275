"""FLOPs and bytes of real shapes: grouped queries, gated FFNs, experts. Every number rlmbench reports comes from here.

Source: the formulas of "What real models need beyond the paper" in rlmbench's cost model (docs/metrics.md restates them):
A = d d_h (2 n_q + 2 n_kv) per layer, F = 3 d I (experts: 3 d I_e k + d E), N_act = L(A + F) + V d with the output head once and never
the embedding look-up; forward FLOPs = 2 N_act sum(s) + 2 L n_q d_h sum(s^2), causal and therefore halved; training 3x.
Norms, rotary embeddings, softmax, biases and the optimizer are left out, here as in every published convention.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from rlmbench.workload.shapes import BYTES_PER_VALUE, Shape

Head = Literal["vocabulary", "value", "none"]
TRAINING_FACTOR = 3
"""Forward, and a backward of two products for each of the forward's."""


class Flops(NamedTuple):
    """`matmul`: products with weights. `attention`: scores and their sums over values, causal."""

    matmul: float
    attention: float

    @property
    def total(self) -> float:
        return self.matmul + self.attention

    def times(self, factor: float) -> Flops:
        return Flops(self.matmul * factor, self.attention * factor)

    def plus(self, other: Flops) -> Flops:
        return Flops(self.matmul + other.matmul, self.attention + other.attention)


@dataclass(frozen=True)
class Sequences:
    """What the FLOPs of a set of samples (or of an average step) depend on: their number, and sums over prompts S, responses T and both, m = S + T.

    `decoded_contexts` is the sum over samples and decoded tokens t = 1..T-1 of S + t: what decoding reads of the KV cache, in tokens.
    `responses` are the different T, ascending, each with the number of samples that have it.
    """

    samples: float
    prompt_tokens: float
    response_tokens: float
    prompt_squares: float
    squares: float
    decoded_contexts: float
    longest_response: int
    responses: tuple[tuple[int, float], ...]

    @classmethod
    def of(cls, lengths: Iterable[tuple[int, int]]) -> Sequences:
        """From (prompt tokens, response tokens) of each sample."""
        pairs = list(lengths)
        return cls(
            samples=len(pairs),
            prompt_tokens=sum(s for s, _ in pairs),
            response_tokens=sum(t for _, t in pairs),
            prompt_squares=sum(s * s for s, _ in pairs),
            squares=sum((s + t) ** 2 for s, t in pairs),
            decoded_contexts=sum((t - 1) * s + t * (t - 1) // 2 for s, t in pairs if t),
            longest_response=max((t for _, t in pairs), default=0),
            responses=tuple(sorted(Counter(t for _, t in pairs).items())),
        )

    def per_step(self, steps: float, longest_response: int) -> Sequences:
        """The average of `steps` steps whose samples these are; `longest_response` is the average of each step's longest."""
        return Sequences(
            samples=self.samples / steps,
            prompt_tokens=self.prompt_tokens / steps,
            response_tokens=self.response_tokens / steps,
            prompt_squares=self.prompt_squares / steps,
            squares=self.squares / steps,
            decoded_contexts=self.decoded_contexts / steps,
            longest_response=longest_response,
            responses=tuple((response, count / steps) for response, count in self.responses),
        )

    @property
    def tokens(self) -> float:
        """sum(m)."""
        return self.prompt_tokens + self.response_tokens

    @property
    def decoded_tokens(self) -> float:
        """T - 1 of each sample: the prefill yields the first."""
        return self.response_tokens - self.samples


def attention_weights(shape: Shape) -> int:
    """A = d d_h (2 n_q + 2 n_kv), per layer."""
    return shape.hidden_size * shape.head_dim * 2 * (shape.heads + shape.key_value_heads)


def ffn_weights(shape: Shape) -> int:
    """F = 3 d I; with experts 3 d I_e k + d E (the router): what one token meets, per layer."""
    if not shape.experts:
        return 3 * shape.hidden_size * shape.intermediate_size
    return 3 * shape.hidden_size * shape.expert_intermediate_size * shape.experts_per_token + shape.hidden_size * shape.experts


def head_weights(shape: Shape, head: Head = "vocabulary") -> int:
    """V d for a policy or reference, d for a critic's value head, 0 for none."""
    return {"vocabulary": shape.vocab_size * shape.hidden_size, "value": shape.hidden_size, "none": 0}[head]


def active_parameters(shape: Shape, head: Head = "vocabulary") -> int:
    """N_act = L(A + F) + V d: the weights one token is multiplied with."""
    return shape.layers * (attention_weights(shape) + ffn_weights(shape)) + head_weights(shape, head)


def parameters(shape: Shape, head: Head = "vocabulary") -> int:
    """Of a whole model, the embedding table included; a critic has d for its value head where a policy has V d, or shares the embedding's."""
    if head == "vocabulary":
        return shape.parameters
    output = 0 if shape.tied_embeddings else shape.vocab_size * shape.hidden_size
    return shape.parameters - output + head_weights(shape, head)


def expert_parameters(shape: Shape) -> int:
    """Of all experts of all layers, 3 L E d I_e; routers are not in it."""
    return shape.layers * shape.experts * 3 * shape.hidden_size * shape.expert_intermediate_size if shape.experts else 0


def forward(shape: Shape, tokens: float, squares: float, head: Head = "vocabulary") -> Flops:
    """2 N_act sum(s) + 2 L n_q d_h sum(s^2) of causal sequences with these sums, the head on every token."""
    return Flops(2 * active_parameters(shape, head) * tokens, 2 * shape.layers * shape.heads * shape.head_dim * squares)


def training(shape: Shape, tokens: float, squares: float, head: Head = "vocabulary") -> Flops:
    """Forward and backward: 3x. Recomputation is no model work (see `recomputed`)."""
    return forward(shape, tokens, squares, head).times(TRAINING_FACTOR)


def recomputed(shape: Shape, tokens: float, squares: float) -> Flops:
    """What gradient checkpointing computes again: the layers' forward, without the head, which no framework checkpoints.

    A dense layer's last product is not computed again, as no gradient needs it: torch's checkpoint (use_reentrant=False, which TRL, verl and
    OpenRLHF take) stops before it. That of experts is, since the gradient of the router's weights needs it. Megatron computes all again.
    """
    last = 0 if shape.experts else shape.hidden_size * shape.intermediate_size
    again = forward(shape, tokens, squares, "none")
    return Flops(again.matmul - 2 * shape.layers * last * tokens, again.attention)


def prefill(shape: Shape, sequences: float, tokens: float, squares: float) -> Flops:
    """A forward over prompts, the head on the last token of each."""
    return forward(shape, tokens, squares, "none").plus(Flops(2 * head_weights(shape) * sequences, 0.0))


def decode(shape: Shape, tokens: float, contexts: float) -> Flops:
    """`tokens` decoded one by one that attend to `contexts` tokens in all: 2 N_act each, and 4 L n_q d_h per token attended to."""
    return Flops(2 * active_parameters(shape) * tokens, 4 * shape.layers * shape.heads * shape.head_dim * contexts)


def generation(shape: Shape, work: Sequences) -> Flops:
    """Prefill and decode of every sample, its own prompt included: an engine that shares a group's prompt does less."""
    return prefill(shape, work.samples, work.prompt_tokens, work.prompt_squares).plus(
        decode(shape, work.decoded_tokens, work.decoded_contexts)
    )


def kv_bytes_per_token(shape: Shape, dtype: str) -> int:
    """2 L n_kv d_h values."""
    return 2 * shape.layers * shape.key_value_heads * shape.head_dim * BYTES_PER_VALUE[dtype]


def weights_read_per_decode_step(shape: Shape, sequences: float = 1) -> float:
    """Values a decode step over `sequences` reads of the weights: all but the embedding table, of which it looks up rows.

    With experts, of each layer's E those that some sequence visits, expected under uniform routing: E(1 - (1 - k/E)^n).
    """
    looked_up = 0 if shape.tied_embeddings else shape.vocab_size * shape.hidden_size
    rest = float(shape.parameters - looked_up - expert_parameters(shape))
    return rest + _experts_read(shape, sequences)


def _experts_read(shape: Shape, sequences: float) -> float:
    if not shape.experts:
        return 0.0
    return expert_parameters(shape) * (1 - (1 - shape.experts_per_token / shape.experts) ** sequences)


def weights_read_in_generation(shape: Shape, lengths: Sequences, replicas: int = 1) -> tuple[float, float]:
    """Values of the weights that all `replicas` read, and what the one with the longest sample reads: at a prefill, and once per decode step.

    A replica decodes while it has a sample, expected when samples are dealt at random: R(1 - (1 - 1/R)^n) do. Of the experts it reads those that its
    samples visit: fewer and fewer, as responses end.
    """
    rest, last_steps = weights_read_per_decode_step(shape, 0), 1 + max(lengths.longest_response - 1, 0)
    stretches = _decode_stretches(lengths)
    experts = _experts_read(shape, lengths.prompt_tokens / replicas)
    experts += sum(steps * _experts_read(shape, alive / replicas) for steps, alive in stretches)
    decoding: float = last_steps
    if replicas > 1:
        decoding = sum(steps * replicas * (1 - (1 - 1 / replicas) ** alive) for steps, alive in ((1, lengths.samples), *stretches))
    return rest * decoding + experts * replicas, rest * last_steps + experts


def _decode_stretches(lengths: Sequences) -> list[tuple[int, float]]:
    """(decode steps, samples that are decoded in each of them), from the first step on."""
    found, alive, done = [], lengths.samples, 1
    for response, samples in lengths.responses:
        if response > done:
            found.append((response - done, max(alive, 0.0)))
        alive, done = alive - samples, max(response, done)
    return found


def sync_bytes(shape: Shape, dtype: str, replicas: int) -> int:
    """The least a weight sync moves: the model's bytes into every rollout replica."""
    return shape.weight_bytes(dtype) * replicas


# -- Other conventions, for docs and for logs of others


def verl_flops(shape: Shape, tokens: int, squares: int, *, before_2026: bool = False) -> float:
    """Training FLOPs as verl's ``flops_counter`` estimates them for dense Qwen2 and Llama models: 6 N sum(s) + 6 L n_q d_h sum(s^2).

    N counts the embedding as a second V d matmul. Until January 2026 the attention term was 12 L n_q d_h sum(s^2).
    Source: verl/utils/flops_counter.py.
    """
    weights = active_parameters(shape) + head_weights(shape)
    return 6 * weights * tokens + (12 if before_2026 else 6) * shape.layers * shape.heads * shape.head_dim * squares
