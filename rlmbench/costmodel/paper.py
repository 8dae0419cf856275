"""The paper's work, depth and memory: multi-head attention, a two-projection FFN, every constant of a logarithm dropped.

Source: arXiv 2608.27046, Tables 3 to 8; each function names its table. What rlmbench reports about real models is not from here
but from `rlmbench.costmodel.work`, which knows grouped queries, gated FFNs and experts.

Symbols: B prompts per step, K responses per prompt, S prompt tokens, T response tokens, m = S + T, L layers, d hidden size, d_ff FFN
width, h heads, V vocabulary, E_a active experts of width d_e. Work is in FLOPs (a dot product of length d is 2d), depth in levels
of pairwise operations (base-2 logarithms), memory in elements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import log2
from typing import Literal

Role = Literal["policy", "reference", "reward", "critic"]
Sharding = Literal["none", "zero1", "zero2", "zero3"]


@dataclass(frozen=True)
class Dense:
    """The paper's transformer: L `layers`, d `hidden`, d_ff `ffn`, h `heads`, V `vocabulary`.

    With `active_experts` the FFN of every layer is E_a experts of width d_e `expert_ffn` per token, `experts` in all; of one rank its share of them.
    """

    layers: int
    hidden: int
    ffn: int
    heads: int
    vocabulary: int
    experts: float = 0
    active_experts: float = 0
    expert_ffn: int = 0

    @property
    def attention_weights(self) -> int:
        """4 d^2: query, key, value and output projections of one layer."""
        return 4 * self.hidden**2

    @property
    def ffn_weights(self) -> float:
        """2 d d_ff: up and down projections of one layer; with experts 2 E d d_e."""
        return 2 * self.hidden * (self.experts * self.expert_ffn if self.experts else self.ffn)

    @property
    def active_ffn_weights(self) -> float:
        """What one token meets of them: 2 d d_ff, or 2 E_a d d_e."""
        return 2 * self.hidden * (self.active_experts * self.expert_ffn if self.experts else self.ffn)


# -- Table 3: building blocks


def forward_per_token(model: Dense, tokens: int, role: Role = "policy") -> float:
    """C_f = 2L[4d^2 + 2 d d_ff + m d] + 2Vd, averaged over the m `tokens` of a sequence (Table 3).

    A reward model has 2d/m in place of the vocabulary's 2Vd (a head on the last token), a critic 2d (one on every token).
    """
    body = 2 * model.layers * (model.attention_weights + model.active_ffn_weights + tokens * model.hidden)
    head = {"reward": 2 * model.hidden / tokens, "critic": 2 * model.hidden}.get(role, 2 * model.vocabulary * model.hidden)
    return body + head


def backward_per_token(model: Dense, tokens: int, role: Role = "policy") -> float:
    """C_b ~ 2 C_f (Table 3): a product with each factor's gradient."""
    return 2 * forward_per_token(model, tokens, role)


def training_per_token(model: Dense, tokens: int, role: Role = "policy", *, checkpointing: bool = False) -> float:
    """C_tr ~ 3 C_f; with checkpointing one more forward (Table 3)."""
    return (4 if checkpointing else 3) * forward_per_token(model, tokens, role)


def prefill(model: Dense, prompt: int) -> float:
    """2 L S (4d^2 + 2 d d_ff + S d) + 2Vd per rollout: the head on the last token alone (Table 3)."""
    body = 2 * model.layers * prompt * (model.attention_weights + model.active_ffn_weights + prompt * model.hidden)
    return body + 2 * model.vocabulary * model.hidden


def decode(model: Dense, prompt: int, response: int) -> float:
    """Sum over t = 1..T-1 of 2L(4d^2 + 2 d d_ff + 2(S+t)d) + 2Vd per rollout (Table 3), summed in closed form.

    The prefill yields the first token, so T-1 are decoded.
    """
    steps = response - 1
    per_step = 2 * model.layers * (model.attention_weights + model.active_ffn_weights) + 2 * model.vocabulary * model.hidden
    contexts = steps * prompt + steps * response // 2
    return steps * per_step + 4 * model.layers * model.hidden * contexts


