"""The number of episodes that evaluations play where nobody says: 100, or as many as a tenth of the run allows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean

from rlplug_core.clock import Clock
from rlplug_core.loop.evaluate import longest, near_limit
from rlplug_core.loop.plan import Plan
from rlplug_core.loop.step_agent import StepAgent
from rlplug_core.plugins.presets import is_known
from rlplug_core.protocols import Agent, Env
from rlplug_core.runs.listing import records
from rlplug_core.seeds import untouched

#: Episodes of an evaluation, and fewest of the final one.
MOST = 100
FEWEST_FINAL = 10
#: Episodes of an evaluation that something in the run reacts to, where no preset names the environment: weights then
#: depend on what it finds, and must not depend on a clock.
WATCHED = 10
#: The share of a run's time that evaluations may take, and the seconds of each that nobody minds anyway: more of them
#: where a preset names the environment, so that runs which others compare with play a hundred.
SHARE = 0.1
FREE = 0.05
FREE_NAMED = 1.0
FREE_FINAL = 30.0
#: Environments and steps that are timed, and the seconds after which enough is seen.
ROWS = 8
STEPS = 50
ENOUGH = 0.5
#: The record in the journal, by which a resumed run plays as many.
KIND = "eval_episodes"


@dataclass(frozen=True)
class EvaluationBudget:
    """Episodes per evaluation and of the final one; and what one was measured to take, where it was.

    `watched` says that something in the run reacts to evaluations, so that their number is fixed.
    """

    episodes: int = MOST
    final: int = MOST
    seconds: float = 0.0
    watched: bool = False

    @classmethod
    def recorded(cls, run: Path) -> EvaluationBudget | None:
        """Return what a run's journal says, if it does."""
        found = [record.data for record in records(run) if record.kind == KIND]
        return cls(**found[-1]) if found else None

    @property
    def record(self) -> dict[str, float]:
        return asdict(self)

    @property
    def fewer(self) -> str:
        """A sentence for the user where it is not a hundred; empty where it is."""
        if self.episodes == MOST and self.final == MOST:
            return ""
        why = (
            "the run reacts to them"
            if self.watched
            else f"an episode takes {self.seconds:.2g} s here"
        )
        return (
            f"{why}: evaluations play {self.episodes} episodes, the final one "
            f"{self.final}; --eval-episodes and --final-eval-episodes say otherwise"
        )


def allowance(
    step: float, length: int, spent: float, steps: int, every: int, total: int, free: float = FREE
) -> EvaluationBudget:
    """The episodes that evaluations may play.

    Args:
        step: seconds that a step of one environment takes in evaluation.
        length: steps of a long episode.
        spent: seconds of training so far, in `steps` env steps.
        every: env steps between evaluations. total: env steps of the whole run.
        free: seconds that each evaluation may take anyway.
    """
    episode = step * length
    pace = spent / max(1, steps)
    each = max(free, SHARE * pace * every) / episode
    final = max(FREE_FINAL, SHARE * pace * total) / episode
    return EvaluationBudget(_within(each, 1), _within(final, FEWEST_FINAL), episode)


def measured(
    plan: Plan,
    agent: Agent,
    clock: Clock,
    spent: float,
    every: int,
    lengths: Sequence[int],
    watched: bool = False,
) -> EvaluationBudget:
    """The episodes that the evaluations of a run may play, from the pace of its training so far.

    Args:
        watched: whether controllers see evaluations; then it is a fixed number, and the final one's alone is measured.
        lengths: of training episodes; the longest counts where the environment has no time limit that is near. Where
            none has ended yet, an evaluation's may last until it is cut.
    """
    env = plan.make_eval_env(ROWS)
    try:
        step = step_seconds(agent, env, plan.seeds().child("evaluation").integer(), clock)
    finally:
        env.close()
    length = near_limit(env) or max(lengths, default=longest(env, clock))
    known = is_known(plan.algorithm, plan.env)
    free = FREE_NAMED if known else FREE
    found = allowance(
        step, length, spent, steps=clock.steps, every=every, total=clock.total, free=free
    )
    return replace(found, episodes=MOST if known else WATCHED, watched=True) if watched else found


def step_seconds(agent: Agent, env: Env, seed: int, clock: Clock) -> float:
    """The time of a step of one of `env`'s environments with its action."""
    with untouched():
        playing = StepAgent(agent, env, seed)
        found: list[float] = []
        while len(found) <= STEPS and (len(found) < 2 or sum(found) < ENOUGH):
            began = time.perf_counter()
            playing.step(clock, explore=False)
            found.append(time.perf_counter() - began)
        return mean(found[1:]) / env.spec.num_envs  # the first one warms up


def _within(episodes: float, fewest: int) -> int:
    return int(min(MOST, max(fewest, episodes)))
