"""IMPALA and APPO of RLlib, on its new API stack: two env runners, one learner in the driver's process."""

from __future__ import annotations

import time
from typing import Any

import measure
import ray
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.algorithms.impala import IMPALAConfig

#: A logical number for Ray: two env runners, the aggregator and the driver share the cores of the machine.
CPUS = 6


def config_of(setting: dict[str, Any]) -> Any:
    """Return the configuration of the algorithm of a pair."""
    config = IMPALAConfig()
    if setting["pair"] == "appo":  # each batch is used once, as in rlplug
        config = APPOConfig()
        config.training(clip_param=setting["clip_range"], circular_buffer_num_batches=1)
        config.training(circular_buffer_iterations_per_batch=1, num_epochs=1)
    config.environment(setting["env"])
    config.env_runners(
        num_env_runners=setting["actors"],
        num_envs_per_env_runner=setting["num_envs"],
        rollout_fragment_length=setting["n_steps"],
    )
    config.training(
        train_batch_size_per_learner=setting["num_envs"] * setting["n_steps"],
        lr=setting["learning_rate"],
        gamma=setting["gamma"],
        entropy_coeff=setting["ent_coef"],
        vf_loss_coeff=setting["vf_coef"],
        grad_clip=setting["max_grad_norm"],
    )
    config.rl_module(model_config={"fcnet_hiddens": setting["hidden"], "fcnet_activation": "tanh"})
    config.evaluation(
        evaluation_interval=None,
        evaluation_num_env_runners=1,
        evaluation_duration=setting.get("final_episodes", 20),
        evaluation_config={"explore": False},
    )
    config.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=1000)
    config.debugging(seed=setting["seed"], log_level="ERROR")
    return config


def env_steps(result: dict[str, Any]) -> int:
    return int(result["env_runners"]["num_env_steps_sampled_lifetime"])


def train_until(algorithm: Any, steps: int) -> int:
    """Train for at least `steps` env steps in total; return their number."""
    done = 0
    while done < steps:
        done = env_steps(algorithm.train())
    return done


def main() -> None:
    setting = measure.settings("impala")
    ray.init(num_cpus=CPUS, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    algorithm = config_of(setting).build_algo()
    try:
        first = train_until(algorithm, setting["warmup"])
        start = time.perf_counter()
        last = train_until(algorithm, first + setting["steps"])
        seconds = time.perf_counter() - start
        after = algorithm.evaluate()["env_runners"]["episode_return_mean"]
    finally:
        algorithm.stop()
        ray.shutdown()
    measure.report(
        setting["pair"],
        "rllib",
        last - first,
        seconds,
        after,
        ["ray", "gymnasium", "torch", "numpy"],
    )


if __name__ == "__main__":
    main()
