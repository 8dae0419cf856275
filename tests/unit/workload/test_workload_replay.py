from hashlib import sha256
from math import erf, sqrt
from pathlib import Path
from statistics import fmean, pstdev

import pytest

from rlmbench.errors import UserError
from rlmbench.experiment import Replay
from rlmbench.workload.replay import read_trace, response_tokens, reward

PROMPT = "0123456789abcdef"
LONG_TAIL = Replay(lengths={"kind": "lognormal", "p50_tokens": 400, "p99_tokens": 4000}, pass_rate=0.3, seed=7)


def words(seed: int, prompt: str, visit: int, sample: int) -> list[float]:
    digest = sha256(f"{seed}:{prompt}:{visit}:{sample}".encode()).hexdigest()
    return [(int(digest[16 * word : 16 * word + 16], 16) // 2**11) / 2**53 for word in range(3)]


def test_fixed_lengths_and_cap() -> None:
    replay = Replay(lengths={"kind": "fixed", "tokens": 128})
    assert response_tokens(replay, 200, PROMPT, 0, 0) == 128
    assert response_tokens(replay, 100, PROMPT, 3, 2) == 100


def normal_quantile(probability: float) -> float:
    """By bisection of the error function, independent of the library's own quantile."""
    low, high = -10.0, 10.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if (1 + erf(middle / sqrt(2))) / 2 < probability else (low, middle)
    return low


@pytest.mark.parametrize(("visit", "sample"), [(0, 0), (0, 1), (1, 0), (12, 63)])
def test_lognormal_is_the_documented_function_of_its_key(visit: int, sample: int) -> None:
    uniform = words(7, PROMPT, visit, sample)[0]
    exact = 400 * (4000 / 400) ** (normal_quantile(uniform) / normal_quantile(0.99))
    assert abs(response_tokens(LONG_TAIL, 10**9, PROMPT, visit, sample) - exact) <= 0.5


def test_known_values_stay_what_they_are() -> None:
    # By hand from sha256("7:0123456789abcdef:0:0"): uniform 0.239621 gives 400 * 10^(z/z99) = 198.575 tokens, and
    # uniforms 0.709058 and 0.336842 give 64 (0.3 + 0.3 * 0.418117) + 0.336842 = 27.565, whole part 27.
    assert sha256(b"7:0123456789abcdef:0:0").hexdigest().startswith("3d57c9bbdc665f06b584da2218dac7b6563b4e08fd5c3400")
    assert response_tokens(LONG_TAIL, 10_000, PROMPT, 0, 0) == 199
    assert reward(LONG_TAIL, PROMPT, 0, 0) == 27 / 64


def test_lognormal_has_the_quantiles_asked_for() -> None:
    drawn = sorted(response_tokens(LONG_TAIL, 10**9, f"{prompt:016x}", 0, sample) for prompt in range(2500) for sample in range(8))
    # standard errors of the sample quantiles at n = 20,000: 0.9% (p50) and 2.6% (p99)
    assert drawn[10_000] == pytest.approx(400, rel=0.03)
    assert drawn[19_800] == pytest.approx(4000, rel=0.08)


def test_cap_and_floor() -> None:
    capped = [response_tokens(LONG_TAIL, 512, f"{prompt:016x}", 0, 0) for prompt in range(500)]
    assert max(capped) == 512 and capped.count(512) == pytest.approx(500 * 0.4, rel=0.15)  # P(X > 512) = 0.402
    short = Replay(lengths={"kind": "lognormal", "p50_tokens": 1, "p99_tokens": 100})
    assert min(response_tokens(short, 64, f"{prompt:016x}", 0, 0) for prompt in range(500)) == 1
    steep = Replay(lengths={"kind": "lognormal", "p50_tokens": 1, "p99_tokens": 10**300})
    assert {response_tokens(steep, 64, f"{prompt:016x}", 0, 0) for prompt in range(50)} <= set(range(1, 65))


def test_equal_percentiles_are_a_fixed_length() -> None:
    assert response_tokens(Replay(lengths={"kind": "lognormal", "p50_tokens": 50, "p99_tokens": 50}), 64, PROMPT, 0, 0) == 50


@pytest.mark.parametrize("sample", range(5))
def test_reward_is_the_documented_function_of_its_key(sample: int) -> None:
    _, spread, rounding = words(7, PROMPT, 2, sample)
    target = 0.3 + 0.3 * (2 * spread - 1)  # between 0 and 0.6
    assert reward(LONG_TAIL, PROMPT, 2, sample) == (64 * target + rounding) // 1 / 64


@pytest.mark.parametrize("pass_rate", [0.0, 0.01, 0.3, 0.5, 0.9, 1.0])
def test_rewards_are_exact_in_bfloat16_and_have_the_pass_rate_as_mean(pass_rate: float) -> None:
    replay = Replay(lengths={"kind": "fixed", "tokens": 1}, pass_rate=pass_rate)
    drawn = [reward(replay, f"{prompt:016x}", 0, sample) for prompt in range(1000) for sample in range(4)]
    assert all(0 <= value <= 1 and (64 * value).is_integer() for value in drawn)
    spread = min(pass_rate, 1 - pass_rate) / 3**0.5
    assert fmean(drawn) == pytest.approx(pass_rate, abs=4 * (spread + 1 / 64) / 4000**0.5)
    if pass_rate in (0.0, 1.0):
        assert set(drawn) == {pass_rate}
    elif pass_rate >= 0.3:
        assert pstdev(drawn) == pytest.approx(spread, rel=0.1)
        groups = [drawn[first : first + 4] for first in range(0, 4000, 4)]
        assert all(len(set(group)) > 1 for group in groups)


def test_every_part_of_the_key_matters() -> None:
    other_seed = Replay(lengths={"kind": "lognormal", "p50_tokens": 400, "p99_tokens": 4000}, pass_rate=0.3, seed=8)
    keys = [
        (LONG_TAIL, PROMPT, 0, 0),
        (other_seed, PROMPT, 0, 0),
        (LONG_TAIL, PROMPT[::-1], 0, 0),
        (LONG_TAIL, PROMPT, 1, 0),
        (LONG_TAIL, PROMPT, 0, 1),
    ]
    assert len({response_tokens(replay, 10**6, *rest) for replay, *rest in keys}) == 5


def test_trace_lengths(tmp_path: Path) -> None:
    path = tmp_path / "lengths.txt"
    path.write_text("# from a real run\n10\n20  # short\n\n3000\n")
    trace = read_trace(path)
    assert trace == (10, 20, 3000)
    replay = Replay(lengths={"kind": "trace", "path": str(path)})
    drawn = [response_tokens(replay, 1000, f"{prompt:016x}", 0, 0, trace) for prompt in range(600)]
    assert set(drawn) == {10, 20, 1000}
    assert drawn.count(10) == pytest.approx(200, abs=45)
    assert drawn[0] == (10, 20, 1000)[int(3 * words(0, f"{0:016x}", 0, 0)[0])]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [("10\nten\n", ":2: expected one response length"), ("0\n", ":1: expected"), ("# nothing\n", ": no response length")],
)
def test_bad_trace_is_named_by_line(tmp_path: Path, content: str, complaint: str) -> None:
    path = tmp_path / "lengths.txt"
    path.write_text(content)
    with pytest.raises(UserError) as caught:
        read_trace(path)
    assert str(caught.value).startswith(f"{path}{complaint}")


def test_missing_trace(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file"):
        read_trace(tmp_path / "nowhere.txt")
