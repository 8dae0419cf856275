"""verl's agent loop at the planned length: its official extension point (rollout.agent.agent_loop_config_path)."""

from rlmbench_plan import job
from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop

_counts = {}


class PlannedAgentLoop(SingleTurnAgentLoop):
    """One prompt, one response of exactly the planned length with the planned reward; the policy's log-probs are untouched."""

    async def run(self, sampling_params, **kwargs):
        row = int(kwargs["extra_info"]["row"])
        sample = kwargs.get("session_id")
        if sample is None:  # the V0 trainer gives no index: count the calls for a row, which is asked group_size times
            sample = _counts.get(row, 0)
            _counts[row] = sample + 1
        length = job().plan.response_tokens(row, int(sample))
        # A copy: verl shares one mapping between the samples of a prompt.
        own = {**sampling_params, "max_tokens": length, "ignore_eos": True}
        output = await super().run(own, **kwargs)
        output.reward_score = job().plan.reward(row, int(sample))
        output.extra_fields["reward_extra_info"] = {}
        return output


class NaturalAgentLoop(SingleTurnAgentLoop):
    """verl's own loop; only there so that both workloads are configured the same way."""
