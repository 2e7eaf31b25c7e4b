"""A random walk as each kind of vector environment, and a plain loop per row as reference."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from rlplug_core.protocols import Env
from rlplug_core.types import Array
from rlplug_envs.adapter import Adapter
from rlplug_envs.rows import row_seed
from rlplug_envs.vector import SerialEnvs

MODES = list(AutoresetMode)


class Walk(gymnasium.Env[Any, Any]):
    """Walks up and down with noise; terminates at 4 and is truncated after a random number of steps."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place = 0
        self.age = 0
        self.limit = int(self.np_random.integers(2, 9))
        return self.see(), {}

    def see(self) -> Any:
        return np.array([self.place, self.age, self.np_random.normal()], np.float32)

    def step(self, action: Any) -> Any:
        self.place += int(action) - 1 + int(self.np_random.integers(0, 2))
        self.age += 1
        return self.see(), self.place + 0.1, self.place >= 4, self.age >= self.limit, {}


class Rich(Walk):
    """A walk with a dictionary that contains a tuple as observation, and an action mask in `info`."""

    observation_space = spaces.Dict(
        {"walk": Walk.observation_space, "pair": spaces.Tuple((spaces.Discrete(99), spaces.MultiBinary(2)))}
    )

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        obs, _ = super().reset(seed=seed)
        return obs, self.mask_info()

    def see(self) -> Any:
        return {"walk": super().see(), "pair": (self.age, np.array([self.age % 2, 1], np.int8))}

    def mask_info(self) -> dict[str, Any]:
        return {"action_mask": np.array([1, self.age % 2, 1], np.int8)}

    def step(self, action: Any) -> Any:
        return *super().step(action)[:4], self.mask_info()


def leaves(tree: Any, row: int) -> list[Any]:
    """One row of an observation as nested lists."""
    if isinstance(tree, dict):
        return [(name, leaves(tree[name], row)) for name in sorted(tree)]
    return [np.asarray(tree[row]).tolist()]


def play_rows(env: Env, seed: int, actions: Array) -> tuple[list[list[Any]], list[list[Any]]]:
    """Each row's transitions and episodes; `actions` [rows, steps] is indexed by the row's valid steps."""
    num_envs, steps = actions.shape
    taken = np.zeros(num_envs, np.int64)
    transitions: list[list[Any]] = [[] for _ in range(num_envs)]
    episodes: list[list[Any]] = [[] for _ in range(num_envs)]
    now = env.reset(seed)
    assert now.is_first.all()
    assert not now.valid.any()
    assert now.count == 0
    while taken.min() < steps:
        before = [leaves(now.obs, row) for row in range(num_envs)]
        opened = now.is_first.copy()
        action = actions[np.arange(num_envs), np.minimum(taken, steps - 1)]
        now = env.step(action)
        assert now.count == now.valid.sum()
        assert now.ended == (now.terminated | now.truncated).any() == bool(now.episodes)
        assert not (now.terminated & now.truncated).any()
        for row in np.flatnonzero(now.valid & (taken < steps)):
            outcome = [now.reward[row], now.terminated[row], now.truncated[row], opened[row]]
            transitions[row].append([before[row], int(action[row]), outcome, leaves(now.final_obs, row)])
        for episode in now.episodes:
            if taken[episode.row] < steps:
                episodes[episode.row].append((episode.total, episode.length))
        for row in np.flatnonzero(~now.valid):
            assert now.is_first[row]
            assert now.reward[row] == 0
        taken += now.valid
    env.close()
    return transitions, episodes


def reference(
    kind: type[Walk], seed: int, actions: Array, limit: int = 10**9
) -> tuple[list[list[Any]], list[list[Any]]]:
    """The transitions and episodes of one plain loop per row; episodes are truncated after `limit` steps."""
    transitions, episodes = [], []
    for row, choices in enumerate(actions):
        env = kind()
        steps = []
        ended = []
        obs, info = env.reset(seed=row_seed(seed, row))
        first = True
        total = 0.0
        length = 0
        for action in choices.tolist():
            following, reward, terminated, truncated, later = env.step(action)
            truncated = truncated or length + 1 >= limit
            outcome = [np.float32(reward), terminated, truncated and not terminated, first]
            steps.append([flat(obs, info), action, outcome, flat(following, later)])
            total = total + reward
            length = length + 1
            first = terminated or truncated
            obs, info = following, later
            if first:
                ended.append((total, length))
                total = 0.0
                length = 0
                obs, info = env.reset()
        transitions.append(steps)
        episodes.append(ended)
    return transitions, episodes


def flat(obs: Any, info: dict[str, Any]) -> list[Any]:
    """An observation in the form that `leaves` returns."""
    if not isinstance(obs, dict):
        return [obs.tolist()]
    pair = [("0", [obs["pair"][0]]), ("1", [obs["pair"][1].tolist()])]
    return [("action_mask", [info["action_mask"].tolist()]), ("pair", pair), ("walk", [obs["walk"].tolist()])]


def sync(kind: type[gymnasium.Env[Any, Any]], num_envs: int, mode: AutoresetMode, copy: bool = True) -> VectorEnv:
    return SyncVectorEnv([kind] * num_envs, copy=copy, autoreset_mode=mode)


def environments(kind: type[gymnasium.Env[Any, Any]] = Walk, num_envs: int = 2) -> dict[str, Env]:
    """`kind` as our serial rows, and as Gymnasium's vector in its three autoreset modes."""
    envs: dict[str, Env] = {"rows": SerialEnvs(kind, num_envs, inexact="")}
    for mode in MODES:
        envs[mode.value] = Adapter(lambda mode=mode: sync(kind, num_envs, mode, copy=False), inexact="")
    return envs
