"""Writes the models of Stable-Baselines3 in `sb3/` and their actions; it needs stable-baselines3, tests do not.

    python tests/core/export/make_sb3.py

The networks are tiny, and their weights come from a few gradient steps.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3  # type: ignore[import-not-found]

HERE = Path(__file__).parent / "sb3"
#: Name of the file: algorithm, environment, options of the policy, options of the algorithm.
MODELS = {
    "ppo-cartpole": (PPO, "CartPole-v1", {"net_arch": [8, 6]}, {"n_steps": 32, "batch_size": 32}),
    "ppo-pendulum": (PPO, "Pendulum-v1", {"net_arch": [8]}, {"n_steps": 32, "batch_size": 32, "use_sde": True}),
    "a2c-acrobot": (A2C, "Acrobot-v1", {"net_arch": {"pi": [8, 8], "vf": [4]}, "activation_fn": torch.nn.ELU}, {}),
    "a2c-taxi": (A2C, "CliffWalking-v1", {"net_arch": []}, {}),
    "dqn-cartpole": (DQN, "CartPole-v1", {"net_arch": [8]}, {"learning_starts": 10, "buffer_size": 100}),
    "sac-pendulum": (SAC, "Pendulum-v1", {"net_arch": [8, 8]}, {"learning_starts": 10, "buffer_size": 100}),
    "td3-pendulum": (TD3, "Pendulum-v1", {"net_arch": [8]}, {"learning_starts": 10, "buffer_size": 100}),
    "ddpg-mountaincar": (DDPG, "MountainCarContinuous-v0", {"net_arch": [8, 4]}, {"buffer_size": 100}),
}
ROWS = 1000


def observations(space: object, rows: int = ROWS) -> np.ndarray:
    """Random observations [rows, ...] of a space, the same in the script and in the test."""
    generator = np.random.default_rng(7)
    if hasattr(space, "n"):
        return generator.integers(0, space.n, rows)
    scale = np.minimum(space.high, 3.0)  # type: ignore[attr-defined]
    return (generator.uniform(-1, 1, (rows, *scale.shape)) * scale).astype(np.float32)


def main() -> None:
    HERE.mkdir(exist_ok=True)
    torch.manual_seed(1)
    for name, (algorithm, env, policy, options) in MODELS.items():
        model = algorithm("MlpPolicy", env, policy_kwargs=policy, seed=1, device="cpu", learning_rate=0.05, **options)
        model.learn(64)
        model.save(HERE / f"{name}.zip")
        rows = observations(model.observation_space)
        actions, _ = model.predict(rows, deterministic=True)
        np.save(HERE / f"{name}.npy", actions)


if __name__ == "__main__":
    main()
