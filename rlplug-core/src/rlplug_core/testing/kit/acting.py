"""Checks of the environments that an algorithm accepts and of the actions of its agent."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial, reduce
from operator import getitem

import numpy as np
from gymnasium import spaces as gym

from rlplug_core.acting.states import begin_acting
from rlplug_core.clock import Clock
from rlplug_core.config.import_string import describe
from rlplug_core.errors import UsageError
from rlplug_core.nets.actions import join, parts, shape_of, split
from rlplug_core.protocols import Agent, Env
from rlplug_core.seeds import Seeds
from rlplug_core.testing import envs
from rlplug_core.testing.kit.outcome import Failed
from rlplug_core.testing.kit.probe import Probe, Scenario
from rlplug_core.testing.kit.short_run import TOTAL, Trial
from rlplug_core.testing.kit.subject import KIT_ENVS, Subject, name_of, short
from rlplug_core.testing.kit.trees import Leaves, leaves
from rlplug_core.types import Act, Array, Space, Spec, tree_map, tree_where

#: Number of vector steps in which acts are compared.
TURNS = 32
#: How the core calls each method: numbers of positional arguments and keywords.
_CALLS: dict[str, dict[str, tuple[tuple[int, ...], tuple[str, ...]]]] = {
    "learner": {"agent": ((0, 2), ()), "buffer": ((0,), ()), "update": ((2,), ())},
    "agent": {"weights": ((0,), ()), "initial": ((1,), ()), "act": ((4,), ("explore",))},
    "buffer": {"add": ((1,), ("source",)), "batches": ((1,), ()), "feedback": ((2,), ())},
}
_STATE: dict[str, tuple[tuple[int, ...], tuple[str, ...]]] = {
    "state_dict": ((0,), ()),
    "load_state_dict": ((1,), ()),
}


def spaces(subject: Subject) -> None:
    """It accepts an environment, refuses others with a UsageError, and `actions` lists the supported action spaces."""
    for name, refusal in subject.refusals.items():
        if refusal is not None and not isinstance(refusal, UsageError):
            raise Failed(
                f"building it for {short(name)} raises {describe(refusal)}; refuse unsupported spaces with "
                "rlplug_core.errors.UsageError"
            ) from refusal
    if subject.env and subject.refusals[subject.env]:
        raise Failed(f"it refuses {subject.env}: {subject.refusals[subject.env]}")
    if not subject.accepted:
        reason = "; ".join(
            f"{short(name)}: {refusal}" for name, refusal in subject.refusals.items()
        )
        raise Failed(
            f"it accepts no environment of the kit; name a supported one with env=... or --env ({reason})"
        )
    declared = getattr(subject.cls, "actions", ())
    accepted = {
        type(env_class.action).__name__
        for env_class in KIT_ENVS
        if name_of(env_class) in subject.accepted
    }
    if declared and not accepted <= set(declared):
        raise Failed(
            f"it accepts {' and '.join(sorted(accepted))} actions, but declares actions = {tuple(declared)}"
        )


def protocol(subject: Subject) -> None:
    """Learner, agent and buffer have the methods of `rlplug_core.protocols`, with the arguments that runners pass."""
    learner = subject.learner(subject.spec, Seeds(0))
    objects = {"learner": learner, "agent": learner.agent(), "buffer": learner.buffer()}
    for noun, tested in objects.items():
        for method, (counts, keywords) in (_CALLS[noun] | _STATE).items():
            function = getattr(tested, method, None)
            if not callable(function):
                raise Failed(f"the {noun} {type(tested).__name__} has no method '{method}'")
            for count in counts:
                _check_call(function, count, keywords)


def actions(subject: Subject) -> None:
    """Actions, extras and recurrent state have the rows as first dimension; actions are in the action space."""
    for name in subject.accepted:
        for rows in (1, 3):
            env = Probe(subject.makers[name](rows).spec, Scenario())
            agent = subject.learner(env.spec, Seeds(0)).agent()
            for explore in (True, False):
                mode = "" if explore else ", without exploration"
                where = f"on {short(name)} with {rows} row{'s' * (rows > 1)}{mode}"
                for act in acts(agent, env, 8, explore):
                    _check_act(act, env.spec, where)


def masks(subject: Subject) -> None:
    """The agent never takes a forbidden action, before and after learning, with and without exploration."""
    subject.require(envs.Masked)
    try:
        trial = Trial(subject, envs.Masked(8)).run(subject.horizon.first + 16)
        for _ in acts(trial.learner.agent(), envs.Masked(8), 64, explore=False):
            pass
    except ValueError as error:
        raise Failed(str(error)) from error


def acts(
    agent: Agent,
    env: Env,
    turns: int,
    explore: bool = True,
    forgets: bool = False,
) -> Iterator[Act]:
    """Yield the acts of an agent during `turns` vector steps of `env` after a reset.

    With `forgets` the agent gets its initial recurrent state at the start of each episode, not that of the last step.
    """
    now = env.reset(7)
    agent, recurrent_state = begin_acting(agent, env.spec.num_envs)
    clock = Clock(TOTAL)
    initial = tree_map(np.copy, recurrent_state)
    for _ in range(turns):
        if forgets:
            recurrent_state = tree_where(now.is_first, initial, recurrent_state)
        act = agent.act(now.obs, now.is_first, recurrent_state, clock, explore=explore)
        yield act
        now = env.step(act.action)
        recurrent_state = act.recurrent_state


def greedy_actions(subject: Subject, agent: Agent) -> Leaves:
    """Return the actions of an agent in a probe with `explore=False`."""
    env = Probe(subject.spec, Scenario())
    return leaves([act.action for act in acts(agent, env, TURNS, explore=False)])


def _check_call(
    function: Callable[..., object],
    count: int,
    keywords: tuple[str, ...],
) -> None:
    for names in ((), keywords):
        try:
            inspect.signature(function).bind(*range(count), **dict.fromkeys(names))
        except TypeError as error:
            name = getattr(function, "__qualname__", function)
            raise Failed(f"{name} does not accept the arguments of the runners: {error}") from error


def _check_act(act: Act, spec: Spec, where: str) -> None:
    action = act.action
    expected = (spec.num_envs, *shape_of(spec.action))
    if not isinstance(action, np.ndarray) or action.shape != expected:
        shape = getattr(action, "shape", type(action).__name__)
        raise Failed(f"{where}: action is {shape}, not an array {expected}")
    problem = _outside(action, spec.action)
    if problem:
        raise Failed(f"{where}: {problem}")

    def check_rows(name: str, array: object) -> None:
        if not isinstance(array, np.ndarray) or array.shape[:1] != (spec.num_envs,):
            raise Failed(
                f"{where}: '{name}' is not an array with {spec.num_envs} rows as first dimension"
            )

    for name, part in {**act.extras, "(memory)": act.recurrent_state}.items():
        tree_map(partial(check_rows, name), part)


def _outside(action: Array, space: Space) -> str:
    """Return why actions [N, ...] are not in the space, or ""; bounds of a Box do not count: the environment clips."""
    if isinstance(space, gym.Dict):
        return _outside_parts(action, space)
    if isinstance(space, gym.Box):
        return (
            ""
            if action.dtype.kind == "f" and np.isfinite(action).all()
            else f"{action} are not finite floats"
        )
    if action.dtype.kind not in "iu":
        return f"actions are {action.dtype}, not integers"
    wrong = [row for row in action if not space.contains(np.asarray(row, dtype=space.dtype)[()])]
    return f"action {wrong[0]} is not in {space}" if wrong else ""


def _outside_parts(action: Array, space: gym.Dict) -> str:
    tree = split(space, action)
    if action.dtype != np.float32 or not np.array_equal(join(space, tree), action):
        return f"{action} are not float32, or have fractions in discrete parts"
    for part in parts(space):
        part_action = reduce(getitem, part.keys, tree)
        if problem := _outside(part_action, part.space):
            return f"'{'.'.join(part.keys)}': {problem}"
    return ""