def generation(model: Dense, prompt: int, response: int) -> float:
    """C_gen: prefill and decode of one rollout (Table 3)."""
    return prefill(model, prompt) + decode(model, prompt, response)


def forward_depth(model: Dense, tokens: int, tensor: int = 1) -> float:
    """D_f = L[log d + log m] + log d; tensor parallelism makes log d log(d / P_t) (Table 3)."""
    width = log2(model.hidden / tensor)
    return model.layers * (width + log2(tokens)) + width


def backward_depth(model: Dense, tokens: int, sequences: int, tensor: int = 1) -> float:
    """D_b = D_f + log(B m): the gradients' sum over all tokens (Table 3)."""
    return forward_depth(model, tokens, tensor) + log2(sequences * tokens)


def training_depth(model: Dense, tokens: int, sequences: int, tensor: int = 1) -> float:
    """D_tr = D_f + D_b (Table 3)."""
    return forward_depth(model, tokens, tensor) + backward_depth(model, tokens, sequences, tensor)


def generation_depth(model: Dense, prompt: int, response: int, tensor: int = 1) -> float:
    """D_gen = D_f(S) + sum over t = 1..T-1 of D_f(S+t) (Table 3): tokens come one after the other."""
    return sum(forward_depth(model, prompt + t, tensor) for t in range(response))


def parameters(model: Dense, role: Role = "policy") -> float:
    """L(4d^2 + 2 d d_ff) + Vd, and d more for a reward or value head (Table 3)."""
    body = model.layers * (model.attention_weights + model.ffn_weights) + model.vocabulary * model.hidden
    return body + (model.hidden if role in ("reward", "critic") else 0)


def kv_elements(model: Dense, tokens: int) -> int:
    """2 m L d per rollout (Table 3)."""
    return 2 * tokens * model.layers * model.hidden


def activations(model: Dense, sequences: int, tokens: int, kept: float = 1.0) -> float:
    """B K m L d, times kappa (`kept`) under checkpointing (Table 3)."""
    return sequences * tokens * model.layers * model.hidden * kept


def sharded_state(count: float, sharding: Sharding, degree: int) -> float:
    """Weights, gradients and two Adam moments of `count` parameters on each rank (Table 3).

    None 4P; ZeRO-1 2P + 2P/P_z; ZeRO-2 P + 3P/P_z; ZeRO-3 and FSDP 4P/P_z.
    """
    whole = {"none": 4, "zero1": 2, "zero2": 1, "zero3": 0}[sharding]
    return whole * count + (4 - whole) * count / degree


# -- Table 4: stages of a step

Algorithm = Literal["ppo", "grpo", "rloo", "remax", "dpo"]


@dataclass(frozen=True)
class Step:
    """One step: B `prompts`, K `responses` each, S `prompt` and T `response` tokens, epochs over the samples.

    `reward_model` is False for a verifier, which takes CPU time and no FLOPs; `recomputed` adds the policy's own forward for old log-probs.
    DPO takes B preference pairs: K is 2, nothing is generated.
    """

    algorithm: Algorithm
    prompts: int
    responses: int
    prompt: int
    response: int
    epochs: int = 1
    reward_model: bool = True
    recomputed: bool = False
    checkpointing: bool = False

    @property
    def tokens(self) -> int:
        """m = S + T."""
        return self.prompt + self.response

    @property
    def samples(self) -> int:
        """B K."""
        return self.prompts * self.responses


def assessed_by(step: Step) -> tuple[Role, ...]:
    """Roles whose forward the assessment runs (Table 4): PPO reference, reward and critic; the others no critic; DPO the reference."""
    if step.algorithm == "dpo":
        return ("reference",)
    roles: tuple[Role, ...] = ("reference", "reward") if step.reward_model else ("reference",)
    roles = (*roles, "critic") if step.algorithm == "ppo" else roles
    return (*roles, "policy") if step.recomputed else roles


def trained_by(step: Step) -> tuple[Role, ...]:
    """Roles that are updated (Table 4): PPO policy and critic, the others the policy."""
    return ("policy", "critic") if step.algorithm == "ppo" else ("policy",)


