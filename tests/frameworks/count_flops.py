"""Runs in a framework's environment: counts a small transformer's FLOPs with torch's FlopCounterMode, and the bytes that its layers save for the
backward pass with torch's saved_tensors_hooks, and prints them as JSON.

Standard input: {"config": config.json, "sequences": n, "prompt": S, "response": T}. Eager attention, so that scores are plain products, which
the counter sees whole: it does not know that causal attention needs half of them.
"""

import json
import sys

import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForTokenClassification


def counted(action):
    with FlopCounterMode(display=False) as counter:
        result = action()
    return counter.get_total_flops(), result


def decoded(model, tokens, prompt, response, cache):
    """All but the first token of the response, one by one."""
    for at in range(prompt, prompt + response - 1):
        cache = model(tokens[:, at : at + 1], past_key_values=cache, use_cache=True).past_key_values


def saved_bytes(config, tokens, dtype):
    """Bytes of every storage that the layers save, weights aside, by sdpa attention; the head is not in it."""
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").to(dtype)
    weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    saved, kept = {}, []

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            saved[storage.data_ptr()] = storage.nbytes()
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model.model(tokens, use_cache=False)
    return sum(saved.values())


def main():
    asked = json.load(sys.stdin)
    settings = dict(asked["config"])
    config = AutoConfig.for_model(settings.pop("model_type"), **settings)
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float()
    n, prompt, response = asked["sequences"], asked["prompt"], asked["response"]
    tokens = torch.randint(0, config.vocab_size, (n, prompt + response))
    found = {"parameters": sum(weight.numel() for weight in model.parameters())}
    found["forward"], output = counted(lambda: model(tokens, use_cache=False))
    found["backward"], _ = counted(lambda: output.logits.float().logsumexp(-1).sum().backward())
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    output = model(tokens, use_cache=False)
    found["backward, checkpointed"], _ = counted(lambda: output.logits.float().logsumexp(-1).sum().backward())
    model.gradient_checkpointing_disable()
    model.eval()
    config.num_labels = 1
    critic = AutoModelForTokenClassification.from_config(config, attn_implementation="eager").float()
    found["critic parameters"] = sum(weight.numel() for weight in critic.parameters())
    found["critic forward"], _ = counted(lambda: critic(tokens, use_cache=False))
    with torch.no_grad():
        found["prefill"], output = counted(lambda: model(tokens[:, :prompt], use_cache=True, logits_to_keep=1))
        found["decode"], _ = counted(lambda: decoded(model, tokens, prompt, response, output.past_key_values))
    for dtype in ("float32", "bfloat16"):
        found["saved " + dtype] = saved_bytes(config, tokens, getattr(torch, dtype))
    print(json.dumps(found))


main()
