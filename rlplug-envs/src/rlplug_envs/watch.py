"""Check the results of environments at every step: a test of half a microsecond, and a full one if that fails."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from multiprocessing import parent_process
from typing import Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium import spaces

from rlplug_core.config.import_string import describe
from rlplug_core.errors import BadEnv, plain, warn
from rlplug_core.nets.one_hot import Ranged, bounds, outlier
from rlplug_core.plugins.single_wrappers import INSTEAD, learns
from rlplug_core.types import MASK, Array, GymEnv, Obs, Space
from rlplug_envs.observation_dtypes import (
    LARGEST,
    LEAST,
    DtypeMismatch,
    bad_number_message,
    count_unusable,
    find_mismatch,
)

#: The name in messages of the interface before Gymnasium.
OLD_GYM = "the old package gym"
#: An observation that exceeds its bounds by more than this many times their size causes a warning.
FAR = 10.0
#: The warnings that this process has shown.
_warned: set[str] = set()
#: A function that measures a part, the part, and the largest result that is not suspicious.
Watched: TypeAlias = tuple[Callable[[Array], Any], Array, float]


class Watch:
    """The parts of one set of observations [N, ...] that can be wrong, with a limit for each.

    For a part of floats, a sum of squares shows in one product whether it may hold NaN or infinity, or is far outside
    finite bounds. For Discrete, MultiDiscrete and MultiBinary parts, the numbers outside their space are counted.
    """

    def __init__(self, space: Space, obs: Obs, id: str) -> None:
        self.id = id
        self.first = 0  # the number of its first row in a larger vector
        self.parts: list[Watched] = []
        self._spaces: list[tuple[str, spaces.Box, Array]] = []
        self._counted: list[tuple[str, Ranged, Array]] = []
        self._masks: list[tuple[str, Array]] = []
        self._add("", space, obs)

    def _add(self, name: str, space: object, obs: Obs) -> None:
        if isinstance(space, spaces.Dict):
            for key, part in space.spaces.items():
                self._add(f"{name}{key}/", part, obs[key])
        elif isinstance(space, spaces.Box) and name.endswith(f"{MASK}/") and (space.low < 0).any():
            self._masks.append((name[:-1], obs))
            self.parts.append((_count_negative, obs, 0))
        elif isinstance(space, spaces.Box) and obs.dtype == np.float32:
            self._spaces.append((name, space, obs))
            flat = obs.reshape(-1)
            # `flat.dot` takes less time, but warns of an overflow.
            self.parts.append((partial(np.vdot, flat), flat, _largest_squares(space, len(obs))))
        elif isinstance(space, Ranged) and name != f"{MASK}/":
            self._counted.append((name[:-1], space, obs))
            self.parts.append((_outlier_counter(space), obs, 0))

    def has_suspects(self) -> bool:
        """Return whether a number is NaN, infinite, far out of bounds, or outside a space of integers."""
        for measure, part, largest in self.parts:  # noqa: SIM110 - a generator takes as long again
            if not measure(part) <= largest:
                return True
        return False

    def examine(self, lengths: Any) -> None:
        """Check each environment; `lengths` [N] has the lengths of its episodes.

        Raises:
            BadEnv: a number is NaN or infinite, or an observation of integers is not in its space. A number far
                outside the bounds only causes one warning.
        """

        def describe_step(row: int) -> str:
            return f"{self.id}, environment {self.first + row}, step {lengths[row]} of its episode"

        for name, space, obs in self._spaces:
            where = f" '{name[:-1]}'" if name else ""
            for row, *index in np.argwhere(~np.isfinite(obs)).tolist():
                raise BadEnv(
                    f"{describe_step(row)}: an observation{where} {bad_number_message(obs[(row, *index)])}"
                )
            self._warn_of_far_values(where, space, obs, lengths)
        for name, counted, obs in self._counted:
            check_counted(describe_step, counted, obs, name)
        for name, mask in self._masks:
            for row, *index in np.argwhere(~(mask >= 0)).tolist():
                raise BadEnv(
                    f"{describe_step(row)}: the observation '{name}' holds {mask[(row, *index)]:g}; give 1 for each "
                    "choice that is allowed, 0 for others"
                )
        self.parts = [_raise_limit(part_with_limit) for part_with_limit in self.parts]

    def _warn_of_far_values(
        self,
        where: str,
        space: spaces.Box,
        obs: Array,
        lengths: Any,
    ) -> None:
        with np.errstate(invalid="ignore", over="ignore"):  # infinities and large bounds
            far = np.maximum(space.low - obs, obs - space.high) > FAR * _extent(space)
        rows = np.flatnonzero(far.reshape(len(obs), -1).any(1))
        if len(rows) and self.id not in _warned:
            row = rows[0]
            step_name = f"environment {self.first + row}, step {lengths[row]} of its episode"
            value = obs[row][far[row]].reshape(-1)[0]
            _warned.add(self.id)
            warn(
                f"{self.id}, {step_name}: an observation{where} holds {value:g}, far outside its space's "
                "bounds; training continues, and this warning is not repeated"
            )


#: Types that need no further check: of rewards, and of the flags of an episode's end.
NUMBERS: frozenset[Any] = frozenset(
    {float, int, bool, np.bool_, np.float64, np.float32, np.int64, np.int32}
)
FLAGS = frozenset({bool, np.bool_})


def warn_of_learning(env: GymEnv, id: str) -> None:
    """Warn once, and not in workers, if a wrapper inside a user's environment learns."""
    while isinstance(env, gymnasium.Wrapper):
        if learns(type(env)) and parent_process() is None and f"{id} learns" not in _warned:
            _warned.add(f"{id} learns")
            warn(
                f"{id} holds {type(env).__name__}, and evaluations and loaded policies would not get what it learns: "
                f"leave it out; {INSTEAD}"
            )
        env = env.env


