"""Each row of the paper's tables against a derivation of its own: products counted one by one, trees reduced level by level.

Nothing here uses the formulas under test: FLOPs are counted by walking over every matrix product of every token, depth by halving
until one value is left, memory by listing tensors, parallel ranks by cutting the lists.
"""

from __future__ import annotations

from itertools import product

import pytest

from rlmbench.costmodel import paper
from rlmbench.costmodel.paper import Dense, Layout, Step

MODEL = Dense(layers=4, hidden=64, ffn=256, heads=4, vocabulary=512)
EXPERTS = Dense(layers=4, hidden=64, ffn=0, heads=4, vocabulary=512, experts=8, active_experts=2, expert_ffn=128)
CRITIC = Dense(layers=2, hidden=32, ffn=128, heads=4, vocabulary=512)


def product_flops(*dims: int) -> int:
    """A (rows x inner) by (inner x columns) product: a dot product of length n is 2n."""
    rows, inner, columns = dims
    return 2 * rows * inner * columns


def layer_flops(model: Dense, query_tokens: int, context: int) -> int:
    """One layer for `query_tokens` that each attend to `context` tokens, product by product, head by head."""
    d, width = model.hidden, model.hidden // model.heads
    flops = sum(product_flops(query_tokens, d, d) for _ in ("query", "key", "value", "output"))
    for _ in range(model.heads):
        flops += product_flops(query_tokens, width, context) + product_flops(query_tokens, context, width)
    experts = [model.expert_ffn] * model.active_experts if model.experts else [model.ffn]
    for ffn in experts:
        flops += product_flops(query_tokens, d, ffn) + product_flops(query_tokens, ffn, d)
    return flops


def causal_forward(model: Dense, tokens: int, head_tokens: int, head_width: int) -> float:
    """A forward over one sequence. Causal: half of what the full square of queries and keys takes."""
    full = sum(layer_flops(model, tokens, tokens) for _ in range(model.layers))
    without = sum(layer_flops(model, tokens, 0) for _ in range(model.layers))
    return (full + without) / 2 + product_flops(head_tokens, model.hidden, head_width)


def levels(count: float) -> int:
    """Rounds of pairwise operations until one of `count` values is left."""
    rounds = 0
    while count > 1:
        count /= 2
        rounds += 1
    return rounds


# -- Table 3


@pytest.mark.parametrize("model", [MODEL, EXPERTS])
def test_forward_flops_per_token_of_each_role(model: Dense) -> None:
    m = 96
    for role, head_tokens, head_width in (
        ("policy", m, model.vocabulary),
        ("reference", m, model.vocabulary),
        ("reward", 1, 1),
        ("critic", m, 1),
    ):
        counted = causal_forward(model, m, head_tokens, head_width)
        assert m * paper.forward_per_token(model, m, role) == pytest.approx(counted)  # type: ignore[arg-type]


def test_a_backward_is_two_products_for_each_of_the_forwards() -> None:
    # y = x w needs dx = dy w' and dw = x' dy: as many multiplications each.
    rows, inner, columns = 3, 5, 7
    forward = product_flops(rows, inner, columns)
    backward = product_flops(rows, columns, inner) + product_flops(inner, rows, columns)
    assert paper.backward_per_token(MODEL, 64) / paper.forward_per_token(MODEL, 64) == backward / forward
    assert paper.training_per_token(MODEL, 64) / paper.forward_per_token(MODEL, 64) == (forward + backward) / forward
    once_more = paper.training_per_token(MODEL, 64, checkpointing=True) - paper.training_per_token(MODEL, 64)
    assert once_more == paper.forward_per_token(MODEL, 64)


@pytest.mark.parametrize("model", [MODEL, EXPERTS])
def test_prefill_and_decode_per_rollout(model: Dense) -> None:
    s, t = 48, 17
    assert paper.prefill(model, s) == pytest.approx(causal_forward(model, s, 1, model.vocabulary))
    decoded = sum(model.layers * layer_flops(model, 1, s + step) + product_flops(1, model.hidden, model.vocabulary) for step in range(1, t))
    assert paper.decode(model, s, t) == decoded
    assert paper.generation(model, s, t) == pytest.approx(causal_forward(model, s, 1, model.vocabulary) + decoded)
    assert paper.decode(model, s, 1) == 0  # the prefill yields the first token


