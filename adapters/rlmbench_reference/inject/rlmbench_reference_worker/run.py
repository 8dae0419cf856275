"""Starts the simulated framework on the planned rows: the first process starts all others, then each plays its part."""

import contextlib
import os
import time

from reference_framework.peers import Peer
from reference_framework.rollout import Rollout
from reference_framework.script import Script
from reference_framework.trainer import Trainer, shard
from rlmbench_plan import job

SETTLE_NS = 20_000_000


def batches():
    """Each step's samples, in plan order; row and sample travel in `extra`."""
    plan, found = job().plan, {}
    for row in plan.rows:
        for sample in range(plan.group_size):
            found.setdefault(row["step"], []).append(
                {
                    "prompt": row["prompt_ids"],
                    "extra": {"row": row["row"], "sample": sample},
                    "length": plan.response_tokens(row["row"], sample),
                }
            )
    return [found[step] for step in sorted(found)]


def reward(extra):
    return job().plan.reward(extra["row"], extra["sample"])


def keep_time(schedule):
    """Where it may, a process that only sleeps asks to be woken when it is due, whatever else the machine does. One that burns does not."""
    if not any(part["burn"] for part in schedule["parts"].values()):
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def main():
    role, rank = os.environ.get("REFERENCE_ROLE", "trainer"), int(os.environ.get("RANK", "0"))
    schedule = job().schedule
    keep_time(schedule)
    ranks, rollouts = schedule["ranks"], schedule["rollouts"]
    script = Script(schedule, f"{role}-{rank}", rank, rollouts if role == "rollout" else ranks, job().truth)
    if role == "rollout":
        Rollout(script, [shard(batch, rank, rollouts) for batch in batches()]).serve()
    elif rank:
        trainer = Trainer(script, job().config, batches(), reward)
        trainer.parent.send(ready=True)
        script.origin_ns = trainer.parent.receive()["origin_ns"]
        trainer.fit()
        trainer.close()
    else:
        others = [Peer(__spec__.name, "trainer", other) for other in range(1, ranks)]
        serving = [Peer(__spec__.name, "rollout", other) for other in range(rollouts)]
        trainer = Trainer(script, job().config, batches(), reward, others, serving)
        for peer in (*others, *serving):
            peer.receive()
        script.origin_ns = time.monotonic_ns() + SETTLE_NS
        for peer in (*others, *serving):
            peer.send(origin_ns=script.origin_ns)
        trainer.fit()
        trainer.close()


if __name__ == "__main__":
    main()
