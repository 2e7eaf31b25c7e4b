"""Checks of environments with or without a wrapper: results of `reset` and `step`, seeds, ends of episodes, state."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlplug_core.batches import rows_of
from rlplug_core.errors import RlplugError, UnknownEnv, quote_all
from rlplug_core.nets.actions import rows_without_choice, shape_of
from rlplug_core.nets.heads.masks import mask_of
from rlplug_core.nets.number_scale import scaled_parts
from rlplug_core.plugins import make_env
from rlplug_core.plugins.env_base import complete
from rlplug_core.plugins.envs import names_code
from rlplug_core.testing.kit.env_subject import (
    ROWS,
    SEED,
    TURNS,
    EnvSubject,
    copy_leaves,
    play,
    rows,
)
from rlplug_core.testing.kit.outcome import Failed, Skipped
from rlplug_core.testing.kit.side_effects import children
from rlplug_core.testing.kit.state import save_and_read
from rlplug_core.testing.kit.trees import difference
from rlplug_core.types import Array, Obs, Spec, Timestep, tree_map

_FLAGS = ("terminated", "truncated", "is_first", "valid")


def spaces(subject: EnvSubject) -> None:
    """Observations have the shape, dtype and bounds of the space after a reset, in steps and at ends of episodes."""
    env = subject.make()
    try:
        # Each agent of a world has a row.
        expected = ROWS * max(1, len(set(env.spec.agents)))
        if env.spec.num_envs != expected:
            raise Failed(f"created with {expected} rows, but its spec has {env.spec.num_envs}")
        shape_of(env.spec.action)  # raises if agents could not act
        now = env.reset(7)
        env.spec.action.seed(7)
        _check_obs(env.spec.obs, now.obs, "obs after the reset")
        for turn, action in enumerate(subject.actions()):
            now = env.step(action)
            for name, obs in (("obs", now.obs), ("final_obs", now.final_obs)):
                _check_obs(env.spec.obs, obs, f"{name} of step {turn + 1}")
    finally:
        env.close()


def scale(subject: EnvSubject) -> None:
    """Observations are not integers that networks divide by their bound, such as bytes that are not an image."""
    env = subject.make()
    env.close()
    if scaled := scaled_parts(env.spec.obs):
        names = quote_all(filter(None, scaled))
        raise Skipped(
            f"observations{names and ' ' + names} are integers, which networks divide by their bound; your own "
            "network gets them unscaled"
        )


def steps(subject: EnvSubject) -> None:
    """Flags, rewards and counts agree: an end is a termination or a truncation, and a new episode follows it."""
    env = subject.make()
    try:
        now = env.reset(7)
        if not now.is_first.all():
            raise Failed("after a reset `is_first` must be set in every row")
        waiting = now.is_first
        for turn, action in enumerate(subject.actions()):
            now = env.step(action)
            _check_flags(now, env.spec.num_envs, turn + 1)
            waiting = _check_ends(now, waiting, turn + 1)
            _check_masks(env.spec, now, turn + 1)
    finally:
        env.close()


def seeding(subject: EnvSubject) -> None:
    """The same seed gives the same episodes bit for bit in new and used environments, another seed other episodes."""
    used = subject.make()
    first, again, fresh, other_seed = (
        play(env, seed=seed)[0]
        for env, seed in ((used, SEED), (used, SEED), (subject.make(), SEED), (subject.make(), 8))
    )
    pairs = [(fresh, "two instances with one seed", "")]
    if not complete(used).learned():  # a learning wrapper continues to learn
        hint = "; a wrapper that learns across episodes needs `learned` and `freeze`"
        pairs.append((again, "two episodes of one instance with one seed", hint))
    for timesteps, description, remedy in pairs:
        for turn, (expected, actual) in enumerate(zip(first, timesteps, strict=True)):
            if path := difference(expected, actual):
                raise Failed(
                    f"{description} differ in '{path}' at step {turn}; draw everything from a generator that "
                    f"`reset(seed)` seeds, and reset all state there{remedy}"
                )
    if not any(map(difference, first, other_seed)):
        raise Skipped("it draws no random numbers: all seeds give the same")


def arrays(subject: EnvSubject) -> None:
    """Arrays stay unchanged until the call after the next one: an actor reads the last two steps."""
    env = subject.make()
    actions = subject.actions()
    before = env.reset(7)
    expected = copy_leaves(before)
    for turn, action in enumerate(actions):
        now = env.step(action)
        current = copy_leaves(before)
        if path := difference(expected, current):
            raise Failed(
                f"step {turn + 1} overwrites '{path}' of the step before it; use two arrays in turn"
            )
        before = now
        expected = copy_leaves(now)


def state(subject: EnvSubject) -> None:
    """Its state, saved in the middle of an episode and loaded into a new environment, continues the same episode."""
    env = subject.make()
    fresh = subject.make()
    if env.spec.inexact:
        raise Skipped(f"its state cannot be captured: {env.spec.inexact}")
    actions = subject.actions()
    fresh.reset(8)
    env.reset(7)
    for turn, action in enumerate(actions):
        now = env.step(action)
        if turn == TURNS // 2:
            saved = save_and_read({"env": env.state_dict()})["env"]
            if "inexact" in saved:
                raise Skipped(f"its state cannot be captured: {saved['inexact']}")
            fresh.load_state_dict(saved)
        elif turn > TURNS // 2 and (
            path := difference(copy_leaves(now), copy_leaves(fresh.step(action)))
        ):
            raise Failed(
                f"{turn - TURNS // 2} steps after loading its state '{path}' differs; put all that matters later "
                "into `state_dict`, generators too, or give a reason in spec.inexact"
            )


def close(subject: EnvSubject) -> None:
    """It can be closed, also twice, and then has no processes left."""
    before = children()
    env = subject.make()
    play(env, 10)
    env.close()
    env.close()
    if left := children() - before:
        raise Failed(f"after `close` the process {min(left)} still runs; end it")


def unknown(subject: EnvSubject) -> None:
    """Its provider refuses an unknown id with UnknownEnv and names the known ones."""
    if names_code(subject.name):
        raise Skipped("it is code without a provider")
    wrong = f"{subject.name}-unknown"
    try:
        make_env(wrong, 1).close()
    except UnknownEnv:
        return
    except RlplugError as error:
        raise Failed(
            f"'{wrong}' is refused with {type(error).__name__}; raise UnknownEnv"
        ) from error
    raise Failed(f"'{wrong}' creates an environment; raise UnknownEnv for unknown ids")


def _check_obs(space: Any, obs: Obs, where: str) -> None:
    for row in range(rows_of(obs)):
        row_obs = tree_map(lambda leaf, row=row: leaf[row], obs)
        if not space.contains(row_obs):
            text = " ".join(repr(row_obs).split())
            text = text if len(text) < 160 else f"{text[:157]}…"
            raise Failed(f"{where} is not in the space {space}: {text}")


def _check_flags(now: Timestep, count: int, turn: int) -> None:
    for name in _FLAGS:
        flag: Array = getattr(now, name)
        if flag.dtype != np.bool_ or flag.shape != (count,):
            raise Failed(f"step {turn}: {name} is {flag.dtype} {flag.shape}, not bool ({count},)")
    if now.reward.dtype != np.float32 or now.reward.shape != (count,):
        raise Failed(
            f"step {turn}: reward is {now.reward.dtype} {now.reward.shape}, not float32 ({count},)"
        )
    if not np.isfinite(now.reward[now.valid]).all():
        raise Failed(f"step {turn}: a reward is not finite: {now.reward}")
    if now.count != int(now.valid.sum()) or now.ended != bool(
        (now.terminated | now.truncated).any()
    ):
        raise Failed(
            f"step {turn}: count {now.count} or ended {now.ended} disagrees with valid and the ends"
        )


def _check_ends(now: Timestep, waiting: Array, turn: int) -> Array:
    """Check the ends of a step; `waiting` and the result are masks of the rows that wait for their first step."""
    ended = now.terminated | now.truncated
    if (overlap := now.terminated & now.truncated).any():
        raise Failed(
            f"step {turn}: rows {rows(overlap)} are terminated and truncated; a termination must not be truncated"
        )
    if (absent := ended & ~now.valid).any():
        raise Failed(f"step {turn}: rows {rows(absent)} end without a transition (valid is False)")
    reported = {episode.row for episode in now.episodes}
    if reported != set(np.flatnonzero(ended).tolist()):
        raise Failed(
            f"step {turn}: rows {rows(ended)} end, but episodes of the rows {sorted(reported)} are reported"
        )
    if (early := now.is_first & ~ended & now.valid & ~waiting).any():
        raise Failed(f"step {turn}: rows {rows(early)} start an episode, but none has ended there")
    return (waiting & ~now.valid) | now.is_first


def _check_masks(spec: Spec, now: Timestep, turn: int) -> None:
    """Check that a mask allows an action; agents of a world are exempt, because they may have to wait."""
    mask = None if spec.agents else mask_of(spec, now.obs)
    if mask is not None and (blocked := rows_without_choice(spec.action, mask)).any():
        raise Failed(
            f"step {turn}: the mask of rows {rows(blocked)} forbids all actions; allow one, or end the episode"
        )
