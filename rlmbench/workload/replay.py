"""Replayed response lengths and rewards: what a sample's length and reward are, whoever asks.

Every draw is a pure function of (replay seed, prompt hash, visit, sample): sha256 over these, joined by colons, gives
three 64-bit words (big-endian), and each becomes a uniform number in [0, 1) of 53 bits. Word 0 decides the length,
words 1 and 2 the reward. No generator state, so the order in which samples are asked for does not matter.

Lengths. ``lognormal``: exp(ln p50 + sigma z), sigma = ln(p99/p50)/z99, z the normal quantile of the uniform number,
rounded, at least 1 and at most the cap. ``trace``: each line of the file is equally likely, capped likewise.

Rewards are multiples of 1/64, which bfloat16 holds exactly, and have mean `pass_rate` p: uniform on
[p - h, p + h] with h = min(p, 1 - p), then rounded to a neighbouring multiple at random so that the mean stays p.
They are graded rather than 0 or 1 for two reasons. The audit compares them sample by sample, and 0/1 rewards would
hide two swapped samples. And a group whose rewards are all equal has advantage zero, so it contributes no gradient:
with 0/1 rewards one group in eight of four samples is like that at p = 0.5, with these about one in 270,000. At p = 0
or 1 every group is, and only a KL term can move the weights. Dynamic sampling, which drops such groups, therefore
has next to nothing to drop under replay.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from math import exp, log
from pathlib import Path
from statistics import NormalDist

from rlmbench.errors import UserError
from rlmbench.experiment import FixedLengths, LognormalLengths, Replay, TraceLengths

REWARD_STEPS = 64
_NORMAL = NormalDist()


def response_tokens(replay: Replay, cap: int, prompt_hash: str, visit: int, sample: int, trace: Sequence[int] = ()) -> int:
    """Length in tokens of one sample's response, between 1 and `cap`.

    `visit` counts from 0 how often the prompt came before, `sample` from 0 within its group. `trace` is what
    `read_trace` gave, for trace lengths only.
    """
    match replay.lengths:
        case FixedLengths(tokens=tokens):
            drawn = tokens
        case LognormalLengths(p50_tokens=p50, p99_tokens=p99):
            # The quantile of 0 is infinite, and exp of an absurd one overflows: both are cut where they change nothing.
            uniform = max(_uniform(replay.seed, prompt_hash, visit, sample, 0), 2.0**-54)
            drawn = round(exp(min(log(p50) + _sigma(p50, p99) * _NORMAL.inv_cdf(uniform), log(cap) + 1.0)))
        case TraceLengths():
            drawn = trace[int(_uniform(replay.seed, prompt_hash, visit, sample, 0) * len(trace))]
    return max(1, min(cap, drawn))


@cache
def _sigma(p50: float, p99: float) -> float:
    """Of the logarithm of a lognormal length with this median and 99th percentile."""
    return log(p99 / p50) / _NORMAL.inv_cdf(0.99)


def reward(replay: Replay, prompt_hash: str, visit: int, sample: int) -> float:
    """Reward of one sample: a multiple of 1/64 in [0, 1] with mean `replay.pass_rate`."""
    rate = replay.pass_rate
    half_width = min(rate, 1.0 - rate)
    target = rate + half_width * (2.0 * _uniform(replay.seed, prompt_hash, visit, sample, 1) - 1.0)
    step = int(REWARD_STEPS * target + _uniform(replay.seed, prompt_hash, visit, sample, 2))
    return min(REWARD_STEPS, step) / REWARD_STEPS  # the sum can round up to the step above the last


def read_trace(path: Path) -> tuple[int, ...]:
    """Response lengths in tokens, one positive integer per line; ``#`` starts a comment, blank lines are skipped.

    Raises:
        UserError: the file is missing, holds something else, or holds nothing.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"workload.replay.lengths.path: cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    lengths = []
    for number, line in enumerate(lines, start=1):
        text = line.split("#", 1)[0].strip()
        if not text:
            continue
        if not (text.isascii() and text.isdigit() and int(text) > 0):
            raise UserError(f"{path}:{number}: expected one response length in tokens (a positive integer), found {text[:40]!r}")
        lengths.append(int(text))
    if not lengths:
        raise UserError(f"{path}: no response length in the file; write one positive integer per line")
    return tuple(lengths)


def _uniform(seed: int, prompt_hash: str, visit: int, sample: int, word: int) -> float:
    digest = sha256(f"{seed}:{prompt_hash}:{visit}:{sample}".encode()).digest()
    return (int.from_bytes(digest[8 * word : 8 * word + 8], "big") >> 11) * 2.0**-53
