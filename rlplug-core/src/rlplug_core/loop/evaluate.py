"""Evaluation plays episodes in separate environments and changes neither training nor its random numbers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rlplug_core.arrays import to_host
from rlplug_core.clock import Clock
from rlplug_core.config.numbers import figures
from rlplug_core.loop.actor import StepAgent
from rlplug_core.loop.episode_stats import INFO, means
from rlplug_core.loop.info_columns import InfoColumns
from rlplug_core.plugins.env_base import complete
from rlplug_core.protocols import Agent, Env
from rlplug_core.seeds import preserve_generators
from rlplug_core.types import Array, Episode, Spec

#: Steps after which an episode is cut: thirty minutes of Atari at four frames per step.
LONGEST_EPISODE = 27_000
#: If the environment has no time limit, episodes are also cut at the length of the run, but not below this.
SHORT_RUN = 1_000


@dataclass(frozen=True, slots=True, repr=False)
class Evaluation:
    """The results of the episodes of an evaluation, one per environment and agent.

    Attributes:
        returns: undiscounted returns.
        lengths: numbers of steps.
        successes: whether each episode succeeded; None if it did not report success.
        infos: the numbers in the `info` of each last step.
        agents: with many agents in one world, the agent of each return.
        cut: the number of episodes that had not ended after `step_limit` steps; they count with their rewards so far.
        signals: for a learner that ranks evaluations, the sum of each of its signals over each episode; signals with
            several numbers are left out.
    """

    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    successes: tuple[bool | None, ...] = ()
    infos: tuple[Mapping[str, float], ...] = ()
    agents: tuple[str, ...] = ()
    cut: int = 0
    signals: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def __repr__(self) -> str:
        success = "" if self.success_rate is None else f", success rate {self.success_rate:.2f}"
        spread = f"{figures(self.mean)} ± {figures(self.std)}"
        return f"Evaluation(mean return {spread} over {self.episodes} episodes{success})"

    @property
    def episodes(self) -> int:
        return len(self.returns) // max(1, len(set(self.agents)))

    @property
    def by_agent(self) -> dict[str, float]:
        """Return the mean return of each agent, if there are many."""
        returns: dict[str, list[float]] = {}
        for agent, value in zip(self.agents, self.returns, strict=bool(self.agents)):
            returns.setdefault(agent, []).append(value)
        return {agent: float(np.mean(values)) for agent, values in returns.items()}

    @property
    def mean(self) -> float:
        return float(np.mean(self.returns))

    @property
    def zero_sum(self) -> bool:
        """Return whether the agents' returns sum to 0 in every episode, so that the mean return says nothing."""
        by_episode = np.reshape(self.returns, (self.episodes, -1))
        return by_episode.shape[1] > 1 and bool(
            np.allclose(by_episode.sum(1), 0, rtol=0, atol=1e-6)
        )

    @property
    def std(self) -> float:
        return float(np.std(self.returns))

    @property
    def sem(self) -> float | None:
        """Return the standard error of the mean; None for a single episode."""
        if self.episodes < 2:
            return None
        # The returns of agents in one episode are not independent, so each episode counts once.
        episode_means = np.reshape(self.returns, (self.episodes, -1)).mean(1)
        return float(np.std(episode_means, ddof=1) / np.sqrt(self.episodes))

    @property
    def median(self) -> float:
        return float(np.median(self.returns))

    @property
    def iqm(self) -> float:
        """Return the mean of the middle half of the returns (Agarwal et al., 2021, arXiv:2108.13264)."""
        cut = len(self.returns) // 4
        return float(np.mean(np.sort(self.returns)[cut : len(self.returns) - cut]))

    @property
    def minimum(self) -> float:
        return min(self.returns)

    @property
    def maximum(self) -> float:
        return max(self.returns)

    @property
    def length_mean(self) -> float:
        return float(np.mean(self.lengths))

    @property
    def success_rate(self) -> float | None:
        """Return the share of successful episodes among those that report success; None without such episodes.

        An episode that was cut counts as a failure if others report success.
        """
        reports = [success for success in self.successes if success is not None]
        return sum(reports) / len(reports) if reports else None

    @property
    def cut_message(self) -> str:
        """Return a sentence about the episodes that did not end; empty if all did."""
        if not self.cut:
            return ""
        return (
            f"{self.cut} of {len(self.returns)} episodes had not ended after {max(self.lengths):,} steps and count "
            f"with their rewards so far; the wrapper time-limit:steps=… gives them an end"
        )

    @property
    def info_means(self) -> dict[str, float]:
        """Return the mean of each number in `info` over the episodes that have it."""
        return means(self.infos)

    @property
    def signal_means(self) -> dict[str, float]:
        """Return the mean of each signal's sum over the episodes."""
        return {name: float(np.mean(totals)) for name, totals in self.signals.items()}


