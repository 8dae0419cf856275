import pytest

from rlmbench.errors import UserError
from rlmbench.workload.shapes import SHAPES, find_shape

# `safetensors.total` of the published checkpoints on the Hugging Face hub.
PUBLISHED_PARAMETERS = {
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-7b": 7_615_616_512,
    "qwen3-8b": 8_190_735_360,
    "llama-3.1-8b": 8_030_261_248,
    "qwen3-30b-a3b": 30_532_122_624,
}


@pytest.mark.parametrize(("name", "parameters"), PUBLISHED_PARAMETERS.items())
def test_parameters_are_those_of_the_published_checkpoint(name: str, parameters: int) -> None:
    assert find_shape(name).parameters == parameters


def test_tiny_by_hand() -> None:
    # embedding 1024 x 128, tied; final norm 128; two layers of: two norms 2 x 128, q and o 128 x 128 (q bias 128),
    # k and v 64 x 128 (biases 64), gate, up and down 384 x 128
    layer = 256 + 2 * 128 * 128 + 128 + 2 * (64 * 128 + 64) + 3 * 384 * 128
    assert find_shape("tiny").parameters == 1024 * 128 + 128 + 2 * layer == 525_440
    assert find_shape("tiny").head_dim == 32
    assert find_shape("tiny").weight_bytes("bfloat16") == 2 * 525_440


@pytest.mark.parametrize("shape", SHAPES.values(), ids=lambda shape: shape.name)
def test_shape_is_consistent(shape) -> None:
    assert shape.heads % shape.key_value_heads == 0
    names = [tensor.name for tensor in shape.tensors()]
    assert len(names) == len(set(names))
    assert ("lm_head.weight" in names) != shape.tied_embeddings
    assert ("model.layers.0.self_attn.q_proj.bias" in names) == (shape.model_type == "qwen2")
    config = shape.config("float32")
    assert (config["model_type"], config["num_hidden_layers"], config["torch_dtype"]) == (shape.model_type, shape.layers, "float32")


def test_every_issue_shape_is_known() -> None:
    assert set(SHAPES) == {*PUBLISHED_PARAMETERS, "tiny"}


def test_unknown_shape_names_the_nearest() -> None:
    with pytest.raises(UserError, match=r"unknown shape 'qwen2\.5-05b' \(did you mean 'qwen2\.5-0\.5b'\?\)"):
        find_shape("qwen2.5-05b")
