"""Tests at the start whether an environment resumes exactly: a restored copy must continue with the same outputs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from copy import deepcopy

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv

from rlplug_core.config.import_string import describe
from rlplug_core.errors import PluginError, RlplugError
from rlplug_core.nets.actions import legal, sample
from rlplug_core.nets.heads import check_mask
from rlplug_core.nets.heads.masks import mask_of
from rlplug_core.protocols import Env
from rlplug_core.seeds import global_state, load_global_state, preserve_generators
from rlplug_core.types import Array, Obs, Timestep, tree_map
from rlplug_envs.capture.state_format import Uncapturable, name_without_place
from rlplug_envs.games import Parallel, Turns

#: The most seconds of the test, and the fewest steps, which it makes even if they take longer.
MAX_SECONDS = 5.0
MIN_STEPS = 8


def self_test(make: Callable[[], Env], steps: int = 64) -> str:
    """Return why the environment that `make` builds cannot resume exactly; "" if it can.

    One instance runs ahead; its state goes into a second, fresh instance, and later back into the first. All three
    continuations must agree in every output. The process's random generators are restored. Actions that a mask forbids
    are not taken.

    Raises:
        UsageError: there is a mask, and it does not fit the actions.
    """
    with preserve_generators():
        first = make()
        second = make()
        try:
            return compare(first, second, steps)
        finally:
            first.close()
            second.close()


def compare(first: Env, second: Env, steps: int) -> str:
    """Return how continuations of `first` and `second` differ; "" if they agree."""
    check_mask(first.spec)
    space = deepcopy(first.spec.action)
    space.seed(0)
    actions = [sample(space, first.spec.num_envs) for _ in range(steps)]
    # Not seed 0: a restore resets to it first, which must not bring back parts that were not captured.
    first_timestep = first.reset(1)
    started = time.perf_counter()
    *_, result = play(first, first_timestep.obs, actions[:MIN_STEPS])
    actions = actions[: affordable_steps((time.perf_counter() - started) / MIN_STEPS)]
    *_, result = play(first, result.obs, actions[: len(actions) // 2])
    obs = tree_map(np.copy, result.obs)
    state = first.state_dict()
    generators = global_state()
    if "inexact" in state:
        return str(state["inexact"])
    expected = [timestep_bytes(result) for result in play(first, obs, actions)]
    for env in (second, first):
        try:
            env.load_state_dict(state)
        except Uncapturable as error:
            return str(error)
        load_global_state(generators)
        if difference := find_difference(env, obs, actions, expected):
            return difference
    return ""


def find_difference(
    env: Env,
    obs: Obs,
    actions: list[Array],
    expected: list[list[bytes]],
) -> str:
    """Return how a restored environment differs from the expected outputs; "" if it does not."""
    try:
        for number, result in enumerate(play(env, obs, actions)):
            if expected[number] != timestep_bytes(result):
                name = name_without_place(env.spec.id)
                return f"{name} differs {number + 1} steps after its state was restored: part of it is hidden"
    except RlplugError as error:  # the same steps did not raise before
        message = describe(error.__cause__ or error)
        return f"{name_without_place(env.spec.id)} raised after its state was restored: {message}"
    return ""


def affordable_steps(seconds: float) -> int:
    """Return the number of steps to compare if one takes `seconds`: half are played once, then all three times."""
    return max(MIN_STEPS, int(MAX_SECONDS / 3.5 / seconds))


def play(env: Env, obs: Obs, actions: list[Array]) -> Iterator[Timestep]:
    """Yield the results of `actions` after `obs`; the next allowed choices replace those that a mask forbids."""
    for action in actions:
        mask = mask_of(env.spec, obs)
        try:
            result = env.step(action if mask is None else legal(env.spec.action, action, mask))
        except RlplugError:
            raise
        except Exception as error:  # an environment may raise anything
            where = f"{env.spec.id} raised in {raising_method(error)}(), tried before training"
            raise PluginError(f"{where}: {describe(error)}; --traceback shows where") from error
        obs = result.obs
        yield result


def raising_method(error: BaseException) -> str:
    """Return the method of an environment that an exception came through last: "reset" if a step starts an episode."""
    method = "step"
    frames = error.__traceback__
    while frames is not None:
        name = frames.tb_frame.f_code.co_name
        owner = frames.tb_frame.f_locals.get("self")
        # By its owner: a clock in an environment may have a `reset` too.
        if name in ("reset", "step") and isinstance(
            owner, gymnasium.Env | VectorEnv | Parallel | Turns
        ):
            method = name
        frames = frames.tb_next
    return method


def timestep_bytes(timestep: Timestep) -> list[bytes]:
    """Return everything in the timestep as bytes, so that equal means equal bit for bit."""
    contents: list[bytes] = [f"{timestep.episodes} {timestep.ended} {timestep.count}".encode()]
    trees: list[object] = [
        timestep.obs,
        timestep.final_obs,
        timestep.reward,
        timestep.terminated,
        timestep.truncated,
        timestep.is_first,
        timestep.valid,
    ]
    while trees:
        tree = trees.pop()
        if isinstance(tree, dict):
            trees.extend(tree.values())
        else:
            contents.append(np.asarray(tree).tobytes())
    return contents
