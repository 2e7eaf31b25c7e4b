"""Checks of wrappers, beside those of environments: what they leave alone, and what evaluations see."""

from __future__ import annotations

import numpy as np

from rlplug_core.plugins.env_base import complete
from rlplug_core.plugins.transform import freeze
from rlplug_core.protocols import Env
from rlplug_core.testing.kit.env_subject import TURNS, WrapperSubject, copied, play
from rlplug_core.testing.kit.outcome import Failed, Skipped
from rlplug_core.testing.kit.state import saved_and_read
from rlplug_core.testing.kit.trees import difference, leaves
from rlplug_core.types import Array, Spec, State, Timestep


class Watched:
    """An environment that looks whether what it handed out is still what it was."""

    def __init__(self, env: Env) -> None:
        self.env = env
        self.handed: list[tuple[Timestep, object]] = []
        self.bare: list[Timestep] = []

    @property
    def spec(self) -> Spec:
        return self.env.spec

    def reset(self, seed: int) -> Timestep:
        self.handed = []
        return self._hand_out(self.env.reset(seed))

    def step(self, action: Array) -> Timestep:
        self.check()
        return self._hand_out(self.env.step(action))

    def check(self) -> None:
        """Raise `Failed` where something was written into."""
        for now, kept in self.handed[-1:]:
            if path := difference(kept, copied(now)):  # type: ignore[arg-type]
                raise Failed(f"it writes into '{path}' of the environment below; work on a copy")

    def _hand_out(self, now: Timestep) -> Timestep:
        self.handed = [(now, copied(now))]
        return now

    def close(self) -> None:
        self.env.close()

    def state_dict(self) -> State:
        return self.env.state_dict()

    def load_state_dict(self, state: State) -> None:
        self.env.load_state_dict(state)


def inputs(subject: WrapperSubject) -> None:
    """It writes into nothing that the environment below handed out."""
    below = Watched(subject.bare())
    env = subject.wrapping.around(below)
    play(env)
    below.check()


def episodes(subject: WrapperSubject) -> None:
    """Reported episodes are the environment's own, with the returns and lengths that they have without it."""
    env = subject.make()
    bare = subject.bare()
    if env.spec.action != bare.spec.action:
        raise Skipped("it changes actions, so that there is nothing to compare with")
    env.reset(7)
    bare.reset(7)
    for turn, action in enumerate(play(subject.make(), TURNS).actions):
        now = env.step(action)
        below = bare.step(action)
        if len(now.episodes) < len(below.episodes) or (now.truncated & ~below.truncated).any():
            raise Skipped("it ends episodes of its own accord, or joins them")
        ours = [(one.row, one.total, one.length) for one in now.episodes]
        theirs = [(one.row, one.total, one.length) for one in below.episodes]
        if ours != theirs:
            raise Failed(
                f"step {turn + 1}: episodes are reported as {ours}, and without it as {theirs}; hand `episodes` of the "
                "timestep below on as they are"
            )


def observe(subject: WrapperSubject) -> None:
    """Evaluations and loaded policies see by `observe` what training saw of the same observations below."""
    env = subject.make()
    bare = subject.bare()
    seeing = subject.make()
    if env.spec.obs == bare.spec.obs and not hasattr(env, "observe"):
        raise Skipped("it changes no observations")
    if not hasattr(seeing, "observe"):
        raise Failed(
            "it changes observations and has no `observe`; inherit Transform, or say what becomes of them"
        )
    if env.spec.action != bare.spec.action:
        raise Skipped("it changes actions, so that there is nothing to compare with")
    if complete(env).learned():
        raise Skipped("what it shows depends on what it has learned, which 'learned' is about")
    now = env.reset(7)
    below = bare.reset(7)
    first = np.ones(env.spec.num_envs, np.bool_)
    for turn, action in enumerate(play(subject.make(), TURNS).actions):
        if path := difference(
            leaves({"obs": now.obs}), leaves({"obs": complete(seeing).observe(below.obs, first)})
        ):
            raise Failed(
                f"after {turn} steps `observe` makes something else of an observation than `reset` and `step` do "
                f"('{path}'); loaded policies would see something else than training did"
            )
        now = env.step(action)
        below = bare.step(action)
        first = now.is_first.copy()


def learned_state(subject: WrapperSubject) -> None:
    """State that it learns can be written down, fits any `num_envs`, and is frozen where it is taken over."""
    env = subject.make()
    if not complete(env).learned():
        raise Skipped("it learns nothing, or does not say so: `learned` and `freeze`")
    play(env)
    found = saved_and_read({"wrappers": complete(env).learned()})["wrappers"]
    other = subject.make(1)
    freeze(other, found)
    play(other, 50)
    if path := difference(leaves(found), leaves(complete(other).learned())):
        raise Failed(
            f"after `freeze` it goes on learning: '{path}' has changed; evaluations must change nothing"
        )
    if not difference(leaves(found), leaves(complete(subject.make()).learned())):
        raise Failed(f"after {TURNS} steps it has learned what it began with")