def test_depths_are_levels_of_trees() -> None:
    m, b = 128, 8
    forward = sum(levels(MODEL.hidden) + levels(m) for _ in range(MODEL.layers)) + levels(MODEL.hidden)
    assert paper.forward_depth(MODEL, m) == forward
    assert paper.backward_depth(MODEL, m, b) == forward + levels(b * m)
    assert paper.training_depth(MODEL, m, b) == 2 * forward + levels(b * m)
    split = sum(levels(MODEL.hidden / 4) + levels(m) for _ in range(MODEL.layers)) + levels(MODEL.hidden / 4)
    assert paper.forward_depth(MODEL, m, tensor=4) == split


def test_generation_is_as_deep_as_its_tokens_are_many() -> None:
    s, t = 64, 5
    by_hand = paper.forward_depth(MODEL, 64) + sum(paper.forward_depth(MODEL, n) for n in (65, 66, 67, 68))
    assert paper.generation_depth(MODEL, s, t) == pytest.approx(by_hand)


def tensors(model: Dense, head: int = 0) -> list[int]:
    """Sizes of every weight."""
    found = [model.vocabulary * model.hidden]
    for _ in range(model.layers):
        found += [model.hidden * model.hidden] * 4
        for ffn in [model.expert_ffn] * model.experts if model.experts else [model.ffn]:
            found += [model.hidden * ffn, ffn * model.hidden]
    return [*found, head] if head else found


