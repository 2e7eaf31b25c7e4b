"""`JaxRows`: functional environments in JAX as N rows of tensors; arrays change hands by DLPack, without a copy."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeAlias

import torch
from gymnasium.vector import AutoresetMode
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from rlplug_core.types import Obs, Space, State

# JAX would take most of a GPU's memory at its start, and torch needs some of it.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

#: JAX itself, its arrays and trees of them, without types because JAX is imported only when it is used.
JaxTree: TypeAlias = Any
#: A number of steps that no episode has.
NEVER = 2**31 - 1


@dataclass(frozen=True)
class Functions:
    """One environment as functions of JAX.

    Attributes:
        start: maps a key to the first observation and state.
        move: maps a key, a state and an action to the observation, the state, the reward, and whether the episode has
            terminated and was truncated.
        time_limit: steps after which an episode is truncated; 0 for none.
    """

    start: Callable[[JaxTree], tuple[JaxTree, JaxTree]]
    move: Callable[[JaxTree, JaxTree, JaxTree], tuple[JaxTree, JaxTree, JaxTree, JaxTree, JaxTree]]
    observation_space: Space
    action_space: Space
    time_limit: int = 0


class JaxRows:
    """A `protocols.TensorEnv` of N rows; it resets them in the step that ends their episodes, all in one `jit`.

    Its state is the tree of the environment's arrays, a key and the age of each episode, so runs resume exactly.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(
        self,
        functions: Functions,
        num_envs: int,
        device: str,
    ) -> None:
        self.jax = jax = import_module("jax")
        self.num_envs = num_envs
        self.device = torch.device(device)
        self.single_observation_space = functions.observation_space
        self.single_action_space = functions.action_space
        self.time_limit = functions.time_limit
        self.place = jax.devices("gpu" if self.device.type == "cuda" else "cpu")[
            self.device.index or 0
        ]
        self._start = jax.jit(_make_start(jax, functions, num_envs))
        self._move = jax.jit(_make_step(jax, functions, num_envs))

    def limit(self, steps: int) -> None:
        """Truncate episodes after `steps` steps, if no shorter limit is set."""
        self.time_limit = min(self.time_limit or steps, steps)

    def reset(
        self,
        *,
        seed: int | None = None,
        options: State | None = None,
    ) -> tuple[Obs, State]:
        """Start every row."""
        with self.jax.default_device(self.place):
            if seed is not None or not hasattr(self, "key"):
                self.key = self.jax.random.PRNGKey(seed or 0)
            # A step returns arrays that are committed to a device; for others JAX would compile `_move` again.
            started = self.jax.device_put(self._start(self.key), self.place)
            self.key, obs, self.state, self.age = started
        return self._tensors(obs), {}

    def step(
        self,
        action: Tensor,
    ) -> tuple[Obs, Tensor, Tensor, Tensor, State]:
        """Step every row, and restart the rows that have finished."""
        action = action if action.is_floating_point() else action.to(torch.int32)
        with self.jax.default_device(self.place):
            (self.key, self.state, self.age), outputs = self._move(
                (self.key, self.state, self.age),
                self.jax.dlpack.from_dlpack(action.contiguous()),
                self.time_limit or NEVER,
            )
        obs, final_obs, reward, terminated, truncated = self._tensors(outputs)
        return obs, reward, terminated, truncated, {"final_obs": final_obs}

    def row_bytes(self) -> int:
        """Return the bytes of one row's state, from shapes only."""
        _, _, state, _ = self.jax.eval_shape(self._start, self.jax.random.PRNGKey(0))
        sizes: Iterable[int] = (
            leaf.size * leaf.dtype.itemsize for leaf in self.jax.tree.leaves(state)
        )
        return sum(sizes) // self.num_envs

    def _tensors(self, tree: JaxTree) -> Any:
        """Return a tree of arrays as tensors that share their memory."""
        return self.jax.tree.map(from_dlpack, tree)

    def state_dict(self) -> State:
        leaves = self._tensors(self.jax.tree.leaves(self.state))
        return {
            "state": {str(number): leaf.clone() for number, leaf in enumerate(leaves)},
            "key": from_dlpack(self.key).clone(),
            "age": from_dlpack(self.age).clone(),
        }

    def load_state_dict(self, state: State) -> None:
        """Continue from a saved state, after a reset."""
        tree = self.jax.tree.structure(self.state)
        leaves = [state["state"][str(number)] for number in range(tree.num_leaves)]
        self.state = self.jax.tree.unflatten(tree, [self._array(leaf) for leaf in leaves])
        self.key = self._array(state["key"])
        self.age = self._array(state["age"])

    def _array(self, tensor: Tensor) -> JaxTree:
        """Return a copy of a tensor as an array on the device."""
        return self.jax.device_put(torch.as_tensor(tensor).cpu().numpy().copy(), self.place)

    def close(self) -> None:
        """Do nothing: no resource needs to be closed."""


def _make_start(
    jax: JaxTree,
    functions: Functions,
    count: int,
) -> Callable[[JaxTree], JaxTree]:
    """Return a function from a key to the next key, the observations, states and ages of `count` new episodes."""

    def start(key: JaxTree) -> JaxTree:
        key, start_key = jax.random.split(key)
        obs, state = jax.vmap(functions.start)(jax.random.split(start_key, count))
        # A step returns no weak types; for a state with them JAX would compile `_move` again.
        state = jax.tree.map(lambda leaf: leaf.astype(leaf.dtype), state)
        return key, obs, state, jax.numpy.zeros(count, jax.numpy.int32)

    return start


def _make_step(
    jax: JaxTree,
    functions: Functions,
    count: int,
) -> Callable[..., JaxTree]:
    """Return a function from the rows' state, their actions and the time limit to the next state and the results."""

    def move(previous: JaxTree, action: JaxTree, limit: JaxTree) -> JaxTree:
        key, step_key, start_key = jax.random.split(previous[0], 3)
        keys = jax.random.split(step_key, count)
        results = jax.vmap(functions.move)(keys, previous[1], action)
        final_obs, next_state, reward, terminated, was_truncated = results
        first_obs, first_state = jax.vmap(functions.start)(jax.random.split(start_key, count))
        age = previous[2] + 1
        terminated = terminated.astype(bool)
        truncated = (was_truncated | (age >= limit)) & ~terminated
        ended = terminated | truncated

        def choose(new: JaxTree, old: JaxTree) -> JaxTree:
            rows = ended.reshape(-1, *[1] * (old.ndim - 1))
            return jax.numpy.where(rows, new, old).astype(old.dtype)

        state = jax.tree.map(choose, first_state, next_state)
        obs = jax.tree.map(choose, first_obs, final_obs)
        outputs = obs, final_obs, reward.astype(jax.numpy.float32), terminated, truncated
        return (key, state, jax.numpy.where(ended, 0, age)), outputs

    return move
