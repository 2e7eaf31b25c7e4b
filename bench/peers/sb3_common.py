"""The parts that the Stable-Baselines3 scripts share: environments, the stopwatch, the report."""

from __future__ import annotations

import importlib
import time
from typing import Any

import gymnasium as gym
import measure
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecFrameStack

torch.set_num_threads(measure.THREADS)


def environments(setting: dict[str, Any]) -> VecEnv:
    """Return the environments without Monitor and without environment checker.

    Atari games use the recipe of Stable-Baselines3, with a frame skip of one in ALE and four stacked frames.
    """
    if setting.get("atari"):
        importlib.import_module("ale_py")  # registers its games
        one = {"frameskip": 1, "disable_env_checker": True}
        return VecFrameStack(
            make_atari_env(setting["env"], setting["num_envs"], setting["seed"], env_kwargs=one), 4
        )
    return DummyVecEnv(
        [lambda: gym.make(setting["env"], disable_env_checker=True)] * setting["num_envs"]
    )


def mean_return(setting: dict[str, Any], model: BaseAlgorithm) -> float:
    """Return the mean return of greedy episodes."""
    atari = setting.get("atari")
    count = setting.get("final_episodes", 20)
    env = environments({**setting, "num_envs": 1}) if atari else Monitor(gym.make(setting["env"]))
    return float(evaluate_policy(model, env, n_eval_episodes=count)[0])


class Stopwatch(BaseCallback):
    """Starts at the first rollout after the warm-up and stops after the last update; costs nothing per step."""

    def __init__(self, warmup: int) -> None:
        super().__init__()
        self.warmup = warmup
        self.started: tuple[float, int] | None = None
        self.ended: tuple[float, int] = (0.0, 0)

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        if self.started is None and self.num_timesteps >= self.warmup:
            self.started = (time.perf_counter(), self.num_timesteps)

    def _on_training_end(self) -> None:
        self.ended = (time.perf_counter(), self.num_timesteps)


def train(setting: dict[str, Any], model: BaseAlgorithm) -> None:
    """Train without logs and evaluations, and report."""
    watch = Stopwatch(setting["warmup"])
    model.learn(setting["warmup"] + setting["steps"], callback=watch, log_interval=None)
    assert watch.started is not None
    mean = mean_return(setting, model)
    steps = watch.ended[1] - watch.started[1]
    seconds = watch.ended[0] - watch.started[0]
    packages = ["stable-baselines3", "gymnasium", "torch", "numpy"]
    measure.report(
        setting["pair"], "stable-baselines3", steps, seconds, mean_return=mean, packages=packages
    )


def by_hand(setting: dict[str, Any], adam: bool = True, epsilon: float = 1e-5) -> dict[str, Any]:
    """Return keyword arguments for the policy; with `--tuned`, every speed setting that a user has.

    These are torch's fused Adam, no argument checks in distributions, and denormal numbers set to zero.
    """
    if not setting["tuned"]:
        return {}
    torch.set_flush_denormal(True)
    torch.distributions.Distribution.set_default_validate_args(False)
    return {"optimizer_kwargs": {"fused": True, "eps": epsilon}} if adam else {}


def clipping(setting: dict[str, Any], **policy: Any) -> dict[str, Any]:
    """Return keyword arguments of PPO and RecurrentPPO; `policy` has those of the network."""
    names = (
        "learning_rate",
        "n_steps",
        "batch_size",
        "n_epochs",
        "gamma",
        "gae_lambda",
        "clip_range",
        "ent_coef",
        "vf_coef",
        "max_grad_norm",
        "seed",
    )
    return {
        **{name: setting[name] for name in names},
        "policy_kwargs": {**policy, **by_hand(setting)},
        "device": "cpu",
    }


def valuing(setting: dict[str, Any], **policy: Any) -> dict[str, Any]:
    """Return keyword arguments of DQN and its variants; `policy` has those of the network except its layers."""
    return {
        "learning_rate": setting["learning_rate"],
        "buffer_size": setting["buffer_size"],
        "learning_starts": setting["learning_starts"],
        "batch_size": setting["batch_size"],
        "gamma": setting["gamma"],
        "train_freq": setting["train_freq"],
        "gradient_steps": setting["gradient_steps"],
        "target_update_interval": setting["target_update_interval"],
        "exploration_fraction": setting["exploration_fraction"],
        "exploration_final_eps": setting["exploration_final_eps"],
        "max_grad_norm": setting["max_grad_norm"],
        "policy_kwargs": {"net_arch": setting["hidden"], **policy, **by_hand(setting)},
        "seed": setting["seed"],
        "device": "cpu",
    }


def replaying(setting: dict[str, Any]) -> dict[str, Any]:
    """Return keyword arguments of the algorithms for continuous actions."""
    return {
        "learning_rate": setting["learning_rate"],
        "buffer_size": setting["buffer_size"],
        "learning_starts": setting["learning_starts"],
        "batch_size": setting["batch_size"],
        "tau": setting["tau"],
        "gamma": setting["gamma"],
        "train_freq": setting["train_freq"],
        "gradient_steps": setting["gradient_steps"],
        "policy_kwargs": {"net_arch": setting["hidden"], **by_hand(setting, epsilon=1e-8)},
        "seed": setting["seed"],
        "device": "cpu",
    }
