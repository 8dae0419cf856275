"""Which function of the made-up trainer is which stage, and what is counted there. Read before the trainer is imported."""

import sys
from time import monotonic_ns as now

from rlmbench_plan import prompt_hash
from rlmbench_probe import AsyncHook, Gap, Hook, recorder

TRAINER = "pretend_trainer:Trainer."


def role():
    """The process that drives the loop is known by how it was started."""
    return "driver" if "rlmbench_pretend_worker.train" in sys.orig_argv else "worker"


def hooks():
    return [
        Hook(TRAINER + "__init__", "startup", name="build", after=facts),
        Hook(TRAINER + "fit", after=lambda args, kwargs, result: recorder.end_steps()),
        Hook(TRAINER + "next_batch", "data", before=lambda args, kwargs: recorder.next_step()),
        Hook(TRAINER + "generate", "generation", fields=generated),
        Hook(TRAINER + "score", "reward", after=rewards),
        AsyncHook(TRAINER + "score_one", "reward"),  # one interval for each of many coroutines at once
        Hook(TRAINER + "update", "actor_update"),
        # The loop computes advantages inline, between `score` and the first `update`. Listed after the hook of `update`.
        Gap(TRAINER + "update", "advantage", name="advantages", when=lambda: recorder.update == 0),
        Hook(TRAINER + "loss", "actor_update", "forward", before=loss),
        Hook("pretend_trainer:Optimizer.step", "actor_update", "optimizer", before=before_update, after=after_update),
        Hook(TRAINER + "log", "bookkeeping", before=native),
    ]


def facts(args, kwargs, result):
    recorder.event("fact", name="world_size", value=1)  # a real one asks torch.distributed


def generated(args, kwargs, result):
    samples = args[1]
    prompt_tokens, response_tokens = (sum(len(sample[part]) for sample in samples) for part in ("prompt", "response"))
    valid = prompt_tokens + response_tokens
    return {"samples": len(samples), "prompt_tokens": prompt_tokens, "response_tokens": response_tokens, "valid_tokens": valid}


def rewards(args, kwargs, result):
    """As they enter the advantage."""
    rows = [[sample["extra"]["row"], sample["extra"]["sample"], sample["reward"]] for sample in args[1]]
    recorder.event("reward", step=recorder.step, t_ns=now(), rows=rows)


def loss(args, kwargs):
    """One micro-batch as the loss receives it: what is really there, never what the plan says. Made into text off this thread."""
    seen = [(sample["extra"], sample["prompt"], len(sample["response"])) for sample in args[1]]
    event = {"ev": "loss", "step": recorder.step, "update": recorder.update + 1, "t_ns": now()}
    event["computed_tokens"] = sum(len(prompt) + response for _, prompt, response in seen)  # with padding, where there is any
    recorder.later(lambda: {**event, "rows": [[x["row"], x["sample"], prompt_hash(p), len(p), length] for x, p, length in seen]})


class Before:
    weight = None


def before_update(args, kwargs):
    Before.weight = args[0].weight  # torch: rlmbench_probe.weights.look_before(optimizer)


def after_update(args, kwargs, result):
    optimizer = args[0]
    recorder.update += 1
    recorder.event(
        "update", step=recorder.step, update=recorder.update, t_ns=now(), role="actor", learning_rate=optimizer.lr, grad_norm=None,
        weights_changed=optimizer.weight != Before.weight,  # torch: rlmbench_probe.weights.changed(optimizer)
    )  # fmt: skip


def native(args, kwargs):
    recorder.event("native", step=recorder.step, t_ns=now(), values=args[1])
