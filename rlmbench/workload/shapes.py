"""Published model shapes, built with random weights.

Speed depends on a model's shape, not on what it learned, so a benchmark needs no download. A shape here is what the
published ``config.json`` says, in one vocabulary, plus what follows from it: the checkpoint's tensors, and with them
the exact number of parameters.

Sources (Hugging Face model cards and the ``config.json`` beside them): Qwen/Qwen2.5-0.5B, Qwen/Qwen2.5-1.5B,
Qwen/Qwen2.5-7B, Qwen/Qwen3-8B, Qwen/Qwen3-30B-A3B, meta-llama/Llama-3.1-8B. ``tiny`` is rlmbench's own, for CPUs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Literal, NamedTuple

from rlmbench.errors import UserError, did_you_mean

BYTES_PER_VALUE: Mapping[str, int] = {"bfloat16": 2, "float32": 4}


class Tensor(NamedTuple):
    """One tensor of a checkpoint: its name, its dimensions, and what it holds before training."""

    name: str
    dims: tuple[int, ...]
    init: Literal["normal", "zeros", "ones"]


@dataclass(frozen=True)
class Shape:
    """A decoder-only transformer as published. Widths count values, `max_positions` counts tokens.

    `experts` is 0 for a dense model; otherwise `intermediate_size` is unused by the layers and every layer has
    `experts` experts of `expert_intermediate_size`, of which a token visits `experts_per_token`.
    """

    name: str
    source: str
    model_type: Literal["qwen2", "qwen3", "qwen3_moe", "llama"]
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    key_value_heads: int
    head_dim: int
    tied_embeddings: bool
    max_positions: int
    rope_theta: float = 1_000_000.0
    norm_epsilon: float = 1e-6
    experts: int = 0
    experts_per_token: int = 0
    expert_intermediate_size: int = 0
    rope_scaling: Mapping[str, Any] | None = None

    @property
    def architecture(self) -> str:
        """The class name in ``config.json``, by which transformers and vLLM find the model's code."""
        stem = {"qwen2": "Qwen2", "qwen3": "Qwen3", "qwen3_moe": "Qwen3Moe", "llama": "Llama"}[self.model_type]
        return f"{stem}ForCausalLM"

    @property
    def parameters(self) -> int:
        """Exact number of parameters; tied embeddings count once."""
        return sum(prod(tensor.dims) for tensor in self.tensors())

    def weight_bytes(self, dtype: str) -> int:
        """Size of the weights on disk in `dtype`."""
        return self.parameters * BYTES_PER_VALUE[dtype]

    def config(self, dtype: str) -> dict[str, Any]:
        """``config.json`` without the token ids, which belong to the tokenizer that is built for the shape."""
        config: dict[str, Any] = {
            "architectures": [self.architecture],
            "model_type": self.model_type,
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.key_value_heads,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "max_position_embeddings": self.max_positions,
            "rope_theta": self.rope_theta,
            "rope_scaling": dict(self.rope_scaling) if self.rope_scaling else None,
            "rms_norm_eps": self.norm_epsilon,
            "tie_word_embeddings": self.tied_embeddings,
            "attention_dropout": 0.0,
            "initializer_range": 0.02,
            "use_cache": True,
            "torch_dtype": dtype,
        }
        if self.model_type == "llama":
            config |= {"attention_bias": False, "mlp_bias": False}
        else:
            config["use_sliding_window"] = False
        if self.model_type in ("qwen3", "qwen3_moe"):
            config["attention_bias"] = False
        if self.experts:
            config |= {
                "num_experts": self.experts,
                "num_experts_per_tok": self.experts_per_token,
                "moe_intermediate_size": self.expert_intermediate_size,
                "decoder_sparse_step": 1,
                "mlp_only_layers": [],
                "norm_topk_prob": True,
                "router_aux_loss_coef": 0.001,
                "output_router_logits": False,
            }
        return config

    def tensors(self) -> list[Tensor]:
        """Every tensor of the checkpoint, under the names published checkpoints use (experts one by one)."""
        hidden = self.hidden_size
        found = [Tensor("model.embed_tokens.weight", (self.vocab_size, hidden), "normal")]
        for layer in range(self.layers):
            prefix = f"model.layers.{layer}"
            found.append(Tensor(f"{prefix}.input_layernorm.weight", (hidden,), "ones"))
            found += self._attention(f"{prefix}.self_attn")
            found.append(Tensor(f"{prefix}.post_attention_layernorm.weight", (hidden,), "ones"))
            if self.experts:
                found.append(Tensor(f"{prefix}.mlp.gate.weight", (self.experts, hidden), "normal"))
                for expert in range(self.experts):
                    found += self._mlp(f"{prefix}.mlp.experts.{expert}", self.expert_intermediate_size)
            else:
                found += self._mlp(f"{prefix}.mlp", self.intermediate_size)
        found.append(Tensor("model.norm.weight", (hidden,), "ones"))
        if not self.tied_embeddings:
            found.append(Tensor("lm_head.weight", (self.vocab_size, hidden), "normal"))
        return found

    def _attention(self, prefix: str) -> list[Tensor]:
        query, key_value = self.heads * self.head_dim, self.key_value_heads * self.head_dim
        found = [
            Tensor(f"{prefix}.q_proj.weight", (query, self.hidden_size), "normal"),
            Tensor(f"{prefix}.k_proj.weight", (key_value, self.hidden_size), "normal"),
            Tensor(f"{prefix}.v_proj.weight", (key_value, self.hidden_size), "normal"),
            Tensor(f"{prefix}.o_proj.weight", (self.hidden_size, query), "normal"),
        ]
        if self.model_type == "qwen2":
            found += [
                Tensor(f"{prefix}.q_proj.bias", (query,), "zeros"),
                Tensor(f"{prefix}.k_proj.bias", (key_value,), "zeros"),
                Tensor(f"{prefix}.v_proj.bias", (key_value,), "zeros"),
            ]
        if self.model_type in ("qwen3", "qwen3_moe"):
            found += [
                Tensor(f"{prefix}.q_norm.weight", (self.head_dim,), "ones"),
                Tensor(f"{prefix}.k_norm.weight", (self.head_dim,), "ones"),
            ]
        return found

    def _mlp(self, prefix: str, width: int) -> list[Tensor]:
        return [
            Tensor(f"{prefix}.gate_proj.weight", (width, self.hidden_size), "normal"),
            Tensor(f"{prefix}.up_proj.weight", (width, self.hidden_size), "normal"),
            Tensor(f"{prefix}.down_proj.weight", (self.hidden_size, width), "normal"),
        ]


