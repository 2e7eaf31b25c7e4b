"""Parts of vectors of environments: seeds, actions and arrays of rows, and checks of actions and states."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import Any

import numpy as np
from gymnasium import spaces

from rlplug_core.errors import BadEnv
from rlplug_core.nets.actions import row_of
from rlplug_core.seeds import Seeds
from rlplug_core.types import Array, Obs, Space, Spec, State, Timestep
from rlplug_envs.capture.encoder import capture
from rlplug_envs.capture.state_format import Uncapturable, name_without_place
from rlplug_envs.observation_dtypes import bad_float_message
from rlplug_envs.spaces import allocate, equal_rows
from rlplug_envs.watch import Watch


def row_seed(seed: int, row: int) -> int:
    """Return the seed of one environment; it does not depend on the number of environments."""
    return Seeds(seed).child("row", row).integer()


def action_converter(
    space: Space,
    to_env: Callable[[Array], Any] | None,
) -> Callable[[Array], Any]:
    """Return a function from canonical actions [N, ...] to a sequence of actions for single environments."""
    if isinstance(space, spaces.Discrete):
        # `np.int64`, because Gymnasium's check of an `int` costs CartPole a fifth of a step. Spaces of narrower
        # integers refuse `np.int64`, and get an `int`.
        is_wide = space.dtype == np.int64
        to_list: Callable[[Array], list[Any]] = list if is_wide else np.ndarray.tolist
        return to_list if to_env is None else lambda action: to_list(to_env(action))
    if isinstance(space, spaces.Dict | spaces.Tuple):
        assert to_env is not None  # canonical actions concatenate their parts
        return lambda action: [row_of(to_env(action), row) for row in range(len(action))]
    if space.shape == ():  # a row of the array is a number of NumPy, which a Box does not contain
        convert = to_env or np.asarray
        return lambda action: [np.asarray(number) for number in convert(action)]
    return to_env or np.asarray


def frame_rate(metadata: Mapping[str, object] | None) -> float:
    """Return the frames per second of an environment's metadata; 30 if it has no positive number."""
    fps = (metadata or {}).get("render_fps")
    return float(fps) if isinstance(fps, int | float | np.number) and 0 < fps < inf else 30.0


def double_buffer(
    spec: Spec,
    never: Array,
    always: Array,
) -> list[tuple[Timestep, Obs, Array, Watch]]:
    """Return two sets of arrays (observation, reward), each with a Timestep without ends of episodes, and a watch.

    `never` and `always` are masks [N] of False and of True.
    """
    sets = []
    for _ in range(2):
        obs = allocate(spec.obs, spec.num_envs)
        reward = np.zeros(spec.num_envs, np.float32)
        sets.append(
            (Timestep.quiet(obs, reward, never, always), obs, reward, Watch(spec.obs, obs, spec.id))
        )
    return sets


def check_last(final_obs: Obs, id: str) -> None:
    """Raise BadEnv if last observations of episodes are NaN or infinite; a watch does not check their arrays."""
    if problem := bad_float_message(final_obs):
        raise BadEnv(f"{id}: {problem}")


def action_error(
    id: str,
    action: Array,
    expected: tuple[int, ...] | None,
) -> BadEnv:
    """Return the error for actions of a wrong shape; `expected` is None before the first reset."""
    if expected is None:
        return BadEnv(f"{id}: step was called before reset")
    return BadEnv(f"{id}: the actions have shape {action.shape}, expected {expected}")


def capture_rows(name: str, root: object, spec: Spec) -> State:
    """Return the state of environments under `name`, or under "inexact" why it cannot be captured."""
    if spec.inexact:
        return {"inexact": spec.inexact}
    try:
        return {name: capture(root)}
    except Uncapturable as error:
        return {"inexact": f"{name_without_place(spec.id)}: {error}"}


def check_state(state: State, num_envs: int, spec: Spec) -> None:
    """Raise BadEnv if a saved state does not fit an environment."""
    if "inexact" in state:
        raise BadEnv(f"{spec.id}: its state was not saved ({state['inexact']}); reset it instead")
    if num_envs != spec.num_envs:
        raise BadEnv(
            f"{spec.id}: the saved state is of {num_envs} environments, these are {spec.num_envs}"
        )


def are_usual(flags: Array, reward: Any, *ends: Any) -> bool:
    """Return whether these are arrays [N] of the usual types, which need no further checks; `flags` is any mask [N]."""
    return (
        reward.__class__ is np.ndarray
        and reward.shape == flags.shape
        and reward.dtype.kind in "fiu"
        and all(
            end.__class__ is np.ndarray and end.shape == flags.shape and end.dtype == flags.dtype
            for end in ends
        )
    )


def check_masked_reset(
    id: str,
    before: Obs,
    after: Obs,
    running: Array,
) -> None:
    """Raise BadEnv if the first masked reset also changed observations of the rows in the mask `running`."""
    if not equal_rows(before, after, running):
        raise BadEnv(
            f"{id}: reset(options={{'reset_mask': …}}) also changed environments outside the mask, "
            "which cuts running episodes; apply the mask in its reset, or use the mode SAME_STEP or NEXT_STEP "
            "without rlplug's time limit"
        )