@pytest.mark.parametrize("model", [MODEL, EXPERTS])
def test_parameters_and_kv_cache(model: Dense) -> None:
    assert paper.parameters(model) == sum(tensors(model))
    assert paper.parameters(model, "critic") == paper.parameters(model, "reward") == sum(tensors(model, model.hidden))
    cache = sum(model.heads * (model.hidden // model.heads) for _ in ("key", "value") for _ in range(model.layers) for _ in range(96))
    assert paper.kv_elements(model, 96) == cache


@pytest.mark.parametrize(("sharding", "whole"), [("none", 4), ("zero1", 2), ("zero2", 1), ("zero3", 0)])
def test_sharded_state_is_what_rank_0_holds(sharding: paper.Sharding, whole: int) -> None:
    count, ranks = 4096, 8
    state = ["weight", "gradient", "first moment", "second moment"]  # sharded from the end: optimizer, then gradients, then weights
    held = sum(count if index < whole else len(range(0, count, ranks)) for index, _ in enumerate(state))
    assert paper.sharded_state(count, sharding, ranks) == held
    assert paper.sharded_state(count, sharding, 1) == 4 * count


def test_activations_keep_one_vector_per_token_and_layer() -> None:
    held = sum(MODEL.hidden for _ in range(6) for _ in range(96) for _ in range(MODEL.layers))
    assert paper.activations(MODEL, 6, 96) == held
    assert paper.activations(MODEL, 6, 96, kept=0.25) == held / 4


# -- Table 4

MODELS: dict[paper.Role, Dense] = {"policy": MODEL, "reference": MODEL, "reward": MODEL, "critic": CRITIC}
B, K, S, T = 3, 2, 48, 16
FORWARDS = {
    ("policy", True): causal_forward(MODEL, S + T, S + T, MODEL.vocabulary),
    ("reference", True): causal_forward(MODEL, S + T, S + T, MODEL.vocabulary),
    ("reward", True): causal_forward(MODEL, S + T, 1, 1),
    ("critic", True): causal_forward(CRITIC, S + T, S + T, 1),
}
CASES = {  # algorithm -> what runs a forward, what is trained, rollouts per prompt
    "ppo": (["reference", "reward", "critic"], ["policy", "critic"], K),
    "grpo": (["reference", "reward"], ["policy"], K),
    "rloo": (["reference", "reward"], ["policy"], K),
    "remax": (["reference", "reward"], ["policy"], K + 1),
    "dpo": (["reference"], ["policy"], 0),
}


@pytest.mark.parametrize("algorithm", CASES)
def test_work_of_each_stage(algorithm: paper.Algorithm) -> None:
    forwards, trained, rollouts = CASES[algorithm]
    step = Step(algorithm, B, K, S, T, epochs=2)
    one_rollout = causal_forward(MODEL, S, 1, MODEL.vocabulary) + sum(
        MODEL.layers * layer_flops(MODEL, 1, S + t) + product_flops(1, MODEL.hidden, MODEL.vocabulary) for t in range(1, T)
    )
    assert paper.generation_work(MODEL, step) == pytest.approx(sum(one_rollout for _ in product(range(B), range(rollouts))))
    assessed = sum(FORWARDS[role, True] for role in forwards for _ in range(B * K))
    if algorithm == "remax":  # the greedy baseline of each prompt is scored too
        assessed += B * FORWARDS["reward", True]
    assert paper.assessment_work(MODELS, step) == pytest.approx(assessed)
    assert paper.training_work(MODELS, step) == pytest.approx(sum(2 * 3 * FORWARDS[role, True] for role in trained for _ in range(B * K)))


def test_a_verifier_takes_no_flops_and_recomputed_log_probs_take_a_forward() -> None:
    bare = paper.assessment_work(MODELS, Step("grpo", B, K, S, T, reward_model=False))
    assert bare == pytest.approx(B * K * FORWARDS["reference", True])
    more = paper.assessment_work(MODELS, Step("grpo", B, K, S, T, reward_model=False, recomputed=True))
    assert more - bare == pytest.approx(B * K * FORWARDS["policy", True])
    trained, again = (paper.training_work(MODELS, Step("grpo", B, K, S, T, checkpointing=on)) for on in (False, True))
    assert again - trained == pytest.approx(B * K * FORWARDS["policy", True])


def test_depths_and_memory_of_ppos_stages() -> None:
    step = Step("ppo", B, K, S, T)
    generated, assessed, trained = paper.stage_depths(MODELS, step)
    assert set(assessed) == {"reference", "reward", "critic"} and set(trained) == {"policy", "critic"}
    assert generated == paper.generation_depth(MODEL, S, T)
    assert sum(assessed.values()) == 2 * paper.forward_depth(MODEL, 64) + paper.forward_depth(CRITIC, 64)
    assert trained["critic"] == paper.training_depth(CRITIC, 64, B * K)
    held = [4 * sum(tensors(MODEL)) + B * K * 64 * 4 * 64, 4 * sum(tensors(CRITIC, CRITIC.hidden)) + B * K * 64 * 2 * 32]
    assert paper.training_memory(MODELS, step) == sum(held)
    assert paper.training_memory(MODELS, step, colocated=False) == held[0]
    assert paper.generation_memory(MODEL, step) == sum(tensors(MODEL)) + B * K * 2 * 64 * 4 * 64


# -- Tables 5 to 8


def counted_training(model: Dense, sequences: int, tokens: int, layout: Layout) -> float:
    """FLOPs of rank 0: the layers, sequences, tokens, heads and columns it holds, product by product; forward and twice as much back."""
    d, width = model.hidden, model.hidden // model.heads
    own_layers = len(range(model.layers)[:: layout.pipeline])
    own_sequences = len(range(sequences)[:: layout.data])
    own_tokens = len(range(tokens)[:: layout.context])
    own_heads = len(range(model.heads)[:: layout.tensor])
    own_columns = d // layout.tensor
    flops = 0.0
    for _ in range(own_layers):
        per_sequence = 4.0 * product_flops(own_tokens, d, own_columns)
        per_sequence += own_heads * product_flops(own_tokens, width, tokens)  # scores and values, each halved by causality
        if model.experts:
            per_sequence += model.active_experts / layout.expert * 2 * product_flops(own_tokens, d, model.expert_ffn // layout.tensor)
        else:
            per_sequence += 2 * product_flops(own_tokens, d, model.ffn // layout.tensor)
        flops += own_sequences * per_sequence
    return 3 * flops


LAYOUTS = {
    "one device": Layout(),
    "DP": Layout(data=4),
    "PP": Layout(pipeline=2),
    "TP": Layout(tensor=2),
    "CP": Layout(context=4),
    "EP": Layout(expert=2),
    "3D": Layout(data=2, pipeline=2, tensor=2),
    "5D": Layout(data=2, pipeline=2, tensor=2, context=4, expert=2),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_work_per_rank_and_global(name: str) -> None:
    layout, b, m = LAYOUTS[name], 8, 128
    model = EXPERTS if layout.expert > 1 else MODEL
    counted = counted_training(model, b, m, layout)
    assert paper.per_rank(model, b, m, layout).work == pytest.approx(counted)
    assert paper.overall(model, b, m, layout).work == pytest.approx(counted * layout.ranks)
    if layout.expert == 1:  # nothing is replicated: the ranks' work adds up to that of one device
        assert paper.overall(model, b, m, layout).work == pytest.approx(paper.per_rank(model, b, m, Layout()).work)
    else:
        dense = [counted_training(Dense(4, 64, 0, 4, 512), b, m, Layout()), counted_training(EXPERTS, b, m, Layout())]
        expected = dense[0] * layout.expert + (dense[1] - dense[0])
        assert paper.overall(model, b, m, layout).work == pytest.approx(expected)


@pytest.mark.parametrize("name", LAYOUTS)
def test_depth_per_rank_and_global(name: str) -> None:
    layout, b, m = LAYOUTS[name], 8, 128
    model = EXPERTS if layout.expert > 1 else MODEL
    d, ffn = model.hidden, model.expert_ffn or model.ffn
    # What each product of a layer sums over: projections, scores within a head, values over tokens, output, up and down; the two
    # that tensor parallelism splits along the sum (output and down) are shorter.
    sums = [d, d / model.heads, m, d / layout.tensor, d, ffn / layout.tensor]
    layer = 2 * sum(levels(length) for length in sums)
    assert paper.per_rank(model, b, m, layout).depth == pytest.approx(layer * model.layers / layout.pipeline + levels(b * m))
    assert paper.overall(model, b, m, layout).depth == pytest.approx(layer * model.layers + levels(b * m))


@pytest.mark.parametrize("name", LAYOUTS)
def test_memory_per_rank_and_global(name: str) -> None:
    layout, b, m = LAYOUTS[name], 8, 128
    model = EXPERTS if layout.expert > 1 else MODEL
    d = model.hidden
    own = model.vocabulary * d // layout.tensor
    for _ in range(model.layers // layout.pipeline):
        own += 4 * d * d // layout.tensor
        ffns = [model.expert_ffn] * (model.experts // layout.expert) if model.experts else [model.ffn]
        own += sum(2 * d * ffn // layout.tensor for ffn in ffns)
    kept = (b // layout.data) * (m // layout.context) * (model.layers // layout.pipeline) * d // layout.tensor
    assert paper.per_rank(model, b, m, layout).memory == 4 * own + kept
    assert paper.overall(model, b, m, layout).memory == (4 * own + kept) * layout.ranks


@pytest.mark.parametrize(("sharding", "sharded"), [("zero1", 2), ("zero2", 3), ("zero3", 4)])
def test_zero_shards_state_over_data_ranks_and_nothing_else(sharding: paper.Sharding, sharded: int) -> None:
    """Of weights, gradients and two moments, `sharded` copies lose three quarters on each of four ranks."""
    layouts = Layout(data=4), Layout(data=4, sharding=sharding)
    plain, cut = (paper.per_rank(MODEL, 8, 128, layout) for layout in layouts)
    assert plain.memory - cut.memory == sharded * sum(tensors(MODEL)) * 3 / 4
    assert (plain.work, plain.depth) == (cut.work, cut.depth)
    everywhere, fewer = (paper.overall(MODEL, 8, 128, layout) for layout in layouts)
    assert everywhere.memory - fewer.memory == 4 * (plain.memory - cut.memory)


STAGES = [*LAYOUTS, "5D, ZeRO-2"]


@pytest.mark.parametrize("algorithm", CASES)
@pytest.mark.parametrize("name", STAGES)
def test_stages_of_each_algorithm_per_rank_and_global(name: str, algorithm: paper.Algorithm) -> None:
    """Rank 0 by listing: its samples, its layers and its experts; the critic is dense, so expert-parallel ranks repeat it."""
    layout = LAYOUTS.get(name, Layout(2, 2, 2, 4, 2, "zero2"))
    policy = EXPERTS if layout.expert > 1 else MODEL
    models: dict[paper.Role, Dense] = {"policy": policy, "reference": policy, "reward": policy, "critic": CRITIC}
    b, k, s, t = 4, 2, 48, 16
    m = s + t
    forwards, trained, rollouts = CASES[algorithm]
    step = Step(algorithm, b, k, s, t, recomputed=algorithm == "grpo", checkpointing=algorithm == "rloo")
    own = (
        Dense(4, 64, 0, 4, 512, experts=8 // layout.expert, active_experts=2 // layout.expert, expert_ffn=128)
        if policy is EXPERTS
        else MODEL
    )
    mine: dict[str, tuple[Dense, int, int]] = {  # role -> what this rank meets of it, its head's tokens and width
        "policy": (own, m, 512), "reference": (own, m, 512), "reward": (own, 1, 1), "critic": (CRITIC, m, 1),
    }  # fmt: skip
    invocation = {role: causal_forward(model, m, head, width) for role, (model, head, width) in mine.items()}
    rollout = causal_forward(own, s, 1, 512) + sum(own.layers * layer_flops(own, 1, s + n) + product_flops(1, 64, 512) for n in range(1, t))
    sharing = layout.data * layout.context * layout.tensor * layout.pipeline  # ranks among which one rank's sort of work is split
    expected = {
        "generation": b * rollouts * rollout,
        "assessment": b * k * sum(invocation[role] for role in (*forwards, *["policy"] * step.recomputed)),
        "training": b * k * (4 if step.checkpointing else 3) * sum(invocation[role] for role in trained),
    }
    if algorithm == "remax":
        expected["assessment"] += b * invocation["reward"]
    if algorithm == "dpo":
        del expected["generation"]
    one, every = (each(models, step, layout) for each in (paper.stages_per_rank, paper.stages_overall))
    assert {stage: cost.work for stage, cost in one.items()} == pytest.approx({stage: flops / sharing for stage, flops in expected.items()})
    assert {stage: cost.work for stage, cost in every.items()} == pytest.approx(
        {stage: flops * layout.expert for stage, flops in expected.items()}
    )
    held = {
        role: sum(tensors(mine[role][0], 64 * (role == "reward") + 32 * (role == "critic"))) / (layout.tensor * layout.pipeline)
        for role in mine
    }
    kept = {role: b * k * m * mine[role][0].layers * mine[role][0].hidden / sharing for role in trained}
    copies = {"none": 4, "zero2": 1 + 3 / layout.data}[layout.sharding]
    assert one["training"].memory == pytest.approx(sum(copies * held[role] + kept[role] for role in trained))
    assert one["assessment"].memory == pytest.approx(sum(held[role] for role in (*forwards, *["policy"] * step.recomputed)))
    if algorithm != "dpo":
        assert one["generation"].memory == pytest.approx(held["policy"] + b * k * 2 * m * 4 * 64 / sharing)
    # A rank's layers of the chain; over all ranks a micro-batch passes every layer.
    chain = levels(64 / layout.tensor) * 5 + 4 * levels(m)
    values = 3 * levels(32 / layout.tensor) + 2 * levels(m)
    depth = sum(values if role == "critic" else chain for role in (*forwards, *["policy"] * step.recomputed))
    assert (one["assessment"].depth, every["assessment"].depth) == (depth / layout.pipeline, depth)


def test_invocations_in_turn() -> None:
    whole = paper.total([paper.Cost(1, 2, 3), paper.Cost(10, 20, 2)])
    assert whole == paper.Cost(11, 22, 3)
