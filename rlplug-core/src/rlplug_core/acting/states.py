"""Recurrent states of any form, and their form in steps, buffers and checkpoints: nested dictionaries of arrays.

An agent may return a dictionary, a tuple, a named tuple, a list or a dataclass, nested, with arrays or tensors
[N, ...]. The fields of dataclasses and named tuples keep their names; other elements are named by position, "0", "1".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlplug_core.clock import Clock
from rlplug_core.errors import PluginError
from rlplug_core.protocols import Agent
from rlplug_core.types import Act, Array, Obs, RecurrentState, State


def begin_acting(
    agent: Agent,
    num_envs: int,
    tensors: bool = False,
) -> tuple[Agent, RecurrentState]:
    """Return an agent with recurrent states that are dictionaries of arrays, and its state before the first step.

    Args:
        agent: an agent; if its states already have this form, it is returned itself.
        num_envs: number of rows.
        tensors: whether the rows are on a device; if so, tensors remain tensors.

    Raises:
        PluginError: a part of the state is not an array [num_envs, ...].
    """
    state = agent.initial(num_envs)
    if is_plain(state, (np.ndarray, Tensor) if tensors else (np.ndarray,)):
        return agent, state
    return DictStateAgent(agent, state, tensors), to_dicts(state, num_envs, tensors)


def is_plain(tree: object, leaves: tuple[type, ...]) -> bool:
    """Return whether a tree consists of dictionaries, leaves of the types `leaves`, and None."""
    if isinstance(tree, dict):
        return all(is_plain(part, leaves) for part in tree.values())
    return tree is None or isinstance(tree, leaves)


def to_dicts(
    tree: object,
    rows: int,
    tensors: bool = False,
    path: str = "",
) -> Any:
    """Return a tree as nested dictionaries of arrays [rows, ...].

    Args:
        tree: a recurrent state.
        rows: number of rows.
        tensors: whether tensors remain tensors; otherwise they become arrays, without a copy on the CPU.
        path: the place of the tree in the state, for messages.

    Raises:
        PluginError: a leaf is not an array or a tensor with `rows` rows.
    """
    elements = named_parts(tree)
    if elements is not None:
        return {
            name: to_dicts(part, rows, tensors, f"{path}.{name}") for name, part in elements.items()
        }
    if tree is None:
        return None
    if not isinstance(tree, np.ndarray | Tensor) or tree.shape[:1] != (rows,):
        form = f" of shape {tuple(tree.shape)}" if hasattr(tree, "shape") else ""
        raise PluginError(
            f"the agent's recurrent state{path} is of type {type(tree).__name__}{form}; give an array or a tensor "
            f"[{rows}, ...], with one entry for each row"
        )
    return tree.detach().cpu().numpy() if isinstance(tree, Tensor) and not tensors else tree


def from_dicts(dicts: Any, like: object) -> Any:
    """Return a recurrent state in the form of the agent, from nested dictionaries such as `batch.recurrent_state`.

    Args:
        dicts: the dictionaries, with arrays or tensors [B, ...].
        like: a recurrent state of the agent, such as `agent.initial(1)`; if it has tensors, arrays become tensors.
    """
    elements = named_parts(like)
    if elements is None:
        convert = isinstance(like, Tensor) and isinstance(dicts, np.ndarray)
        return torch.from_numpy(dicts) if convert else dicts
    named = {name: from_dicts(dicts[name], part) for name, part in elements.items()}
    if isinstance(like, dict):
        return named
    if is_dataclass(like) and not isinstance(like, type):
        return replace(like, **named)
    kind: Any = type(like)
    return kind(*named.values()) if hasattr(like, "_fields") else kind(named.values())


def named_parts(tree: object) -> Mapping[str, object] | None:
    """Return the parts of a dictionary, a dataclass, a tuple or a list by name; None for a leaf."""
    if isinstance(tree, dict):
        return tree
    if is_dataclass(tree) and not isinstance(tree, type):
        return {field.name: getattr(tree, field.name) for field in fields(tree)}
    if isinstance(tree, tuple | list):
        names = getattr(tree, "_fields", map(str, range(len(tree))))
        return dict(zip(names, tree, strict=True))
    return None


class DictStateAgent:
    """Wraps an agent with recurrent states of any form, so that they become nested dictionaries of arrays.

    Args:
        agent: the wrapped agent.
        like: a recurrent state of the wrapped agent, which shows the form.
        tensors: whether tensors remain tensors.
    """

    def __init__(
        self,
        agent: Agent,
        like: object,
        tensors: bool = False,
    ) -> None:
        self.agent = agent
        self.like = like
        self.tensors = tensors

    def weights(self) -> State:
        return self.agent.weights()

    def initial(self, num_envs: int) -> RecurrentState:
        return to_dicts(self.agent.initial(num_envs), num_envs, self.tensors)

    def act(
        self,
        obs: Obs,
        is_first: Array,
        recurrent_state: RecurrentState,
        clock: Clock,
        explore: bool = True,
    ) -> Act:
        before = from_dicts(recurrent_state, self.like)
        act = self.agent.act(obs, is_first, before, clock, explore=explore)
        after = to_dicts(act.recurrent_state, len(act.action), self.tensors)
        return Act(act.action, after, act.extras)

    def state_dict(self) -> State:
        return self.agent.state_dict()

    def load_state_dict(self, state: State) -> None:
        self.agent.load_state_dict(state)