def generation_work(model: Dense, step: Step) -> float:
    """B K C_gen(pi); ReMax draws one greedy response per prompt besides, as its baseline; DPO generates nothing (Table 4)."""
    rollouts = {"dpo": 0, "remax": step.prompts * (step.responses + 1)}.get(step.algorithm, step.samples)
    return rollouts * generation(model, step.prompt, step.response) if rollouts else 0.0


def assessment_work(models: Mapping[Role, Dense], step: Step) -> float:
    """B K m times the sum of the roles' C_f (Table 4). ReMax's reward model also reads the B baselines."""
    work = sum(step.samples * step.tokens * forward_per_token(models[role], step.tokens, role) for role in assessed_by(step))
    if step.algorithm == "remax" and step.reward_model:
        work += step.prompts * step.tokens * forward_per_token(models["reward"], step.tokens, "reward")
    return work


def training_work(models: Mapping[Role, Dense], step: Step) -> float:
    """B K m times the sum of the roles' C_tr, per epoch (Table 4)."""
    return step.epochs * sum(
        step.samples * step.tokens * training_per_token(models[role], step.tokens, role, checkpointing=step.checkpointing)
        for role in trained_by(step)
    )


def stage_depths(models: Mapping[Role, Dense], step: Step, tensor: int = 1) -> tuple[float, dict[Role, float], dict[Role, float]]:
    """D_gen, D_f of each assessing role and D_tr of each trained one (Table 4): co-located they add up, disaggregated the longest counts."""
    generated = 0.0 if step.algorithm == "dpo" else generation_depth(models["policy"], step.prompt, step.response, tensor)
    assessed = {role: forward_depth(models[role], step.tokens, tensor) for role in assessed_by(step)}
    trained = {role: step.epochs * training_depth(models[role], step.tokens, step.samples, tensor) for role in trained_by(step)}
    return generated, assessed, trained


def generation_memory(model: Dense, step: Step) -> float:
    """Parameters and B K x KV cache (Table 4)."""
    return parameters(model) + step.samples * kv_elements(model, step.tokens)


def training_memory(models: Mapping[Role, Dense], step: Step, kept: float = 1.0, *, colocated: bool = True) -> float:
    """4(P_pi + P_V) + B K m (L_pi d_pi + L_V d_V) co-located; disaggregated the larger of the two (Table 4)."""
    each = [4 * parameters(models[role], role) + activations(models[role], step.samples, step.tokens, kept) for role in trained_by(step)]
    return sum(each) if colocated else max(each)


# -- Tables 5 to 8: one training invocation under parallelism


@dataclass(frozen=True)
class Layout:
    """Degrees of parallelism, 1 for none. `data` P_d, `pipeline` P_p, `tensor` P_t, `context` P_c, `expert` P_e.

    Sequence parallelism is no degree of its own: Megatron's splits over the tensor ranks what tensor parallelism leaves (which the
    paper's terms take as divided already), and Ulysses' splits tokens as context parallelism does. `sharding` is ZeRO over the data ranks.
    """

    data: int = 1
    pipeline: int = 1
    tensor: int = 1
    context: int = 1
    expert: int = 1
    sharding: Sharding = "none"

    @property
    def ranks(self) -> int:
        return self.data * self.pipeline * self.tensor * self.context * self.expert


@dataclass(frozen=True)
class Cost:
    """Of one training invocation: `work` in FLOPs, `depth` in levels, `memory` in elements."""

    work: float
    depth: float
    memory: float


