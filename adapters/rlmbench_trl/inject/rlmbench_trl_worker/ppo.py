"""PPOTrainer of TRL 1.12 (its last release with one), with a verifier or the plan in place of a reward model."""

from types import SimpleNamespace

import torch
import trl.experimental.ppo.ppo_trainer as module
from datasets import Dataset
from rlmbench_plan import job
from rlmbench_probe import recorder
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer
from trl.experimental.ppo import PPOConfig, PPOTrainer

from rlmbench_trl_worker import replay
from rlmbench_trl_worker.train import load_verifier


def build(this):
    """The trainer for this job; see `rlmbench_trl.adapter` for what a job holds."""
    replay.install_ppo(module, replay=this.replay, strict_order=this.strict_order)
    config = PPOConfig(**this.trainer)
    tokenizer = AutoTokenizer.from_pretrained(this.model_dir, padding_side="left")
    options = {"dtype": torch.float32, "attn_implementation": this.attention}
    policy = AutoModelForCausalLM.from_pretrained(this.model_dir, **options)
    reference = AutoModelForCausalLM.from_pretrained(this.model_dir, **options)
    critic = AutoModelForSequenceClassification.from_pretrained(this.model_dir, num_labels=1, **options)
    reward = RewardModel(this.plan.rows, planned_score if this.replay else verified_score(tokenizer, load_verifier(this.verifier)))
    if not this.replay:
        config.stop_token = "eos"
    trainer = PPOTrainer(
        args=config, processing_class=tokenizer, model=policy, ref_model=reference, reward_model=reward, value_model=critic,
        train_dataset=Dataset.from_list([{"input_ids": row["prompt_ids"]} for row in this.plan.rows]),
        optimizers=(optimizer(config, policy, critic, this.critic_learning_rate), None),
    )  # fmt: skip
    # With it, accelerate steps the optimizer at every micro-batch of the last dataloader batch.
    trainer.accelerator.gradient_state.plugin_kwargs["sync_with_dataloader"] = False
    return trainer


def optimizer(config, policy, critic, critic_learning_rate):
    """One AdamW for the joint update, with a learning rate of its own for the critic."""
    groups = [
        {"params": list(policy.parameters()), "lr": config.learning_rate},
        {"params": list(critic.parameters()), "lr": critic_learning_rate},
    ]
    return torch.optim.AdamW(groups, betas=(config.adam_beta1, config.adam_beta2), weight_decay=config.weight_decay)


def planned_score(prompt_ids, response_ids, row):
    """The plan's reward; a prompt that comes again in a later step has a row of its own there."""
    return job().plan.by_step_and_hash[(recorder.step, row["prompt_hash"])]["rewards"][0]


def verified_score(tokenizer, verifier):
    """Right or wrong by the final answer."""

    def score(prompt_ids, response_ids, row):
        return verifier.score(tokenizer.decode(response_ids, skip_special_tokens=True), row["answer"])

    return score


class RewardModel(torch.nn.Module):
    """A reward model to TRL's ``get_reward``: a backbone whose last hidden state already is the score."""

    base_model_prefix = "backbone"

    def __init__(self, rows, score):
        super().__init__()
        self.placed = torch.nn.Parameter(torch.zeros(1), requires_grad=False)
        self.backbone = _Backbone(rows, score)

    def score(self, hidden):
        return hidden


class _Backbone(torch.nn.Module):
    def __init__(self, rows, score):
        super().__init__()
        self.rows = {tuple(row["prompt_ids"]): row for row in rows}
        self.prompt_lengths = sorted({len(ids) for ids in self.rows}, reverse=True)
        self.judge = score

    def forward(self, input_ids, attention_mask, **kwargs):
        """Hidden states of shape (batch, length, 1), each position holding its sequence's score."""
        scores = [self._score(ids[mask.bool()].tolist()) for ids, mask in zip(input_ids, attention_mask)]
        column = torch.tensor(scores, dtype=torch.float32, device=input_ids.device)[:, None, None]
        return SimpleNamespace(hidden_states=[column.expand(*input_ids.shape, 1)])

    def _score(self, ids):
        for length in self.prompt_lengths:  # the longest planned prompt that the sequence begins with
            row = self.rows.get(tuple(ids[:length]))
            if row is not None:
                return self.judge(ids[:length], ids[length:], row)
        raise ValueError("a sequence begins with no prompt of the plan")
