"""What Stable-Baselines3's SAC or TD3 learns, judged as `bench/halfcheetah.py` judges rlplug's: one JSON line.

`--pair`, `--seed` and `--steps` say what; the weights that do best while it trains are judged on fresh seeds.
"""

from __future__ import annotations

import copy
import json
from typing import Any

import gymnasium as gym
import measure
import sb3_sac
import sb3_td3
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

MAKE = {"sac": sb3_sac.make, "td3": sb3_td3.make}


def judged(model: BaseAlgorithm, env: str, episodes: int, seed: int) -> float:
    """The mean return of greedy episodes, one in each row."""
    rows = DummyVecEnv([lambda: Monitor(gym.make(env, disable_env_checker=True))] * episodes)
    rows.seed(seed)
    mean, _ = evaluate_policy(model, rows, n_eval_episodes=episodes)
    rows.close()
    return float(mean)


class Best(BaseCallback):
    """Evaluates every so many env steps and keeps the best weights."""

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
            mean = judged(self.model, self.env, self.episodes, self.seed + self.num_timesteps)
            if not self.means or mean > max(self.means):
                self.weights = copy.deepcopy(self.model.policy.state_dict())
            self.means.append(mean)
        return True


if __name__ == "__main__":
    setting = measure.settings("sac")
    model: BaseAlgorithm = MAKE[setting["pair"]](setting)
    best = Best(setting["env"], setting["steps"] // 20, setting["episodes"], setting["seed"])
    model.learn(setting["steps"], callback=best, log_interval=None)
    model.policy.load_state_dict(best.weights)
    final = judged(model, setting["env"], setting["final"], 1_000_000 * setting["seed"] + 999_999)
    print(json.dumps({"final_return": final, "evaluations": best.means}), flush=True)