def per_rank(model: Dense, sequences: int, tokens: int, layout: Layout) -> Cost:
    """What one rank of `layout` does and holds for B `sequences` of m `tokens` (Tables 5 and 6; 3D and 5D in 7 and 8).

    Work 6 B m L (4d^2 + 2 d d_ff + m d), each factor divided by the degree that splits it: DP B, CP the tokens (their context stays m), PP L,
    TP the widths, EP the experts alone. Depth 2 L log(d^4 d_ff m / h) + log(B m), P_t^2 under the logarithm, L / P_p layers.
    Memory L(16d^2 + 8 d d_ff) + 4Vd + B m L d: TP divides all of it, PP the layers, DP and CP the activations, EP the experts.
    """
    layers = model.layers / layout.pipeline
    dense = model.attention_weights + tokens * model.hidden
    experts = layout.expert if model.experts else 1
    held_tokens = sequences / layout.data * tokens / layout.context
    work = 6 * held_tokens * layers * (dense + model.active_ffn_weights / experts) / layout.tensor
    width = model.expert_ffn if model.experts else model.ffn
    reductions = log2(model.hidden**4 * width * tokens / model.heads / layout.tensor**2)
    depth = 2 * layers * reductions + log2(sequences * tokens)
    weights = layers * (model.attention_weights + model.ffn_weights / experts) + model.vocabulary * model.hidden
    state = sharded_state(weights / layout.tensor, layout.sharding, layout.data)
    memory = state + held_tokens * layers * model.hidden / layout.tensor
    return Cost(work, depth, memory)


def overall(model: Dense, sequences: int, tokens: int, layout: Layout) -> Cost:
    """The same over all ranks (Tables 5 to 8): per rank x ranks, what is replicated counted on each; a micro-batch passes all L layers."""
    one = per_rank(model, sequences, tokens, layout)
    chain = per_rank(model, sequences, tokens, replace(layout, pipeline=1)).depth
    return Cost(one.work * layout.ranks, chain, one.memory * layout.ranks)


def stages_per_rank(models: Mapping[Role, Dense], step: Step, layout: Layout, kept: float = 1.0) -> dict[str, Cost]:
    """What one rank of `layout` does and holds in each stage of a co-located step: Table 4's stages, split as Tables 5 to 8 split an invocation.

    Work: DP divides the samples, PP the layers (embedding and head spread evenly), TP the widths, CP the tokens, EP the experts alone. Depth: that of
    Table 3, log(d / P_t) under TP, a rank's L / P_p layers of PP; roles one after the other. Memory: weights and KV cache; the assessing roles' weights;
    the trained roles' state, sharded over the data ranks, with activations (times `kept`). DPO generates nothing.
    """
    own = {role: _own_experts(model, layout) for role, model in models.items()}
    within, split = layout.pipeline * layout.tensor, layout.pipeline * layout.tensor * layout.data * layout.context
    generated, assessed, trained = stage_depths(models, step, layout.tensor)
    held = {role: parameters(model, role) / within for role, model in own.items()}
    cache = step.samples * kv_elements(models["policy"], step.tokens) / split
    state = sum(
        sharded_state(held[role], layout.sharding, layout.data) + activations(models[role], step.samples, step.tokens, kept) / split
        for role in trained_by(step)
    )
    work = {
        "generation": (generation_work(own["policy"], step), generated, held["policy"] + cache),
        "assessment": (assessment_work(own, step), sum(assessed.values()), sum(held[role] for role in assessed_by(step))),
        "training": (training_work(own, step), sum(trained.values()), state),
    }
    return {stage: Cost(flops / split, depth / layout.pipeline, memory) for stage, (flops, depth, memory) in work.items() if flops}


def stages_overall(models: Mapping[Role, Dense], step: Step, layout: Layout, kept: float = 1.0) -> dict[str, Cost]:
    """The same over all ranks: work and memory of each rank added up, replicated parts counted on each; a micro-batch passes all layers."""
    chain = stages_per_rank(models, step, replace(layout, pipeline=1), kept)
    each = stages_per_rank(models, step, layout, kept)
    return {stage: Cost(one.work * layout.ranks, chain[stage].depth, one.memory * layout.ranks) for stage, one in each.items()}


def _own_experts(model: Dense, layout: Layout) -> Dense:
    """`model` as one expert-parallel rank has it: its share of the experts, everything else whole."""
    return replace(model, experts=model.experts / layout.expert, active_experts=model.active_experts / layout.expert)


def total(costs: Sequence[Cost]) -> Cost:
    """Invocations one after the other on the same devices: work and depth add up, the largest memory counts."""
    return Cost(sum(one.work for one in costs), sum(one.depth for one in costs), max(one.memory for one in costs))
