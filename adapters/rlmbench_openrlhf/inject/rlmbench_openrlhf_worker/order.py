"""Prompts in plan order, and with `measurement.strict_order` samples too, by patches: OpenRLHF has no flags for it.

- ``openrlhf/trainer/ppo_trainer.py`` (`prepare_datasets`) asks ``DeepspeedStrategy.setup_dataloader`` for shuffled prompts,
  literally. The ledger names this under workload.prompts.
- Strict: ``trainer/ppo_utils/samples_generator.py`` gives samples as their prompts end, and ``trainer/ray/ppo_actor.py`` and
  ``ppo_critic.py`` shuffle them over a step's micro-batches. The ledger names this under measurement.strict_order.
"""

import json

from rlmbench_probe import after_import, replace


def install(strict):
    after_import("openrlhf.utils.deepspeed.deepspeed", keep_prompts_in_order)
    if strict:
        after_import("openrlhf.trainer.ppo_utils.samples_generator", sort_samples)
        after_import("openrlhf.trainer.ray.ppo_actor", do_not_shuffle)
        after_import("openrlhf.trainer.ray.ppo_critic", do_not_shuffle)


def keep_prompts_in_order(module):
    def make(original):
        def setup_dataloader(self, replay_buffer, batch_size, pin_memory=False, shuffle=True, *args, **kwargs):
            ordered = type(replay_buffer).__name__ == "PromptDataset"
            return original(self, replay_buffer, batch_size, pin_memory, shuffle and not ordered, *args, **kwargs)

        return setup_dataloader

    replace(module.DeepspeedStrategy, "setup_dataloader", make)


def sort_samples(module):
    def make(original):
        def generate_samples(self, **kwargs):
            samples, *rest = original(self, **kwargs)
            return sorted(samples, key=place_in_plan), *rest

        return generate_samples

    replace(module.SamplesGenerator, "generate_samples", make)


def place_in_plan(experience):
    """Row and sample of an experience with one sample, which the agent wrote into its label."""
    named = json.loads(experience.labels[0])
    return named["row"], named["sample"]


def do_not_shuffle(module):
    def make(original):
        def data_loader(*args, **kwargs):
            return original(*args, **{**kwargs, "shuffle": False})

        return data_loader

    replace(module, "DataLoader", make)
