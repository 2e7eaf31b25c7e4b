"""The data that flows between an environment, an actor, a buffer and a learner.

`N` is the number of environments, the first dimension of every array. The classes are dataclasses with slots. They are
not frozen, because this would cost 0.7 microseconds per object, and every vector step makes three of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import gymnasium
import gymnasium.spaces as spaces
import numpy as np
import numpy.typing as npt
from torch import Tensor, device

#: A NumPy array of any type and shape.
Array: TypeAlias = npt.NDArray[Any]
Space: TypeAlias = spaces.Space[Any]
#: A plain Gymnasium environment.
GymEnv: TypeAlias = gymnasium.Env[Any, Any]
#: A Gymnasium wrapper around one environment.
GymWrapper: TypeAlias = gymnasium.Wrapper[Any, Any, Any, Any]
#: An observation: one array, or a (nested) dictionary of arrays, each with a leading row dimension. Batches on a device
#: have tensors in their place.
Obs: TypeAlias = Any
#: The memory of an agent between steps: None, or arrays or tensors [N, ...] in any form: one of them, a dictionary, a
#: tuple, a dataclass, nested. In steps and batches it is a nested dictionary of arrays: see `from_dicts`.
RecurrentState: TypeAlias = Any
#: The result of `state_dict`: nested dictionaries and lists of tensors, arrays, numbers, strings, booleans and None.
State: TypeAlias = dict[str, Any]

#: The name of a mask of allowed actions, in a dictionary observation and in `info`.
MASK = "action_mask"
#: The shared empty extras of agents that send none.
NO_EXTRAS: dict[str, Array] = {}


@dataclass(frozen=True)
class Goals:
    """Computes rewards for other goals than the desired one, as hindsight replay needs them.

    Attributes:
        reward: a function of achieved and desired goals [B, ...] that returns rewards [B].
        terminated: a function of the same goals that returns whether the task has ended [B]; None if a goal never ends
            it.
    """

    reward: Callable[[Array, Array], Array]
    terminated: Callable[[Array, Array], Array] | None = None

    def __deepcopy__(self, memo: object) -> Goals:
        """Copies of a learner share the functions, which may belong to an environment that cannot be copied."""
        return self


@dataclass(frozen=True, slots=True)
class Spec:
    """The spaces of one environment, the number of environments, and the id.

    Attributes:
        obs: the observation space.
        action: the canonical action space: a Box has the bounds [-1, 1] wherever those of the environment are finite,
            and the environment scales actions itself. An action is always one array; `rlplug_core.nets.actions` has the
            positions of a Dict's parts in it.
        num_envs: the number of rows.
        id: the environment's id.
        inexact: why the environment's state cannot be saved; empty if it can.
        limit: the number of steps after which episodes are truncated; 0 if it is unknown.
        goals: computes the rewards of other goals, if the environment has goals.
        agents: [num_envs] names of agents, if many share a world and each has its own row; else empty.
        kinds: [num_envs] if the agents' spaces differ: then `obs` and `action` are Dicts, and a row uses the part with
            this key.
        turns: whether the agents act in turn: then rows wait, as `Timestep.turn` says.
        no_goals: why an environment that could have goals has none.
        device: set if the environment gives and takes tensors on this device: then the arrays of its timesteps, and
            those of steps, actions and rollouts, are tensors.
    """

    obs: Space
    action: Space
    num_envs: int
    id: str
    inexact: str = ""
    limit: int = 0
    goals: Goals | None = field(default=None, compare=False, repr=False)
    agents: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    turns: bool = False
    no_goals: str = field(default="", compare=False, repr=False)
    device: device | None = field(default=None, compare=False, repr=False)

    @property
    def agents_per_world(self) -> int:
        """Return the number of agents in each world; 1 if rows are not agents of a common world."""
        return len(dict.fromkeys(self.agents)) or 1

    def without_goals(self, wrapper: str) -> Spec:
        """Return the same spec without goals, for a wrapper that may change rewards: `goals` knows no wrapper."""
        if self.goals is None:
            return self
        reason = (
            f"{wrapper} around {self.id} may change rewards or goals, which compute_reward does not know; leave that "
            "wrapper out"
        )
        return replace(self, goals=None, no_goals=reason)


@dataclass(slots=True)
class Episode:
    """One finished episode: its row, the undiscounted sum of its untransformed rewards, and its length in steps.

    `success` is `info["is_success"]` or `info["success"]` of its last step; None if neither is there.
    `info` holds all numbers in the `info` of its last step, by name. `agent` is the name of its agent, if there are
    many in one world.
    """

    row: int
    total: float
    length: int
    success: bool | None = None
    info: Mapping[str, float] = field(default_factory=dict)
    agent: str = ""

    def plain(self) -> list[object]:
        """Return the episode in the form of a state; `Episode(*plain)` is the inverse."""
        return [self.row, self.total, self.length, self.success, dict(self.info), self.agent]


@dataclass(slots=True)
class Timestep:
    """The result of `Env.reset` or `Env.step` for all N environments.

    Arrays stay valid until the call after the next one; copy them to keep them longer.

    Attributes:
        obs: [N, ...] the observations for the next action.
        final_obs: [N, ...] the true successor of the last action; the same object as `obs` if no row was reset.
        reward: [N] float32 reward of the last action.
        terminated: [N] bool, the last action ended the episode in the task itself.
        truncated: [N] bool, the episode was cut from outside (a time limit); never together with `terminated`.
        is_first: [N] bool, `obs` is the first observation of an episode.
        valid: [N] bool, the row has a transition (False if a NEXT_STEP environment only reset it).
        episodes: the episodes that ended in this call, with the returns of the environment inside all wrappers.
        ended: whether any row is terminated or truncated.
        count: how many rows are valid.
        turn: [N] bool, the rows that act next; None for all. The other rows wait: they keep the `obs` of their last
            action, and are `valid` in a later call, which has their next observation.
    """

    obs: Obs
    final_obs: Obs
    reward: Array
    terminated: Array
    truncated: Array
    is_first: Array
    valid: Array
    episodes: Sequence[Episode]
    ended: bool
    count: int
    turn: Array | None = None

    @classmethod
    def opening(
        cls,
        obs: Obs,
        reward: Array,
        is_first: Array,
        never: Array,
        turn: Array | None = None,
    ) -> Timestep:
        """Return the result of `reset`, without transitions; `never` [N] is False everywhere."""
        return cls(
            obs=obs,
            final_obs=obs,
            reward=reward,
            terminated=never,
            truncated=never,
            is_first=is_first,
            valid=never,
            episodes=(),
            ended=False,
            count=0,
            turn=turn,
        )

    @classmethod
    def quiet(
        cls,
        obs: Obs,
        reward: Array,
        never: Array,
        always: Array,
    ) -> Timestep:
        """Return the result of a step without an end; `never` [N] is False everywhere, `always` [N] True."""
        return cls(
            obs=obs,
            final_obs=obs,
            reward=reward,
            terminated=never,
            truncated=never,
            is_first=never,
            valid=always,
            episodes=(),
            ended=False,
            count=len(always),
        )


@dataclass(slots=True)
class Act:
    """An agent's result: `action` [N, ...], its new memory, and extras for the learner, such as `log_prob` [N]."""

    action: Array
    recurrent_state: RecurrentState = None
    extras: dict[str, Array] = field(default_factory=dict)


