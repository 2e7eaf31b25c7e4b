"""What Stable-Baselines3 learns without any option, judged as `bench/defaults.py` judges rlplug: one JSON line."""

from __future__ import annotations

import argparse
import json

import gymnasium as gym
from sb3_learn import Best, judged
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.base_class import BaseAlgorithm

ALGORITHMS: dict[str, type[BaseAlgorithm]] = {
    "a2c": A2C,
    "dqn": DQN,
    "ppo": PPO,
    "sac": SAC,
    "td3": TD3,
}

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
    last = judged(model, given.env, given.final, fresh)
    model.policy.load_state_dict(best.weights)
    kept = judged(model, given.env, given.final, fresh)
    print(json.dumps({"best": kept, "last": last, "evaluations": best.means}), flush=True)
