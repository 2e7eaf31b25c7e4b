"""Make the models of Stable-Baselines3 in `sb3/` and their actions. Only this script needs stable-baselines3.

    python tests/core/export/make_sb3.py          # `--all` also makes the models of the first table again

The networks are tiny, with a few gradient steps. Files of the second table have rounded weights and only the parts
that rlplug reads, so they are small.
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
from sb3_envs import Parts, Pictures, Places, observations  # type: ignore[import-not-found]

HERE = Path(__file__).parent / "sb3"
#: Names of files; algorithms, environments, options of policies, options of algorithms.
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
#: Models with other policies: algorithm, policy, environment, whether `VecNormalize` wraps it, and options.
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
    instance = env
    if normalized:
        instance = VecNormalize(DummyVecEnv([env if callable(env) else lambda: gymnasium.make(env)]), clip_obs=2.0)
    elif callable(env):
        instance = env()
    model = algorithm(policy, instance, policy_kwargs=kwargs, seed=1, device="cpu", learning_rate=0.003, **options)
    model.learn(64)
    with torch.no_grad():
        for parameter in model.policy.parameters():
            parameter.copy_((parameter * 32).round() / 32)
    rows = observations(instance.observation_space)
    if env is Pictures:
        center(model, rows)
    model.save(HERE / "full.zip")
    with (
        zipfile.ZipFile(HERE / "full.zip") as full,
        zipfile.ZipFile(HERE / f"{name}.zip", "w", zipfile.ZIP_LZMA) as small,
    ):
        for part in ("data", "policy.pth"):
            small.writestr(part, full.read(part))
    (HERE / "full.zip").unlink()
    if normalized:
        instance.save(HERE / f"{name}.pkl")
        rows = instance.normalize_obs(rows)
    actions = []
    for start in range(0, ROWS, 100):
        part = slice(start, start + 100)
        batch = {key: row[part] for key, row in rows.items()} if isinstance(rows, dict) else rows[part]
        actions.append(model.predict(batch, deterministic=True)[0])
    np.save(HERE / f"{name}.npy", np.concatenate(actions))


def center(model: Any, rows: Any) -> None:
    """Shift the last biases so that different actions are best."""
    last = model.policy.q_net.q_net[-1] if hasattr(model.policy, "q_net") else model.policy.action_net
    outputs = []
    hook = last.register_forward_hook(lambda module, inputs, output: outputs.append(output))
    model.predict(rows[:200], deterministic=True)
    hook.remove()
    with torch.no_grad():
        last.bias -= outputs[0].mean(0)


if __name__ == "__main__":
    main()
