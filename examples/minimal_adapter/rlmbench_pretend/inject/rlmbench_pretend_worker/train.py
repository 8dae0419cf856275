"""Starts the made-up trainer on the planned rows, as a user's own script would. Row and sample travel in its `extra`."""

from pretend_trainer import Trainer
from rlmbench_plan import job


def planned_reward(extra):
    return job().plan.reward(extra["row"], extra["sample"])


def planned_length(extra):
    return job().plan.response_tokens(extra["row"], extra["sample"])


if __name__ == "__main__":
    rows = [{"prompt": row["prompt_ids"], "extra": {"row": row["row"]}} for row in job().plan.rows]
    Trainer(job().trainer, rows, planned_reward, planned_length).fit()
