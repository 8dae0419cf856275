"""`measurement.strict_order`: a step's samples in plan order, instead of verl's order of balanced lengths.

``verl/trainer/ppo/v1/trainer_base.py``, `_balance_batch`, sorts a step's samples so that each rank gets about as many tokens, and
has no option against it (`trainer.balance_batch` is not read by the V1 trainer). Each rank is given equal, consecutive
parts of that order, and cuts its part into mini-batches.
"""

from rlmbench_plan import job
from rlmbench_probe import after_import, replace

from rlmbench_verl_worker.containers import rows_of_prompts

_rows = {}  # uid of a prompt, which verl draws anew each step -> row of the plan


def install():
    after_import("verl.trainer.ppo.v1.trainer_base", patch)


def patch(module):
    replace(module.PPOTrainer, "_fetch_one_gen_batch", naming)
    replace(module.PPOTrainer, "_balance_batch", ordering)


def naming(original):
    def fetch_one_gen_batch(self, *args, **kwargs):
        batch = original(self, *args, **kwargs)
        _rows.update(rows_of_prompts(batch))
        return batch

    return fetch_one_gen_batch


def ordering(original):
    def balance_batch(self, batch, *args, **kwargs):
        batch = original(self, batch, *args, **kwargs)
        ranks = max(self.actor_rollout_wg._dispatch_info["actor"]) + 1
        batch.reorder(plan_order(batch.keys, _rows.__getitem__, job().mini_batch_samples, ranks))
        return batch

    return balance_batch


def plan_order(keys, row_of, mini_batch_samples, ranks):
    """The places of `keys` (uid_session_index) such that every mini-batch over all ranks is the next of the plan's samples."""

    def place(index):
        uid, session = str(keys[index]).split("_")[:2]
        return row_of(uid), int(session)

    planned = sorted(range(len(keys)), key=place)
    share = mini_batch_samples // ranks
    return [
        planned[start + offset]
        for rank in range(ranks)
        for start in range(0, len(planned), mini_batch_samples)
        for offset in range(rank * share, min((rank + 1) * share, len(planned) - start))
    ]