@dataclass(slots=True)
class Step:
    """One transition of every row, with everything that a learner needs of it. Fields are as in `Timestep`.

    `is_first` says that `obs` is the first observation of an episode, and `recurrent_state` is the agent's memory
    before it saw `obs`. `extras` has the agent's extras (`Act.extras`) and the learner's `signals` from `info`.
    """

    obs: Obs
    action: Array
    reward: Array
    next_obs: Obs
    terminated: Array
    truncated: Array
    is_first: Array
    valid: Array
    ended: bool
    extras: dict[str, Array]
    recurrent_state: RecurrentState


@dataclass(slots=True)
class Result:
    """The result of an update: metrics as scalar tensors or numbers, and priorities [B] if the buffer uses them.

    `extras` replaces extras of the batch's steps in a replay buffer, [B, ...] by name (for sequences [T * B, ...]).
    Later batches with these steps have the new values; `ReplayBuffer.with_extras` names them.
    """

    metrics: Mapping[str, Tensor | float]
    priority: Tensor | Array | None = None
    extras: Mapping[str, Tensor | Array] | None = None


@dataclass(slots=True)
class Chunk:
    """The message of a decoupled actor: plain arrays, their sender, and the version of the weights that acted.

    `begins` says that its first step does not follow the last step of the same source, because a new actor replaced the
    actor that had sent that step.
    """

    source: int
    version: int
    data: State
    begins: bool = False


def tree_map(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """Apply `function` to the leaves of nested dictionaries of the same shape; None stays None."""
    if isinstance(tree, dict):
        return {
            key: tree_map(function, value, *(other[key] for other in others))
            for key, value in tree.items()
        }
    if tree is None:
        return None
    return function(tree, *others)


def align_mask(mask: Array, array: Array) -> Array:
    """Return a mask [N] as [N, 1, ...], so that it selects whole rows of an array [N, ...] in `where`."""
    ones = [1] * (np.ndim(array) - 1)
    return mask.reshape(-1, *ones)


def first_nonfinite_row(array: Array) -> int:
    """Return the number of the first row of an array [N, ...] with a NaN or an infinity."""
    finite = np.isfinite(array).reshape(len(array), -1)
    return int(np.flatnonzero(~finite.all(axis=1))[0])


def tree_where(mask: Array, x: object, y: object) -> object:
    """Return the rows in `mask` from `x` and the others from `y`, as `numpy.where`.

    Args:
        mask: [N] bool.
        x, y: nested dictionaries of arrays or of tensors [N, ...].
    """

    def choose(a: Any, b: Any) -> Any:
        rows: Any = align_mask(mask, a)
        return a.where(rows, b) if isinstance(a, Tensor) else np.asarray(np.where(rows, a, b))

    return tree_map(choose, x, y)


def first_leaf(tree: object) -> Any:
    """Return the first array or tensor of a nested dictionary."""
    while isinstance(tree, dict):
        tree = next(iter(tree.values()))
    return tree


def channels_last(shape: Sequence[int]) -> bool:
    """Return whether an image of this shape is [H, W, C], and not [C, H, W].

    Two neighboring axes of equal length are height and width. If there are none, the shorter one of the outer axes
    has the channels; if all are equal, they come last, as in Gymnasium's own environments.
    """
    first, middle, last = shape
    return middle == first if first == middle or middle == last else last < first
