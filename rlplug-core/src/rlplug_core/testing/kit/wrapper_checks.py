"""Checks of wrappers in addition to those of environments: side effects, episodes, observations of evaluations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlplug_core.errors import UsageError
from rlplug_core.plugins.env_base import complete
from rlplug_core.plugins.transform import freeze
from rlplug_core.protocols import Env
from rlplug_core.testing.kit.env_subject import TURNS, WrapperSubject, copy_leaves, play
from rlplug_core.testing.kit.outcome import Failed, Skipped
from rlplug_core.testing.kit.state import save_and_read
from rlplug_core.testing.kit.trees import Leaves, difference, leaves
from rlplug_core.types import Array, Spec, State, Timestep


class WriteDetector:
    """An environment that checks if its returned arrays were changed; it has no optional methods."""

    def __init__(self, env: Env) -> None:
        self.env = env
        #: The last timestep and a copy of it.
        self.last: tuple[Timestep, Leaves] | None = None

    @property
    def spec(self) -> Spec:
        return self.env.spec

    def reset(self, seed: int) -> Timestep:
        return self._hand_out(self.env.reset(seed))

    def step(self, action: Array) -> Timestep:
        self.check()
        return self._hand_out(self.env.step(action))

    def check(self) -> None:
        """Raise `Failed` if an array was changed."""
        if self.last is None:
            return
        timestep, copied = self.last
        if path := difference(copied, copy_leaves(timestep)):
            raise Failed(f"it writes into '{path}' of the environment below; work on a copy")

    def _hand_out(self, now: Timestep) -> Timestep:
        self.last = (now, copy_leaves(now))
        return now

    def close(self) -> None:
        self.env.close()

    def state_dict(self) -> State:
        return self.env.state_dict()

    def load_state_dict(self, state: State) -> None:
        self.env.load_state_dict(state)


def inputs(subject: WrapperSubject) -> None:
    """It does not write into arrays of the environment below."""
    if _goes_inside(subject):
        raise Skipped("it goes around single environments or worlds, below all arrays")
    below = WriteDetector(subject.bare())
    env = subject.wrapping.wrap(below)
    play(env)
    below.check()


def episodes(subject: WrapperSubject) -> None:
    """Reported episodes are those of the environment, with the same returns and lengths as without the wrapper."""
    env = subject.make()
    bare = subject.bare()
    if env.spec.action != bare.spec.action:
        raise Skipped("it changes actions, so runs cannot be compared")
    env.reset(7)
    bare.reset(7)
    for turn, action in enumerate(subject.actions()):
        now = env.step(action)
        below = bare.step(action)
        if len(now.episodes) < len(below.episodes) or (now.truncated & ~below.truncated).any():
            raise Skipped("it ends or joins episodes itself")
        wrapped = [(episode.row, episode.total, episode.length) for episode in now.episodes]
        inner = [(episode.row, episode.total, episode.length) for episode in below.episodes]
        if wrapped != inner:
            raise Failed(
                f"step {turn + 1}: episodes are reported as {wrapped}, and without it as {inner}; pass on `episodes` "
                "of the timestep below unchanged"
            )


def observe(subject: WrapperSubject) -> None:
    """`observe` gives evaluations and loaded policies the same observations as training."""
    env = subject.make()
    bare = subject.bare()
    observing = subject.make()
    if env.spec.obs == bare.spec.obs and not hasattr(env, "observe"):
        raise Skipped("it changes no observations")
    if not hasattr(observing, "observe"):
        raise Failed(
            "it changes observations and has no `observe`; inherit Transform or implement it"
        )
    if env.spec.action != bare.spec.action:
        raise Skipped("it changes actions, so runs cannot be compared")
    if _goes_inside(subject):
        raise Skipped("it changes the environments themselves; policies get their observations")
    if complete(env).learned():
        raise Skipped("its observations depend on learned state; 'wrapper-learned' tests that")
    _compare_observations(env, bare, observing, subject.actions())


def _goes_inside(subject: WrapperSubject) -> bool:
    """Return whether the wrapper accepts an environment and refuses one that only forwards its calls."""
    try:
        subject.wrapping.wrap(WriteDetector(subject.bare()))
    except UsageError:
        return True
    return False


def _compare_observations(
    env: Env,
    bare: Env,
    observing: Env,
    actions: Sequence[Array],
) -> None:
    """Compare the observations of `env` with those that `observing` makes of the observations of `bare`."""
    now = env.reset(7)
    below = bare.reset(7)
    first = np.ones(env.spec.num_envs, np.bool_)
    for turn, action in enumerate(actions):
        observed = complete(observing).observe(below.obs, first)
        if path := difference(leaves({"obs": now.obs}), leaves({"obs": observed})):
            raise Failed(
                f"after {turn} steps `observe` gives another observation than `reset` and `step` "
                f"('{path}'); loaded policies would get other observations than in training"
            )
        now = env.step(action)
        below = bare.step(action)
        first = now.is_first.copy()


def learned_state(subject: WrapperSubject) -> None:
    """Learned state can be saved, fits any `num_envs`, and does not change after `freeze`."""
    env = subject.make()
    if not complete(env).learned():
        raise Skipped("it learns nothing, or lacks `learned` and `freeze`")
    play(env)
    learned = save_and_read({"wrappers": complete(env).learned()})["wrappers"]
    frozen = subject.make(1)
    freeze(frozen, learned)
    play(frozen, 50)
    if path := difference(leaves(learned), leaves(complete(frozen).learned())):
        raise Failed(
            f"after `freeze` it continues to learn: '{path}' has changed; evaluations must change nothing"
        )
    if not difference(leaves(learned), leaves(complete(subject.make()).learned())):
        raise Failed(f"after {TURNS} steps its learned state has not changed")