def close_env(close: Callable[[], object], id: str) -> None:
    """Call an environment's `close`; if it raises, warn once and continue: nothing depends on it."""
    try:
        close()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - an environment may raise anything
        if f"{id} close" not in _warned:
            _warned.add(f"{id} close")
            warn(f"{id} raised in close(): {describe(error)}; everything else continues")


def check_counted(
    describe_step: Callable[[int], str],
    space: Space,
    obs: Obs,
    name: str = "",
) -> None:
    """Raise BadEnv for Discrete and similar observations [N, ...] outside their space.

    `describe_step` names a row and its step in a message. Without this check a network would read a number below the
    range as another state, and a number above it as no state.
    """
    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            if key != MASK:
                check_counted(describe_step, part, obs[key], f"{name}/{key}" if name else key)
    elif isinstance(space, Ranged) and (fault := outlier(space, obs)):
        row, problem = fault
        where = f" '{name}'" if name else ""
        raise BadEnv(
            f"{describe_step(row)}: the observation{where} {problem}; let observation_space hold all that is given"
        )


def check_reset(where: str, result: Any) -> Any:
    """Return the result of `reset`; raise BadEnv unless it is an observation and an info."""
    if isinstance(result, tuple) and len(result) == 2:
        check_info(where, result[1], "reset")
        return result
    values = f"{len(result)} values" if isinstance(result, tuple) else f"a {type(result).__name__}"
    raise BadEnv(
        f"{where}: reset() returned {values}; return two, the observation and a dictionary: return obs, {{}} (only the "
        f"observation is the interface of {OLD_GYM})"
    )


def check_signature(id: str, env: GymEnv) -> None:
    """Raise BadEnv if `reset` does not take a seed by name, as in the old gym package."""
    base_env: object = env.unwrapped
    try:
        parameters = inspect.signature(type(base_env).reset).parameters  # type: ignore[attr-defined]
    except (
        AttributeError,
        TypeError,
        ValueError,
    ):  # its signature is unknown, for example of code in C
        return
    kinds = {parameter.kind for parameter in parameters.values()}
    if "seed" not in parameters and inspect.Parameter.VAR_KEYWORD not in kinds:
        raise BadEnv(
            f"{id}: its reset takes no argument 'seed', as in {OLD_GYM}; write reset(self, *, seed=None, options=None)"
        )


def check_info(where: str, info: Any, method: str) -> None:
    """Raise BadEnv unless the info that `method` returned is a dictionary."""
    if not isinstance(info, Mapping):
        raise BadEnv(
            f"{where}: {method}() returned {plain(repr(info), 60)} as info; give a dictionary"
        )


def check_late_mask(where: str, info: Mapping[str, object]) -> None:
    """Raise BadEnv for a mask if the first reset had none: agents would ignore it."""
    if MASK in info:
        raise BadEnv(
            f"{where}: info has an '{MASK}', and that of the first reset had none; give it in the info of every reset "
            "and step, or make it part of the observation"
        )


#: The remedies for a reward of several numbers, for several objectives or agents.
SEVERAL_REWARDS = (
    ": for several objectives add them in a wrapper, --wrap ./file.py:Name, "
    "and for several agents give a ParallelEnv of PettingZoo"
)


def check_result(
    where: str,
    reward: Any,
    terminated: Any,
    truncated: Any,
) -> None:
    """Raise BadEnv unless a reward is a number, and the ends of an episode are true or false."""
    if not isinstance(reward, int) and (
        np.ndim(reward) or np.asarray(reward).dtype.kind not in "biuf"
    ):
        has_several = np.size(reward) > 1 and not isinstance(reward, str)
        remedy = f"give a number{SEVERAL_REWARDS if has_several else ''}"
        raise BadEnv(f"{where}: the reward is {plain(repr(reward), 60)}; {remedy}")
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        if np.size(flag) != 1 or np.asarray(flag).dtype.kind not in "biuf":
            raise BadEnv(f"{where}: {name} is {plain(repr(flag), 60)}; give True or False")


