"""PettingZoo's two interfaces as one: which agent acts next, and what follows its actions.

In a parallel environment all agents act at once. In one that goes agent by agent (AEC) an agent sees what followed its
action, with all rewards since, when its next turn comes or when its episode ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from rlplug_core.types import Space

#: An environment of PettingZoo's, without types, because it may not be installed.
World: TypeAlias = Any
#: The information of an agent besides its observation.
Info: TypeAlias = Mapping[str, object]


@dataclass(slots=True)
class News:
    """An observation for one agent, and the reward since its last action.

    `opens` says that the agent has not acted yet in this episode, so that no transition ends here.
    """

    obs: object
    reward: Any  # a number, if the world keeps to its interface
    terminated: bool
    truncated: bool
    info: Info
    opens: bool

    @classmethod
    def opening(cls, obs: object, info: Info) -> News:
        """Return the news that start an agent's episode."""
        return cls(obs, 0.0, terminated=False, truncated=False, info=info, opens=True)


class Game(Protocol):
    """One world with several agents, by either interface."""

    env: World

    @property
    def agents(self) -> tuple[str, ...]:
        """Return the names of all agents that the world may contain."""
        ...

    @property
    def turn(self) -> Iterable[str]:
        """Return the agents that act next; none after the end of an episode."""
        ...

    def infos(self) -> dict[str, Info]:
        """Reset, and return the infos by agent, also of agents that wait."""
        ...

    def reset(self, seed: int | None) -> dict[str, News]: ...

    def step(self, actions: Mapping[str, object]) -> dict[str, News]:
        """Take the actions of the agents in turn; return news by agent."""
        ...


class Parallel:
    """A `pettingzoo.ParallelEnv`: all agents in the world act at once."""

    def __init__(self, env: World) -> None:
        self.env = env
        self.turn: list[str] = []

    @property
    def agents(self) -> tuple[str, ...]:
        return tuple(self.env.possible_agents)

    def infos(self) -> dict[str, Info]:
        return {agent: news.info for agent, news in self.reset(0).items()}

    def reset(self, seed: int | None) -> dict[str, News]:
        obs, infos = self.env.reset(seed=seed)
        self.turn = list(self.env.agents)
        return {agent: News.opening(obs[agent], infos.get(agent, {})) for agent in self.turn}

    def step(self, actions: Mapping[str, object]) -> dict[str, News]:
        obs, rewards, terminated, truncated, infos = self.env.step(dict(actions))
        acting = self.turn
        remaining = set(self.env.agents)
        news = {}
        for agent in acting:
            has_terminated = bool(terminated[agent])
            is_cut = bool(truncated[agent]) or agent not in remaining
            news[agent] = News(
                obs[agent],
                rewards[agent],
                terminated=has_terminated,
                truncated=is_cut and not has_terminated,
                info=infos.get(agent, {}),
                opens=False,
            )
        for agent in self.env.agents:
            if agent not in news:  # a new agent in the world
                news[agent] = News.opening(obs[agent], infos.get(agent, {}))
        self.turn = [
            agent
            for agent in self.env.agents
            if not (news[agent].terminated or news[agent].truncated)
        ]
        return news


class Turns:
    """A `pettingzoo.AECEnv`: one agent after the other."""

    def __init__(self, env: World) -> None:
        self.env = env
        self.turn: list[str] = []
        self.acted: dict[str, bool] = {}

    @property
    def agents(self) -> tuple[str, ...]:
        return tuple(self.env.possible_agents)

    def infos(self) -> dict[str, Info]:
        self.reset(0)
        return dict(self.env.infos)

    def reset(self, seed: int | None) -> dict[str, News]:
        self.env.reset(seed=seed)
        self.acted = {}
        return self._collect_news()

    def step(self, actions: Mapping[str, object]) -> dict[str, News]:
        (agent,) = self.turn
        self.acted[agent] = True
        self.env.step(actions[agent])
        return self._collect_news()

    def _collect_news(self) -> dict[str, News]:
        """Collect the news of agents that have ended, and of the agent in turn."""
        news = {}
        self.turn = []
        while self.env.agents and not self.turn:
            agent = self.env.agent_selection
            obs, reward, terminated, truncated, info = self.env.last()
            news[agent] = News(
                obs,
                reward,
                terminated=bool(terminated),
                truncated=bool(truncated) and not terminated,
                info=info,
                opens=agent not in self.acted,
            )
            if terminated or truncated:
                self.env.step(None)
            else:
                self.turn = [agent]
        return news


def game_of(world: World) -> Game:
    """Return a world of many agents with one of PettingZoo's interfaces as a game; only AEC has `agent_selection`."""
    takes_turns = hasattr(type(world), "last") or hasattr(world, "agent_selection")
    return Turns(world) if takes_turns else Parallel(world)


def kinds_of(game: Game) -> dict[str, str]:
    """Return the first agent with the same spaces, by agent; empty if all have the same."""
    kinds: dict[str, str] = {}
    for agent in game.agents:
        agent_spaces = spaces_of(game, agent)
        kinds[agent] = next(
            (kind for kind in kinds.values() if spaces_of(game, kind) == agent_spaces), agent
        )
    return kinds if len(set(kinds.values())) > 1 else {}


def spaces_of(game: Game, agent: str) -> tuple[Space, Space]:
    return game.env.observation_space(agent), game.env.action_space(agent)
