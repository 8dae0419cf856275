"""Prompts in plan order, by a patch: OpenRLHF has no flag for it.

``openrlhf/trainer/ppo_trainer.py`` (`prepare_datasets`) asks ``DeepspeedStrategy.setup_dataloader`` for shuffled prompts,
literally. The ledger names this under workload.prompts.
"""

from rlmbench_probe import after_import, replace


def install():
    after_import("openrlhf.utils.deepspeed.deepspeed", keep_prompts_in_order)


def keep_prompts_in_order(module):
    def make(original):
        def setup_dataloader(self, replay_buffer, batch_size, pin_memory=False, shuffle=True, *args, **kwargs):
            ordered = type(replay_buffer).__name__ == "PromptDataset"
            return original(self, replay_buffer, batch_size, pin_memory, shuffle and not ordered, *args, **kwargs)

        return setup_dataloader

    replace(module.DeepspeedStrategy, "setup_dataloader", make)
