"""verl's replay buffer, polled every 10 ms instead of every 2 s: verl's own extension point trainer.v1.sampler.custom_sampler."""

from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync

POLL_INTERVAL_S = 0.01


class Fast:
    """The built-in buffers sleep 2.0 s between looks (replay_buffer.py), which quantizes the rollout's end."""

    def __init__(self, *args, **kwargs):
        kwargs.setdefault("poll_interval", POLL_INTERVAL_S)
        super().__init__(*args, **kwargs)


class FastReplayBuffer(Fast, ReplayBuffer):
    """For the synchronous trainer."""


class FastReplayBufferAsync(Fast, ReplayBufferAsync):
    """For the asynchronous trainers."""
