"""Train Stable-Baselines3 with default options, evaluated like rlplug in `bench/defaults.py`; print one JSON line."""

from __future__ import annotations

import argparse
import copy
import json
from typing import Any

import gymnasium as gym
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

ALGORITHMS: dict[str, type[BaseAlgorithm]] = {
    "a2c": A2C,
    "dqn": DQN,
    "ppo": PPO,
    "sac": SAC,
    "td3": TD3,
}


def mean_return(model: BaseAlgorithm, env: str, episodes: int, seed: int) -> float:
    """Return the mean return of greedy episodes, one in each environment."""
    envs = DummyVecEnv([lambda: Monitor(gym.make(env, disable_env_checker=True))] * episodes)
    envs.seed(seed)
    mean, _ = evaluate_policy(model, envs, n_eval_episodes=episodes)
    envs.close()
    return float(mean)


class Best(BaseCallback):
    """Evaluates every `every` env steps and keeps the best weights."""

    def __init__(self, env: str, every: int, episodes: int, seed: int) -> None:
        super().__init__()
        self.env = env
        self.every = every
        self.episodes = episodes
        self.seed = 1_000_000 * seed
        self.means = list[float]()
        self.weights = dict[str, Any]()

    def _on_step(self) -> bool:
        if self.num_timesteps % self.every == 0:
            mean = mean_return(self.model, self.env, self.episodes, self.seed + self.num_timesteps)
            if not self.means or mean > max(self.means):
                self.weights = copy.deepcopy(self.model.policy.state_dict())
            self.means.append(mean)
        return True


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("algorithm", choices=ALGORITHMS)
    parser.add_argument("env")
    for name in ("seed", "steps", "evaluations", "episodes", "final"):
        parser.add_argument(f"--{name}", type=int, required=True)
    given = parser.parse_args()
    model = ALGORITHMS[given.algorithm](
        "MlpPolicy", gym.make(given.env), seed=given.seed, device="cpu"
    )
    best = Best(given.env, given.steps // given.evaluations, given.episodes, given.seed)
    model.learn(given.steps, callback=best, log_interval=None)
    fresh = 1_000_000 * given.seed + 999_999
    last = mean_return(model, given.env, given.final, fresh)
    model.policy.load_state_dict(best.weights)
    best_return = mean_return(model, given.env, given.final, fresh)
    print(json.dumps({"best": best_return, "last": last, "evaluations": best.means}), flush=True)
