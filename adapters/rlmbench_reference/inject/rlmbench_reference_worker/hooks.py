"""Which function of the simulated framework is which stage, and what is counted there: the way of any adapter's hooks."""

import os
from time import monotonic_ns as now

from rlmbench_plan import prompt_hash
from rlmbench_probe import AsyncHook, Hook, recorder

TRAINER = "reference_framework.trainer:Trainer."
ROLLOUT = "reference_framework.rollout:Rollout."


def role():
    kind, rank = os.environ.get("REFERENCE_ROLE", "trainer"), os.environ.get("RANK", "0")
    return "rollout" if kind == "rollout" else "driver" if rank == "0" else "worker"


def hooks():
    if role() == "rollout":
        return [
            Hook(ROLLOUT + "wait_for_request", before=step_asked_for),
            Hook(ROLLOUT + "load_weights", "weight_sync"),
            Hook(ROLLOUT + "generate", "generation", fields=lambda args, kwargs, result: counted(args[2])),
            AsyncHook("reference_framework.script:generate_sample", "generation", name="sample"),
        ]
    return [
        Hook(TRAINER + "__init__", "startup", name="build", after=facts),
        Hook(TRAINER + "fit", after=lambda args, kwargs, result: recorder.end_steps()),
        Hook(TRAINER + "next_batch", "data", before=lambda args, kwargs: recorder.next_step()),
        Hook(TRAINER + "generate", "generation", fields=lambda args, kwargs, result: counted(args[1])),
        Hook(TRAINER + "wait_for_batch", "generation", fields=lambda args, kwargs, result: {"awaits": "generation weight_sync"}),
        AsyncHook("reference_framework.script:generate_sample", "generation", name="sample"),
        Hook(TRAINER + "score", "reward", after=rewards),
        Hook(TRAINER + "reference_log_probs", "reference_logprob", fields=trained),
        Hook(TRAINER + "old_log_probs", "old_logprob", fields=trained),
        Hook(TRAINER + "values", "values", fields=trained),
        Hook(TRAINER + "advantages", "advantage"),
        Hook(TRAINER + "update_critic", "critic_update", after=critic_updated),
        Hook(TRAINER + "update", "actor_update"),
        Hook(TRAINER + "loss", "actor_update", "forward", before=loss),
        Hook(TRAINER + "backward", "actor_update", "backward"),
        Hook(TRAINER + "step_optimizer", "actor_update", "optimizer", before=before_update, after=after_update),
        Hook(TRAINER + "barrier", "wait"),
        Hook(TRAINER + "sync_weights", "weight_sync"),
        Hook(TRAINER + "log", "bookkeeping", before=native),
    ]


def facts(args, kwargs, result):
    recorder.event("fact", name="world_size", value=1 + len(args[0].peers) if args[0].rank == 0 else args[0].ranks)


def step_asked_for(args, kwargs):
    """A rollout knows for which step it generates, whatever the trainers do meanwhile."""
    recorder.step = args[1]


def counted(samples):
    prompt_tokens = sum(len(sample["prompt"]) for sample in samples)
    response_tokens = sum(len(sample["response"]) for sample in samples)
    return {
        "samples": len(samples), "prompt_tokens": prompt_tokens, "response_tokens": response_tokens,
        "valid_tokens": prompt_tokens + response_tokens, "computed_tokens": padded(samples),
    }  # fmt: skip


def padded(samples):
    """Tokens of a batch in which each sample is as long as the longest."""
    return len(samples) * max(len(sample["prompt"]) + len(sample["response"]) for sample in samples)


def trained(args, kwargs, result):
    return counted(args[1])


def rewards(args, kwargs, result):
    rows = [[sample["extra"]["row"], sample["extra"]["sample"], sample["reward"]] for sample in args[1]]
    recorder.event("reward", step=recorder.step, t_ns=now(), rows=rows)


def loss(args, kwargs):
    """One micro-batch as the loss receives it."""
    seen = [(sample["extra"], sample["prompt"], len(sample["response"])) for sample in args[1]]
    event = {"ev": "loss", "step": recorder.step, "update": recorder.update + 1, "t_ns": now(), "computed_tokens": padded(args[1])}
    recorder.later(lambda: {**event, "rows": [[x["row"], x["sample"], prompt_hash(p), len(p), length] for x, p, length in seen]})


class Before:
    weight = None


def before_update(args, kwargs):
    Before.weight = args[1].weight


def after_update(args, kwargs, result):
    recorder.update += 1
    updated("actor", recorder.update, args[1], args[1].weight != Before.weight)


def critic_updated(args, kwargs, result):
    updated("critic", recorder.update + 1, args[0].critic, True)


def updated(role, number, optimizer, changed):
    recorder.event(
        "update", step=recorder.step, update=number, t_ns=now(), role=role, learning_rate=optimizer.lr, grad_norm=None,
        weights_changed=changed,
    )  # fmt: skip


def native(args, kwargs):
    if args[0].rank == 0:
        recorder.event("native", step=recorder.step, t_ns=now(), values=args[1])
