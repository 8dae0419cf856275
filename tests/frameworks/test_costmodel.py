"""The cost model's FLOPs against torch's own counter, on small real transformers of rlmbench's shapes in TRL's environment."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import timeit
from dataclasses import replace
from pathlib import Path

import pytest

from rlmbench.adapter import find_adapter
from rlmbench.costmodel import work
from rlmbench.costmodel.devices import DEVICES
from rlmbench.costmodel.memory import activation_bytes
from rlmbench.costmodel.work import Flops, Sequences
from rlmbench.environment import ceilings, ensure
from rlmbench.workload.shapes import Shape, find_shape

SAMPLES, PROMPT, RESPONSE = 3, 48, 16
DENSE = find_shape("tiny")
EXPERTS = replace(
    find_shape("qwen3-30b-a3b"),
    vocab_size=1024,
    hidden_size=128,
    layers=2,
    heads=4,
    key_value_heads=2,
    head_dim=32,
    experts=8,
    experts_per_token=2,
    expert_intermediate_size=64,
    max_positions=512,
)


def test_peaks_are_those_that_verl_knows() -> None:
    """An independent table: verl/utils/flops_counter.py, dense bfloat16."""
    spec = next(one for one in find_adapter("verl").environments() if one.device == "cpu")
    (source,) = ensure(spec).python.parents[1].glob("lib/python3*/site-packages/verl/utils/flops_counter.py")
    table = next(
        node.value
        for node in ast.parse(source.read_text()).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_DEVICE_FLOPS"
    )
    theirs = {ast.literal_eval(key): ast.literal_eval(value) for key, value in zip(table.keys, table.values, strict=True)}
    shared = {name: device for name, device in DEVICES.items() if name.split("-")[0] in theirs and name not in ("H100-PCIe", "H100-NVL")}
    assert len(shared) >= 8  # verl gives every H100 the rate of the SXM one
    for name, device in shared.items():
        assert device.flops_per_s["bfloat16"] == pytest.approx(theirs[name.split("-")[0]], rel=0.001), name


def test_ceilings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured for real; after 5 minutes it would be given up. Independent: a product and a copy timed here by numpy, at least a tenth as fast."""
    import numpy as np

    monkeypatch.setattr(ceilings, "keep", lambda kind, name, text: None)  # the machine's own stay as they are
    spec = next(one for one in find_adapter("trl").environments() if (one.name, one.device) == ("trl", "cpu"))
    (found,) = ceilings.measure(ensure(spec), "trl", "cpu")
    square = np.ones((512, 512), dtype=np.float32)
    block = np.ones(8 << 20, dtype=np.float32)
    assert found["flops_per_s"]["float32"] > 2 * 512**3 / min(timeit.repeat(lambda: square @ square, number=1, repeat=5)) / 10
    assert found["bytes_per_s"] > 2 * block.nbytes / min(timeit.repeat(block.copy, number=1, repeat=5)) / 10
    assert found["flops_per_s"]["float32"] >= found["median_flops_per_s"]["float32"] > 0
    assert set(found["flops_per_s"]) == {"float32", "bfloat16"}


def whole_square(flops: Flops) -> float:
    """The counter sees all products of queries and keys; the model counts the half of them that causal attention needs."""
    return flops.matmul + 2 * flops.attention


NORMED = replace(
    find_shape("qwen3-8b"), layers=2, hidden_size=512, intermediate_size=1536, heads=8, key_value_heads=2, head_dim=64, vocab_size=2048
)


@pytest.mark.parametrize("shape", [DENSE, NORMED, EXPERTS], ids=["dense, grouped queries, gated", "normed queries, wider", "experts"])
def test_torch_counts_what_the_model_says(shape: Shape) -> None:
    spec = next(one for one in find_adapter("trl").environments() if (one.name, one.device) == ("trl", "cpu"))
    asked = {"config": shape.config("float32"), "sequences": SAMPLES, "prompt": PROMPT, "response": RESPONSE}
    script = Path(__file__).with_name("count_flops.py")
    child = subprocess.run(
        [str(ensure(spec).python), str(script)],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert child.returncode == 0, child.stderr[-2000:]
    counted = json.loads(child.stdout.splitlines()[-1])
    assert counted["parameters"] == shape.parameters
    if not shape.experts:  # experts save what the router sends them, which depends on the tokens
        for dtype in ("float32", "bfloat16"):
            expected = activation_bytes(shape, dtype, SAMPLES * (PROMPT + RESPONSE), shape.layers, checkpointing=False)
            assert counted[f"saved {dtype}"] == pytest.approx(expected, rel=0.03)
    lengths = Sequences.of([(PROMPT, RESPONSE)] * SAMPLES)
    forward, trained = work.forward(shape, lengths.tokens, lengths.squares), work.training(shape, lengths.tokens, lengths.squares)
    assert counted["forward"] == pytest.approx(whole_square(forward), rel=0.01)
    assert counted["forward"] + counted["backward"] == pytest.approx(whole_square(trained), rel=0.01)
    again = whole_square(work.recomputed(shape, lengths.tokens, lengths.squares))
    assert counted["backward, checkpointed"] - counted["backward"] == pytest.approx(again, rel=0.01)
    # transformers' value head has a bias, which OpenRLHF's and TRL's lack.
    assert counted["critic parameters"] == work.parameters(shape, "value") + 1
    values = work.forward(shape, lengths.tokens, lengths.squares, "value")
    assert counted["critic forward"] == pytest.approx(whole_square(values), rel=0.01)
    prefill = work.prefill(shape, SAMPLES, lengths.prompt_tokens, lengths.prompt_squares)
    assert counted["prefill"] == pytest.approx(whole_square(prefill), rel=0.01)
    # A decoded token attends to all before it: nothing is masked, so nothing is halved.
    assert counted["decode"] == pytest.approx(work.decode(shape, lengths.decoded_tokens, lengths.decoded_contexts).total, rel=0.01)
