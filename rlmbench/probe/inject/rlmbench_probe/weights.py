"""Did an optimizer step change the weights? Looked at from outside, cheaply."""

import sys

PARAMETERS = 8
WEIGHTS = 64


def look_before(optimizer):
    """Remember the weights before the first update; later ones compare with what the one before left."""
    if "rlmbench_weights" not in optimizer.__dict__:
        optimizer.rlmbench_weights = fingerprint(optimizer)


def changed(optimizer):
    """Whether the update that has just happened changed any of the weights looked at."""
    before, optimizer.rlmbench_weights = optimizer.rlmbench_weights, fingerprint(optimizer)
    return optimizer.rlmbench_weights != before


def fingerprint(optimizer):
    """About 64 weights of each of up to 8 parameters, as bytes; of a sharded parameter, this rank's part."""
    torch = sys.modules["torch"]
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    parts = []
    for parameter in parameters[:: max(1, len(parameters) // PARAMETERS)]:
        local = parameter.detach()
        flat = (local.to_local() if hasattr(local, "to_local") else local).reshape(-1)
        parts.append(flat[:: max(1, flat.numel() // WEIGHTS)].float())
    return torch.cat(parts).cpu().numpy().tobytes()
