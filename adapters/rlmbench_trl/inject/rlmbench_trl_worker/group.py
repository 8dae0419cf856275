"""GRPOTrainer and RLOOTrainer of TRL 1.16, as a user would build them."""

import functools

from datasets import Dataset
from rlmbench_plan import job
from rlmbench_probe import recorder
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

from rlmbench_trl_worker import replay
from rlmbench_trl_worker.train import load_verifier

TRAINERS = {"grpo": (GRPOTrainer, GRPOConfig), "rloo": (RLOOTrainer, RLOOConfig)}


def build(this):
    """The trainer for this job; see `rlmbench_trl.adapter` for what a job holds."""
    trainer_class, config_class = TRAINERS[this.algorithm]
    replay.install_group(trainer_class, replay=this.replay, strict_order=this.strict_order)
    if this.trainer.get("use_vllm") and this.trainer.get("vllm_mode") == "colocate":
        engine_options(this)
    config = config_class(**this.trainer, model_init_kwargs={"dtype": "float32", "attn_implementation": this.attention})
    rows = this.plan.rows
    dataset = Dataset.from_list(
        [{"prompt": [{"role": "user", "content": row["question"]}], "row": row["row"], "answer": row["answer"]} for row in rows]
    )
    rewards = [planned_reward] if this.replay else [verified_reward(load_verifier(this.verifier))]
    if this.overlong_buffer_tokens:
        from trl.rewards import get_soft_overlong_punishment

        rewards.append(get_soft_overlong_punishment(config.max_completion_length, this.overlong_buffer_tokens))
    trainer = trainer_class(this.model_dir, reward_funcs=rewards, args=config, train_dataset=dataset)
    if this.trainer.get("use_vllm") and this.trainer.get("vllm_mode") == "colocate":
        dtype = trainer.vllm_generation.llm.llm_engine.model_config.dtype
        recorder.event("fact", name="rollout_dtype", value=str(dtype).removeprefix("torch."))
    return trainer


def planned_reward(completions, **kwargs):
    """Rewards from the plan, for the samples that this rank has just generated."""
    return [job().plan.reward(row, sample) for row, sample in job().samples]


def verified_reward(verifier):
    """Right or wrong by the final answer."""

    def gsm8k_reward(completions, answer, **kwargs):
        return [verifier.score(completion[0]["content"], truth) for completion, truth in zip(completions, answer)]

    return gsm8k_reward


def engine_options(this):
    """Options of vLLM's LLM that TRL has no argument for: the dtype asked for, and on a CPU no compilation."""
    import trl.generation.vllm_generation as module

    options = {"dtype": this.rollout_dtype}
    if this.device == "cpu":
        options["enforce_eager"] = True
    module.LLM.__init__ = functools.partialmethod(module.LLM.__init__, **options)
