import pytest

from rlmbench.metrics.stages import StepStages
from rlmbench.metrics.throughput import throughput
from rlmbench.metrics.work import StepWork


def _step(number, seconds, prompt_tokens, response_tokens, samples=2, **groups_s):
    groups = {group: int(value * 1e9) for group, value in groups_s.items()}
    stages = StepStages(number, int(seconds * 1e9), {}, {}, groups, 0, 0)
    return stages, StepWork(number, 1, samples, samples, prompt_tokens, response_tokens, 1, 1, "")


def test_throughput_is_the_ratio_of_sums():
    steps = [_step(2, 1.0, 60, 40, generation=0.5, training=0.25), _step(3, 3.0, 60, 140, generation=1.5, training=0.75)]
    rates = throughput(steps, devices=2)
    assert (rates.seconds, rates.tokens, rates.response_tokens, rates.samples) == (4.0, 300, 180, 4)
    assert rates.step_tokens_per_s == 75.0
    assert rates.step_tokens_per_s_per_device == 37.5
    assert rates.response_tokens_per_s == 45.0
    assert rates.samples_per_s == 1.0
    assert rates.generation_tokens_per_s == 90.0  # 180 response tokens in 2 s
    assert rates.training_tokens_per_s == 300.0  # 300 tokens in 1 s
    assert rates.assessment_tokens_per_s is None, "no assessment took place: absent, not infinite"


def test_generation_that_training_hides_is_measured_over_its_own_time():
    """An asynchronous driver awaits 0.1 s of the 2 s in which 180 tokens are made: 90 a second, and not 1,800."""
    steps = [_step(2, 2.0, 60, 180, generation=0.1, training=1.5)]
    assert throughput(steps, devices=2, generation_ns=2_000_000_000).generation_tokens_per_s == 90.0
    assert throughput(steps, devices=2).generation_tokens_per_s == pytest.approx(1800)


def test_never_total_samples_over_the_mean_latency():
    """optimum-benchmark printed 10 times the truth for 10 steps: all samples over the time of one mean step."""
    rates = throughput([_step(number, 2.0, 0, 10, samples=4) for number in range(10)], devices=1)
    assert rates.samples_per_s == 2.0  # 4 samples every 2 s; total over mean latency would be 20


def test_never_cumulative_tokens_over_the_last_steps_time():
    rates = throughput([_step(1, 1.0, 0, 100), _step(2, 1.0, 0, 100), _step(3, 1.0, 0, 100)], devices=1)
    assert rates.response_tokens_per_s == 100.0  # cumulative over the last step would be 300


def test_never_divided_by_the_number_of_steps_again():
    """torchtitan's first log line divides one interval by the log frequency: one step's rate is that step's own."""
    assert throughput([_step(1, 0.5, 0, 100)], devices=1).response_tokens_per_s == 200.0


def test_throughput_times_time_is_work_for_awkward_numbers():
    steps = [_step(number, 0.1 * number + 0.0123456789, 7 * number, 13 * number) for number in range(1, 50)]
    rates = throughput(steps, devices=3)
    assert rates.step_tokens_per_s * rates.seconds == pytest.approx(rates.tokens, rel=1e-12)


@pytest.mark.parametrize("steps", [[], [_step(1, 0.0, 5, 5)], [_step(1, 1.0, 0, 0, samples=0)]])
def test_without_time_or_work_it_is_absent(steps):
    assert throughput(steps, devices=1) is None
