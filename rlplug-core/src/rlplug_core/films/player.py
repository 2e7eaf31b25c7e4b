"""Plays episodes with a policy and passes frames to a window, films and a contact sheet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from rlplug_core.clock import Clock
from rlplug_core.films.film import Films
from rlplug_core.films.frames import resize
from rlplug_core.films.sheet import Strip
from rlplug_core.loop.evaluate import Evaluation, evaluate
from rlplug_core.plugins.env_base import complete
from rlplug_core.protocols import Agent, Env
from rlplug_core.seeds import Seeds
from rlplug_core.types import Array


@dataclass
class Reel:
    """Receives every frame of an environment and renders only those that a film or the sheet needs.

    There is one frame for each observation: the first of an episode, and one after each step. An episode without a step
    is ignored; the automatic reset after the last episode starts one.

    Attributes:
        every: interval between frames of an episode in the films.
        size: height and width of the first frame; frames of another size are resized to it.
        strips: small frames of each episode for a contact sheet, if `sheet` is set.
    """

    films: Films
    every: int = 1
    sheet: bool = False
    strips: list[Strip] = field(default_factory=list)
    opening: Array | None = None
    size: tuple[int, ...] = ()
    count: int = 0

    def __call__(self, opens: bool, render: Callable[[], Array]) -> None:
        """Handle the next frame; `opens` is true for the first frame of an episode."""
        if opens:
            self.opening = render()
            return
        if self.opening is not None:
            self.count = 0
            self.strips.append(Strip())
            first = self.opening
            self.opening = None
            self._add_frame(lambda: first)
        self._add_frame(render)

    def _add_frame(self, render: Callable[[], Array]) -> None:
        strip = self.strips[-1]
        filmed = self.count % self.every == 0
        small = self.sheet and strip.needs_frame()
        if filmed or small:
            frame = render()
            self.size = self.size or frame.shape[:2]
            frame = resize(frame, *self.size)
            if filmed:
                self.films.add(frame)
            if small:
                strip.keep(frame)
        strip.count_frame()
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
    """Play episodes one after the other on a single environment; with many agents, each agent has its own returns.

    Raises:
        UsageError: the environment cannot render frames.
    """
    if reel is not None:
        complete(env).show(reel)
    evaluations: list[Evaluation] = []
    for number in range(episodes):
        # The first episode equals the first one of an evaluation with this seed.
        episode_seed = Seeds(seed).child("play", number).integer() if number else seed
        episode = evaluate(agent, env, episode_seed, clock, explore)
        evaluations.append(episode)
        if reel is not None:
            reel.strips[-1].total = episode.mean
            reel.strips[-1].length = max(episode.lengths)
    return _merge(evaluations)


def _merge(evaluations: list[Evaluation]) -> Evaluation:
    """Merge evaluations. If an episode reports success, an episode that was cut short counts as a failure."""
    successes: list[bool | None] = []
    if any(evaluation.successes for evaluation in evaluations):
        for evaluation in evaluations:
            # Without a report, an episode that was cut short has failed, and the result of others is unknown.
            unknown = [None] * (len(evaluation.returns) - evaluation.cut)
            successes += evaluation.successes or (*[False] * evaluation.cut, *unknown)
    return Evaluation(
        returns=tuple(total for evaluation in evaluations for total in evaluation.returns),
        lengths=tuple(length for evaluation in evaluations for length in evaluation.lengths),
        successes=tuple(successes),
        infos=tuple(
            info
            for evaluation in evaluations
            for info in evaluation.infos or ({},) * len(evaluation.returns)
        ),
        agents=tuple(agent for evaluation in evaluations for agent in evaluation.agents),
        cut=sum(evaluation.cut for evaluation in evaluations),
    )