_ALL = (
    # vLLM's CPU attention needs heads of at least 32; everything else is as small as trains.
    Shape("tiny", "rlmbench", "qwen2", 1024, 128, 384, 2, 4, 2, 32, True, 4096),
    Shape("qwen2.5-0.5b", "Qwen/Qwen2.5-0.5B", "qwen2", 151_936, 896, 4864, 24, 14, 2, 64, True, 32_768),
    Shape("qwen2.5-1.5b", "Qwen/Qwen2.5-1.5B", "qwen2", 151_936, 1536, 8960, 28, 12, 2, 128, True, 131_072),
    Shape("qwen2.5-7b", "Qwen/Qwen2.5-7B", "qwen2", 152_064, 3584, 18_944, 28, 28, 4, 128, False, 131_072),
    Shape("qwen3-8b", "Qwen/Qwen3-8B", "qwen3", 151_936, 4096, 12_288, 36, 32, 8, 128, False, 40_960),
    Shape(
        "llama-3.1-8b",
        "meta-llama/Llama-3.1-8B",
        "llama",
        128_256,
        4096,
        14_336,
        32,
        32,
        8,
        128,
        False,
        131_072,
        rope_theta=500_000.0,
        norm_epsilon=1e-5,
        rope_scaling={
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    ),
    Shape(
        "qwen3-30b-a3b",
        "Qwen/Qwen3-30B-A3B",
        "qwen3_moe",
        151_936,
        2048,
        6144,
        48,
        32,
        4,
        128,
        False,
        40_960,
        experts=128,
        experts_per_token=8,
        expert_intermediate_size=768,
    ),
)

SHAPES: Mapping[str, Shape] = {shape.name: shape for shape in _ALL}
"""Every shape by name, smallest first."""


def find_shape(name: str) -> Shape:
    """The shape called `name`.

    Raises:
        UserError: there is no such shape.
    """
    if name not in SHAPES:
        raise UserError(f"model.shape: unknown shape {name!r}{did_you_mean(name, SHAPES)}; known: {', '.join(SHAPES)}")
    return SHAPES[name]