def step_limit(env: Env, clock: Clock) -> int:
    """Return the number of steps after which an unfinished episode is cut."""
    if 0 < env.spec.limit < LONGEST_EPISODE:
        return LONGEST_EPISODE
    return min(LONGEST_EPISODE, max(SHORT_RUN, clock.total))


class SignalTotals:
    """The sums of signals over the first episode of each environment."""

    def __init__(self, columns: InfoColumns | None) -> None:
        self.columns = columns
        self.totals: dict[str, Array] = {}

    def add(self, valid: Array, ended: Collection[int]) -> None:
        """Add the step that the environment just made.

        Args:
            valid: [N] the rows with a transition.
            ended: the rows that ended before this step.
        """
        if self.columns is None:
            return
        counts = to_host(valid).copy()
        counts[list(ended)] = False
        for name, column in self.columns.add_to({}, valid).items():
            if column.ndim == 1:
                self.totals[name] = self.totals.get(name, 0.0) + np.where(
                    counts, to_host(column), 0.0
                )

    def by_episode(self) -> dict[str, tuple[float, ...]]:
        """Return the sum of each signal in each row."""
        return {name: tuple(map(float, sums)) for name, sums in self.totals.items()}


def evaluate(
    agent: Agent,
    env: Env,
    seed: int,
    clock: Clock,
    explore: bool = False,
    signals: InfoColumns | None = None,
) -> Evaluation:
    """Play one episode in each environment; with several from each, short episodes would count more often.

    Args:
        agent: chooses the actions.
        env: N environments.
        seed: the seed of the environments.
        clock: for schedules of exploration.
        explore: act as in training at the clock's progress; False for greedy actions.
        signals: gathers signals from the environment.
    """
    with preserve_generators():
        num_envs = env.spec.num_envs
        player = StepAgent(agent, env, seed)
        ended: dict[int, Episode] = {}
        rewards = np.zeros(num_envs)
        sums = SignalTotals(signals)
        for step in range(step_limit(env, clock)):  # noqa: B007  # the length of a cut episode is read below
            player.step(clock, explore)
            rewards += to_host(player.now.reward)
            sums.add(player.now.valid, ended)
            for episode in player.now.episodes:
                ended.setdefault(episode.row, episode)
            if len(ended) == num_envs:
                break
        # Wrappers may change rewards; the environment itself knows the true return of an episode that was cut.
        true_returns = complete(env).running_returns()
        totals = rewards if true_returns is None else true_returns
        episodes = [
            ended.get(row) or Episode(row, float(totals[row]), step + 1) for row in range(num_envs)
        ]
    return _evaluation_of(episodes, ended, env.spec, sums.by_episode())


def _evaluation_of(
    episodes: Sequence[Episode],
    ended: Mapping[int, Episode],
    spec: Spec,
    signals: Mapping[str, tuple[float, ...]],
) -> Evaluation:
    """Return the evaluation of one episode for each row; those that are not in `ended` were cut."""
    successes: tuple[bool | None, ...] = ()
    if any(episode.success is not None for episode in ended.values()):
        # An episode that was cut had no success.
        successes = tuple(
            episode.success if episode.row in ended else False for episode in episodes
        )
    has_info = any(episode.info for episode in episodes)
    return Evaluation(
        tuple(episode.total for episode in episodes),
        tuple(episode.length for episode in episodes),
        successes,
        tuple(episode.info for episode in episodes) if has_info else (),
        agents=spec.agents,
        cut=len(episodes) - len(ended),
        signals=signals,
    )


def evaluation_metrics(result: Evaluation) -> dict[str, float]:
    """Return the numbers of an evaluation for a record."""
    metrics = {
        "eval/return_mean": result.mean,
        "eval/return_std": result.std,
        "eval/return_min": result.minimum,
        "eval/return_max": result.maximum,
        "eval/length_mean": result.length_mean,
    }
    if result.success_rate is not None:
        metrics["eval/success_rate"] = result.success_rate
    metrics |= {f"eval/{INFO}{name}": value for name, value in result.info_means.items()}
    metrics |= {f"eval/signal/{name}": mean for name, mean in result.signal_means.items()}
    metrics |= {f"eval/return_mean/{agent}": mean for agent, mean in result.by_agent.items()}
    return metrics
