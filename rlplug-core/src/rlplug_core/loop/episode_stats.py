"""The episodes that ended lately: their means, and their columns in the journal."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rlplug_core.errors import plain, warn

if TYPE_CHECKING:
    from rlplug_core.types import Episode, State

#: Prefix of the names of numbers in an episode's last `info`.
INFO = "info/"
#: The most names of `info` that a run records: each is a metric, and an environment may make new ones without end.
MOST_NAMES = 100


class EpisodeStats:
    """The last `window` episodes of a run."""

    def __init__(self, window: int = 100) -> None:
        self.window = window
        self.returns: deque[float] = deque(maxlen=window)
        self.lengths: deque[int] = deque(maxlen=window)
        #: Whether each succeeded, and the numbers in its last `info`.
        self.outcomes: deque[tuple[bool | None, Mapping[str, float]]] = deque(maxlen=window)
        #: The returns of each agent, if there are many.
        self.by_agent: dict[str, deque[float]] = {}
        #: The names of `info` that this run records, in the order of their first episode.
        self.names: dict[str, None] = {}
        self.has_warned = False

    def add(self, episode: Episode) -> Episode:
        """Count an episode; return it with the names of `info` that the run records."""
        episode = self._with_known_names(episode)
        self.returns.append(episode.total)
        self.lengths.append(episode.length)
        self.outcomes.append((episode.success, episode.info))
        if episode.agent:
            self.by_agent.setdefault(episode.agent, deque(maxlen=self.window)).append(episode.total)
        return episode

    def _with_known_names(self, episode: Episode) -> Episode:
        new = [name for name in episode.info if name not in self.names]
        if not new:
            return episode
        room = MOST_NAMES - len(self.names)
        self.names.update(dict.fromkeys(new[:room]))
        if len(new) <= room:
            return episode
        if not self.has_warned:
            self.has_warned = True
            warn(
                f"the environment's info has more than {MOST_NAMES} names of numbers; "
                f"'{plain(new[room])}' and later ones are not recorded"
            )
        known = {name: value for name, value in episode.info.items() if name in self.names}
        return replace(episode, info=known)

    @property
    def return_mean(self) -> float | None:
        return sum(self.returns) / len(self.returns) if self.returns else None

    def metrics(self) -> dict[str, float]:
        """Return means over the episodes; a number in `info` is averaged over the episodes that have it.

        Also returns the population standard deviation, the minimum and the maximum of the returns.
        """
        mean = self.return_mean
        if mean is None:
            return {}
        distances = [total - mean for total in self.returns]
        numbers = {
            "rollout/return_mean": mean,
            "rollout/return_std": math.hypot(*distances) / math.sqrt(len(distances)),
            "rollout/return_min": min(self.returns),
            "rollout/return_max": max(self.returns),
            "rollout/length_mean": sum(self.lengths) / len(self.lengths),
        }
        for agent, returns in self.by_agent.items():
            numbers[f"rollout/return_mean/{agent}"] = sum(returns) / len(returns)
        successes = [success for success, _ in self.outcomes if success is not None]
        if successes:
            numbers["rollout/success_rate"] = sum(successes) / len(successes)
        infos = means([info for _, info in self.outcomes])
        return numbers | {INFO + name: value for name, value in infos.items()}

    def state_dict(self) -> State:
        by_agent = {agent: list(returns) for agent, returns in self.by_agent.items()}
        return {
            "returns": list(self.returns),
            "lengths": list(self.lengths),
            "said": [[success, dict(info)] for success, info in self.outcomes],
            "by_agent": by_agent,
            "names": list(self.names),
        }

    def load_state_dict(self, state: State) -> None:
        self.returns.extend(state["returns"])
        self.lengths.extend(state["lengths"])
        self.outcomes.extend((success, info) for success, info in state["said"])
        self.by_agent = {
            agent: deque(returns, self.window) for agent, returns in state["by_agent"].items()
        }
        self.names = dict.fromkeys(state.get("names", ()))


def means(infos: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each number over those that have it."""
    by_name: dict[str, list[float]] = {}
    for info in infos:
        for name, value in info.items():
            by_name.setdefault(name, []).append(value)
    return {name: sum(values) / len(values) for name, values in by_name.items()}


def columns(episodes: Sequence[tuple[int, int, Episode]]) -> dict[str, list[float | None]]:
    """Return episodes (steps, worker, episode) as columns of one length; None if an `info` lacks a number."""
    finished = [episode for _, _, episode in episodes]
    names = dict.fromkeys(name for episode in finished for name in episode.info)
    return {
        "steps": [steps for steps, _, _ in episodes],
        "workers": [worker for _, worker, _ in episodes],
        "returns": [episode.total for episode in finished],
        "lengths": [episode.length for episode in finished],
        **{INFO + name: [episode.info.get(name) for episode in finished] for name in names},
    }
