"""How far the rollout engine's log-probs are from the trainer's, for the same tokens under what should be the same weights.

After a weight sync both compute the same policy, so that they differ by rounding only; a sync that is broken shows here as
soon as an update has moved the weights.
"""

from time import monotonic_ns

from rlmbench_probe.recorder import recorder


def compare(policy, rollout, mask, step=0):
    """Record |policy - rollout| where `mask` holds: three tensors of one shape (samples, tokens), of the policy before its update.

    Nothing is recorded without log-probs of a rollout engine. The sums stay tensors until the event is written, so that a GPU
    need not be waited for.
    """
    if policy is None or rollout is None or policy.shape != rollout.shape or mask.shape != policy.shape:
        return
    kept = mask.bool()
    apart = (policy.detach().float() - rollout.detach().float()).abs().where(kept, 0.0)
    found = [kept.sum(), apart.sum(), apart.max()]
    event = {"ev": "logprobs", "step": step, "t_ns": monotonic_ns()}
    recorder.later(lambda: {**event, **dict(zip(("tokens", "difference_sum", "difference_max"), (one.item() for one in found)))})
