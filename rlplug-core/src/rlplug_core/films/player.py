"""Plays episodes with a policy and lets every frame be seen: in a window, in films, on a contact sheet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from rlplug_core.clock import Clock
from rlplug_core.films.film import Films
from rlplug_core.films.sheet import Strip
from rlplug_core.loop.evaluate import Evaluation, evaluate
from rlplug_core.plugins.env_base import complete
from rlplug_core.protocols import Agent, Env
from rlplug_core.seeds import Seeds
from rlplug_core.types import Array

#: Frames per second where an environment does not say how fast it is.
FPS = 30.0


@dataclass
class Reel:
    """Take every frame that an environment could show; asks for those that are wanted.

    A frame belongs to each observation: the first of an episode, and one after each step. An episode that opens without
    a step, as the environment's own reset behind the last one does, is none.

    Attributes:
        every: only each so many frames of an episode go into the films.
        strips: small frames of each episode, for a contact sheet; kept where `sheet` is set.
    """

    films: Films
    every: int = 1
    sheet: bool = False
    strips: list[Strip] = field(default_factory=list)
    opening: Array | None = None
    count: int = 0

    def __call__(self, opens: bool, render: Callable[[], Array]) -> None:
        """`opens` says whether an episode begins with what `render` shows."""
        if opens:
            self.opening = render()
            return
        if self.opening is not None:
            self.count = 0
            self.strips.append(Strip())
            first = self.opening
            self.opening = None
            self._take(lambda: first)
        self._take(render)

    def _take(self, render: Callable[[], Array]) -> None:
        strip = self.strips[-1]
        filmed = self.count % self.every == 0
        small = self.sheet and strip.wants()
        if filmed or small:
            frame = render()
            if filmed:
                self.films.add(frame)
            if small:
                strip.keep(frame)
        strip.pass_by()
        self.count += 1


def play(
    agent: Agent,
    env: Env,
    episodes: int,
    seed: int,
    clock: Clock,
    reel: Reel | None,
    explore: bool = False,
) -> Evaluation:
    """Play so many episodes one after the other on a single environment; with many agents, each has returns of its own.

    Raises:
        UsageError: the environment has nothing to show.
    """
    if reel is not None:
        complete(env).show(reel)
    played: list[Evaluation] = []
    for number in range(episodes):
        own = (
            Seeds(seed).child("play", number).integer() if number else seed
        )  # the first is that of an evaluation
        one = evaluate(agent, env, own, clock, explore)
        played.append(one)
        if reel is not None:
            reel.strips[-1].total, reel.strips[-1].length = one.mean, max(one.lengths)
    return _together(played)


def _together(played: list[Evaluation]) -> Evaluation:
    """The episodes of several evaluations as one's: where any says whether it succeeded, one that was cut did not."""
    said = any(one.successes for one in played)
    return Evaluation(
        returns=tuple(gain for one in played for gain in one.returns),
        lengths=tuple(length for one in played for length in one.lengths),
        successes=tuple(success for one in played for success in one.successes or _silent(one))
        if said
        else (),
        infos=tuple(info for one in played for info in one.infos or ({},) * len(one.returns)),
        agents=tuple(agent for one in played for agent in one.agents),
        cut=sum(one.cut for one in played),
    )


def _silent(one: Evaluation) -> tuple[bool | None, ...]:
    """Successes of episodes that said nothing, as far as they are known."""
    return (False,) * one.cut + (None,) * (len(one.returns) - one.cut)