def bad_reward_error(where: str, reward: Any) -> BadEnv:
    """Return the error for a reward that is not a number from -LARGEST to LARGEST."""
    if isinstance(reward, int) or np.isfinite(reward):
        description = (
            f"a number of {reward.bit_length()} bits" if isinstance(reward, int) else f"{reward:g}"
        )
        return BadEnv(
            f"{where}: the reward is {description}, more than float32 holds; give a smaller number"
        )
    return BadEnv(f"{where}: the reward is {reward}; give a finite number")


def check_reward(
    where: str,
    reward: Any,
    terminated: Any,
    truncated: Any,
) -> Any:
    """Return a reward as a Python number; raise BadEnv unless float32 holds it.

    The flags of the episode's end are checked, too.
    """
    check_result(where, reward, terminated, truncated)
    number = reward if isinstance(reward, int) else np.asarray(reward).item()
    if not LEAST <= number <= LARGEST:
        raise bad_reward_error(where, number)
    return number


def check_rewards(describe_step: Callable[[int], str], reward: Array) -> None:
    """Raise BadEnv for a reward [N] that float32 does not hold; `describe_step` names a row and its step."""
    # Numbers of Python, because an array of objects may hold integers larger than any of numpy's.
    for row, number in enumerate(reward.tolist()):
        if not LEAST <= number <= LARGEST:
            raise bad_reward_error(describe_step(row), number)


def check_results(id: str, lengths: Array, *results: Any) -> None:
    """Raise BadEnv unless a vector's rewards and flags are arrays that `check_result` accepts, one number per row."""
    for name, value in zip(("reward", "terminated", "truncated"), results, strict=True):
        if np.shape(value) != lengths.shape:
            expected = f"give an array of shape {lengths.shape}"
            raise BadEnv(
                f"{id}, step {max(lengths)}: {name} has the shape {np.shape(value)}; {expected}"
            )
    for row, values in enumerate(zip(*results, strict=True)):
        check_result(f"{id}, environment {row}, step {lengths[row]} of its episode", *values)


def _extent(space: spaces.Box) -> Array:
    """Return the largest absolute bound of each value, at least 1; infinite if a bound is."""
    return np.maximum(np.maximum(np.abs(space.low), np.abs(space.high)), 1.0).astype(np.float64)


def _outlier_counter(space: Ranged) -> Callable[[Array], Any]:
    """Return a function that counts the numbers of observations [N, ...] outside their space."""
    low, high = bounds(space)
    return lambda obs: np.count_nonzero((obs < low) | (obs > high))


def _count_negative(mask: Array) -> int:
    """Return how many numbers of masks [N, ...] are negative or NaN, as in masks that are added to logits."""
    return int(np.count_nonzero(~(mask >= 0)))


def _largest_squares(space: spaces.Box, rows: int) -> float:
    """Return the largest sum of squares of `rows` observations that are not far outside their bounds."""
    with np.errstate(over="ignore"):
        return min(rows * float(np.square((1 + FAR) * _extent(space)).sum()), LARGEST)


def _raise_limit(part_with_limit: Watched) -> Watched:
    """Return a part with a higher limit after its examination, so that large numbers are not examined at every step."""
    measure, part, largest = part_with_limit
    if not largest or measure(part) <= largest:
        return part_with_limit
    # Squares of large finite numbers overflow, so they no longer show an infinity.
    return (measure, part, LARGEST) if measure(part) <= LARGEST else (count_unusable, part, 0)


def explain_step_error(
    where: str,
    obs: Obs,
    error: Exception,
    result: Any,
) -> None:
    """Raise BadEnv if the environment's result caused an error in `step`; otherwise return.

    Args:
        where: name of the environment, and its step.
        obs: the arrays that observations are written to.
        error: the error.
        result: the return value of `step`.
    """
    if isinstance(error, DtypeMismatch):
        raise BadEnv(f"{where}: {error}") from None
    if error.__traceback__ is None or error.__traceback__.tb_next is not None:
        return
    if isinstance(error, OverflowError) and result and (mismatch := find_mismatch(obs, result[0])):
        raise BadEnv(f"{where}: {mismatch}") from None  # an integer too large for any array
    # A TypeError may come from its arguments.
    if isinstance(error, ValueError) or not isinstance(result, tuple):
        five = "(observation, reward, terminated, truncated, info)"
        old_interface = ""
        if isinstance(result, tuple) and len(result) == 4:
            old_interface = f", but four values, as in {OLD_GYM}: split its 'done' into terminated and truncated"
        raise BadEnv(
            f"{where}: step() did not return {five}{old_interface or f': {error}'}"
        ) from error
