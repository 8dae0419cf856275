"""Run by verl's own interpreter: composes and checks configurations as verl's main modules do.

Standard input is a JSON list of {case, configuration: [package, name], overrides, read}; standard output's last line a JSON list
of {case, error, values}: null or the first line of what hydra or verl's dataclasses say, and the resolved values asked for in `read`.
"""

import importlib.util
import json
import sys

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from verl.experimental.reward_loop.reward_manager import get_reward_manager_cls
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import omega_conf_to_dataclass, validate_config


def check(case):
    package, name = case["configuration"]
    (folder,) = importlib.util.find_spec(package).submodule_search_locations
    with initialize_config_dir(folder, version_base=None):
        config = compose(name, overrides=case["overrides"])
    OmegaConf.resolve(config)
    config.critic.model = None  # verl would open the model's folder, which is the run's
    omega_conf_to_dataclass(config.algorithm)
    omega_conf_to_dataclass(config.actor_rollout_ref.rollout)
    omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    get_reward_manager_cls(config.reward.reward_manager.name)
    if config.data.train_batch_size:  # the fully asynchronous trainer sets it to 0, and does not validate
        validate_config(config, need_reference_policy(config), need_critic(config))
    return {key: OmegaConf.select(config, key) for key in case["read"]}


def main():
    results = []
    for case in json.load(sys.stdin):
        try:
            results.append({"case": case["case"], "error": None, "values": check(case)})
        except Exception as error:  # noqa: BLE001, whatever hydra, omegaconf and verl raise
            results.append({"case": case["case"], "error": f"{type(error).__name__}: {error}", "values": {}})
    print(json.dumps(results))


main()
