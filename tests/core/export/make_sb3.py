"""Writes the models of Stable-Baselines3 in `sb3/` and their actions; it needs stable-baselines3, tests do not.

    python tests/core/export/make_sb3.py          # `--all` also makes the models of the first table again

The networks are tiny, and their weights come from a few gradient steps. Files of the second table have rounded weights
and only the parts that are read, so that they are small.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3  # type: ignore[import-not-found]
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize  # type: ignore[import-not-found]

sys.path.insert(0, str(Path(__file__).parent))
from sb3_envs import Parts, Pictures, Places  # type: ignore[import-not-found]

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
#: The same with other policies: its name, the environment, whether `VecNormalize` is around it.
SMALL = {"n_steps": 32, "batch_size": 32}
REPLAY = {"learning_starts": 10, "buffer_size": 100}
PARTS = {"net_arch": [8], "features_extractor_kwargs": {"cnn_output_dim": 8}}
OTHERS = {
    "ppo-pictures": (PPO, "CnnPolicy", Pictures, False, {"features_extractor_kwargs": {"features_dim": 8}}, SMALL),
    "dqn-pictures": (DQN, "CnnPolicy", Pictures, False, {"features_extractor_kwargs": {"features_dim": 8}}, REPLAY),
    "sac-parts": (SAC, "MultiInputPolicy", Parts, False, PARTS, REPLAY),
    "a2c-places": (A2C, "MultiInputPolicy", Places, True, {"net_arch": [8]}, {}),
    "ppo-normalized": (PPO, "MlpPolicy", "Pendulum-v1", True, {"net_arch": [8]}, SMALL),
}
ROWS = 1000


def observations(space: object, rows: int = ROWS) -> Any:
    """Random observations [rows, ...] of a space, the same in the script and in the test."""
    generator = np.random.default_rng(7)
    if hasattr(space, "spaces"):
        return {key: observations(part, rows) for key, part in space.spaces.items()}
    if space.dtype == np.uint8:
        brightest = generator.integers(1, 256, (rows, 1, 1, space.shape[2]))
        return generator.integers(0, brightest, (rows, *space.shape), endpoint=True).astype(np.uint8)
    if hasattr(space, "n"):
        return generator.integers(0, space.n, rows)
    scale = np.minimum(space.high, 3.0)  # type: ignore[attr-defined]
    return (generator.uniform(-1, 1, (rows, *scale.shape)) * scale).astype(space.dtype)


def main() -> None:
    HERE.mkdir(exist_ok=True)
    torch.manual_seed(1)
    for name, (algorithm, env, policy, options) in MODELS.items() if "--all" in sys.argv else ():
        model = algorithm("MlpPolicy", env, policy_kwargs=policy, seed=1, device="cpu", learning_rate=0.05, **options)
        model.learn(64)
        model.save(HERE / f"{name}.zip")
        rows = observations(model.observation_space)
        actions, _ = model.predict(rows, deterministic=True)
        np.save(HERE / f"{name}.npy", actions)
    for name, (algorithm, policy, env, normalized, kwargs, options) in OTHERS.items():
        make(name, algorithm, policy, env, normalized, kwargs, options)


def make(
    name: str, algorithm: Any, policy: str, env: Any, normalized: bool, kwargs: dict[str, Any], options: dict[str, Any]
) -> None:
    """Train and save a model, the statistics of `VecNormalize`, and its actions."""
    given = env
    if normalized:
        given = VecNormalize(DummyVecEnv([env if callable(env) else lambda: gymnasium.make(env)]), clip_obs=2.0)
    elif callable(env):
        given = env()
    model = algorithm(policy, given, policy_kwargs=kwargs, seed=1, device="cpu", learning_rate=0.003, **options)
    model.learn(64)
    with torch.no_grad():
        for parameter in model.policy.parameters():
            parameter.copy_((parameter * 32).round() / 32)
    space = given.observation_space
    rows = observations(space)
    if env is Pictures:
        center(model, rows)
    model.save(HERE / "whole.zip")
    with (
        zipfile.ZipFile(HERE / "whole.zip") as whole,
        zipfile.ZipFile(HERE / f"{name}.zip", "w", zipfile.ZIP_LZMA) as small,
    ):
        for part in ("data", "policy.pth"):
            small.writestr(part, whole.read(part))
    (HERE / "whole.zip").unlink()
    if normalized:
        given.save(HERE / f"{name}.pkl")
        rows = given.normalize_obs(rows)
    actions = []
    for start in range(0, ROWS, 100):
        part = slice(start, start + 100)
        some = {key: row[part] for key, row in rows.items()} if isinstance(rows, dict) else rows[part]
        actions.append(model.predict(some, deterministic=True)[0])
    np.save(HERE / f"{name}.npy", np.concatenate(actions))


def center(model: Any, rows: Any) -> None:
    """Change the last biases so that no action is always the best one."""
    last = model.policy.q_net.q_net[-1] if hasattr(model.policy, "q_net") else model.policy.action_net
    outputs = []
    hook = last.register_forward_hook(lambda module, inputs, output: outputs.append(output))
    model.predict(rows[:200], deterministic=True)
    hook.remove()
    with torch.no_grad():
        last.bias -= outputs[0].mean(0)


if __name__ == "__main__":
    main()
