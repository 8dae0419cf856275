"""How far the rollout engine's log-probs are from the trainer's, for the same tokens under what should be the same weights.

After a weight sync both compute the same policy, so that they differ by rounding only; a sync that is broken shows here as
soon as an update has moved the weights.
"""


def difference(policy, rollout, mask):
    """[tokens, sum, maximum] of |policy - rollout| where `mask` holds; three tensors of one shape (samples, tokens).

    Still a tensor, so that a GPU need not be waited for: read it by `fields` when the event is written. None without log-probs
    of a rollout engine.
    """
    if policy is None or rollout is None or policy.shape != rollout.shape or mask.shape != policy.shape:
        return None
    kept = mask.bool()
    apart = (policy.detach().float() - rollout.detach().float()).abs().where(kept, 0.0)
    return [kept.sum(), apart.sum(), apart.max()]


def fields(found):
    """The fields of a ``loss`` event for what `difference` found."""
    if found is None:
        return {}
    tokens, total, largest = (one.item() for one in found)
    return {"rollout_tokens": int(tokens), "logprob_difference_sum": float(total), "logprob_difference_max": float(largest)}
