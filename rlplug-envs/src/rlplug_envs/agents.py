"""`Agents`: worlds with many agents as a vector, with a row for each agent of each world.

Rows of one world are adjacent. A world is reset in the step that ends the last agent's episode; a row holds no
transition after its agent has gone, while it waits for its turn, and before it has come.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

import numpy as np
from gymnasium import spaces

from rlplug_core.errors import BadEnv
from rlplug_core.nets.actions import row_of
from rlplug_core.protocols import Show
from rlplug_core.types import MASK, Array, Episode, Obs, Space, Spec, State, Timestep, tree_map
from rlplug_envs.capture.decoder import restore
from rlplug_envs.capture.self_test import self_test
from rlplug_envs.games import Game, Info, News, Parallel, World, kinds_of, spaces_of
from rlplug_envs.observation_dtypes import LARGEST, LEAST, bad_float_message
from rlplug_envs.rows import (
    action_error,
    capture_rows,
    check_last,
    check_state,
    frame_rate,
    row_seed,
)
from rlplug_envs.shown import picture
from rlplug_envs.spaces import View, allocate, masked, put
from rlplug_envs.step_info import episode_numbers, success
from rlplug_envs.watch import NUMBERS, check_counted, check_info, check_reward, close_env

Make: TypeAlias = Callable[[], Game]


class Agents:
    """`num_envs` worlds with the same agents; `spec.num_envs` is the number of rows.

    Agents may differ in their spaces. Then observations and actions are Dicts with a part for each kind of agent, named
    after the first of that kind, and `spec.kinds` says which part belongs to a row. A row observes nothing in the other
    parts, and its actions in them are ignored.

    Args:
        make: builds one world; called once per world.
        num_envs: the number of worlds.
        id: the name in messages and in `spec.id`.
        inexact: why its state cannot be captured, "" if it can, None to test it with `capture.self_test`.

    Raises:
        BadEnv: the agents' spaces differ, and their masks are in `info`.
    """

    def __init__(
        self,
        make: Make,
        num_envs: int,
        id: str,
        inexact: str | None = None,
    ) -> None:
        if inexact is None:
            inexact = self_test(lambda: Agents(make, 1, id, ""))
        self._make = make
        self._games = [make() for _ in range(num_envs)]
        names = self._games[0].agents
        self.agents = names * num_envs
        self._kinds = kinds_of(self._games[0])
        self._masked_infos = _infos_with_masks(self._games[0])
        self.action_space, view = _make_view(self._games[0], self._kinds, self._masked_infos, id)
        self._view = view
        rows = len(self.agents)
        kinds = tuple(self._kinds[agent] for agent in self.agents) if self._kinds else ()
        turns = not isinstance(self._games[0], Parallel)
        self.spec = Spec(
            view.obs, view.action, rows, id, inexact, agents=self.agents, kinds=kinds, turns=turns
        )
        starts = range(0, rows, len(names))
        #: The row of each agent, by world.
        self._rows = [{name: row for row, name in enumerate(names, start)} for start in starts]
        self._allocate(rows)
        self._show: Show | None = None

    def _allocate(self, rows: int) -> None:
        """Make the arrays of rows, before the first reset."""
        self._obs = self._blank_obs()
        self._first = np.ones(rows, np.bool_)
        self._over = np.zeros(rows, np.bool_)
        self._totals = np.zeros(rows)
        self._lengths = np.zeros(rows, np.int64)
        #: The info of each row's last transition.
        self._infos: list[Info] = [{}] * rows
        #: None before the first reset, so that `step` refuses every action.
        self._action_shape: tuple[int, ...] | None = None

    def reset(self, seed: int) -> Timestep:
        """Start every world from its own seed, derived from `seed`. No row holds a transition yet."""
        self._action_shape = self._view.action_shape(len(self.agents))
        self._obs = self._blank_obs()
        for number, game in enumerate(self._games):
            self._start_world(number, game.reset(row_seed(seed, number)))
        no_rows = np.zeros(len(self.agents), np.bool_)
        reward = np.zeros(len(self.agents), np.float32)
        first = self._first.copy()
        return Timestep.opening(self._obs, reward, first, no_rows, self._acting_agents())

    def step(self, action: Array) -> Timestep:
        """Step every world with the actions [N, ...] of the agents in turn; reset worlds without agents."""
        if action.shape != self._action_shape:
            raise action_error(self.spec.id, action, self._action_shape)
        choices = self._view.translate(action)
        self._obs = tree_map(np.copy, self._obs)
        episodes = list[Episode]()
        timestep = self._without_transitions(episodes)
        for number in range(len(self._games)):
            self._step_world(number, choices, timestep, episodes)
        finished = [number for number, game in enumerate(self._games) if not game.turn]
        if finished:
            self._reset_worlds(timestep, finished, episodes)
        timestep.is_first = self._first.copy()
        timestep.turn = self._acting_agents()
        timestep.count = int(timestep.valid.sum())
        timestep.ended = bool((timestep.terminated | timestep.truncated).any())
        return timestep

    def _without_transitions(self, episodes: list[Episode]) -> Timestep:
        """Return a timestep of the current observations, in which no row has a transition yet."""
        rows = len(self.agents)
        return Timestep(
            obs=self._obs,
            final_obs=self._obs,
            reward=np.zeros(rows, np.float32),
            terminated=np.zeros(rows, np.bool_),
            truncated=np.zeros(rows, np.bool_),
            is_first=self._first,
            valid=np.zeros(rows, np.bool_),
            episodes=episodes,
            ended=False,
            count=0,
        )

    def _step_world(
        self,
        number: int,
        choices: Any,
        timestep: Timestep,
        episodes: list[Episode],
    ) -> None:
        """Step one world with the choices of its agents in turn, and write their news into `timestep`."""
        game = self._games[number]
        rows = self._rows[number]
        actions = {}
        for agent in game.turn:
            choice = row_of(self._part_of_agent(choices, agent), rows[agent])
            # Environments expect Python numbers.
            actions[agent] = choice.item() if isinstance(choice, np.generic) else choice
        for agent, news in game.step(actions).items():
            self._store_news(timestep, rows[agent], news, episodes)
        self._show_frame(number, False)

    def _blank_obs(self) -> Obs:
        """Return the observations of rows before their first one; every action is allowed."""
        obs = allocate(self._view.obs, len(self.agents))
        for agent in set(self.agents):
            agent_obs = self._part_of_agent(obs, agent)
            if isinstance(agent_obs, dict) and MASK in agent_obs:
                agent_obs[MASK][:] = 1
        return obs

    def _store_news(
        self,
        timestep: Timestep,
        row: int,
        news: News,
        episodes: list[Episode],
    ) -> None:
        """Store the news of an agent, and its episode if it ended."""
        if news.reward.__class__ not in NUMBERS or not LEAST <= news.reward <= LARGEST:
            news.reward = check_reward(
                self._describe_step(row, news), news.reward, news.terminated, news.truncated
            )
        if news.opens and self._over[row]:  # the agent returns and starts a new episode
            self._over[row] = False
            self._totals[row] = 0.0
            self._lengths[row] = 0
        self._totals[row] += news.reward
        ends = news.terminated or news.truncated
        self._write(row, news, ends)
        self._first[row] = news.opens
        if not news.opens:
            timestep.valid[row] = True
            timestep.reward[row] = news.reward
            timestep.terminated[row] = news.terminated
            timestep.truncated[row] = news.truncated
            self._lengths[row] += 1
            self._infos[row] = news.info
        if ends and not self._over[row]:
            episodes.append(self._end_episode(row, news.info))

    def _describe_step(self, row: int, news: News) -> str:
        step = self._lengths[row] + (not news.opens)
        return f"{self.spec.id}, agent {self.agents[row]}, step {step} of its episode"

    def _end_episode(self, row: int, info: Mapping[str, object]) -> Episode:
        """Return the episode of a row, and mark it as over."""
        self._over[row] = True
        return Episode(
            row,
            float(self._totals[row]),
            int(self._lengths[row]),
            success=success(info),
            info=episode_numbers(info),
            agent=self.agents[row],
        )

    def _reset_worlds(
        self,
        timestep: Timestep,
        finished: list[int],
        episodes: list[Episode],
    ) -> None:
        """Reset worlds without agents; an agent that never appeared has an episode of length 0."""
        timestep.final_obs = tree_map(np.copy, self._obs)
        for number in finished:
            episodes += [
                self._end_episode(row, {})
                for row in self._rows[number].values()
                if not self._over[row]
            ]
        check_last(timestep.final_obs, self.spec.id)
        # Copies, because a reset may change the dictionaries of the world.
        self._infos = [dict(info) for info in self._infos]
        for number in finished:
            self._start_world(number, self._games[number].reset(None))

    def _start_world(self, number: int, first_news: dict[str, News]) -> None:
        """Start the episodes of a world with the first observations of its agents."""
        rows = list(self._rows[number].values())
        self._first[rows] = True
        self._over[rows] = False
        self._totals[rows] = 0.0
        self._lengths[rows] = 0
        for agent, news in first_news.items():
            row = self._rows[number][agent]
            self._totals[row] += news.reward
            self._write(row, news, False)
        self._show_frame(number, True)

    def _write(self, row: int, news: News, ended: bool) -> None:
        agent = self.agents[row]
        check_info(self._describe_step(row, news), news.info, "reset" if news.opens else "step")
        agent_obs = self._part_of_agent(self._obs, agent)
        put(self._view.body(agent_obs), row, news.obs, lambda _: self._describe_step(row, news))
        written = tree_map(lambda part: part[row : row + 1], agent_obs)
        if problem := bad_float_message(written):
            raise BadEnv(f"{self._describe_step(row, news)}: {problem}")
        space = self._part_of_agent(self._view.obs, agent)
        check_counted(lambda _: self._describe_step(row, news), space, written)
        if self._view.masked:
            maskless = ended or agent not in self._masked_infos
            agent_obs[MASK][row] = self._view.mask(news.info, maskless)
        if isinstance(agent_obs, dict) and MASK in agent_obs:
            if not agent_obs[MASK][row].any():
                # The agent has no action left, and its next one will not be used.
                agent_obs[MASK][row] = 1
        elif MASK in news.info:
            raise BadEnv(
                f"{self.spec.id}: the info of {agent} has an '{MASK}', but after the first reset no info had one; "
                "give it in the info of every agent's reset, or put it into the observation"
            )

    def _part_of_agent(self, tree: Any, agent: str) -> Any:
        """Return the part of observations, actions or a space that belongs to an agent."""
        return tree[self._kinds[agent]] if self._kinds else tree

    def inside_worlds(self, wrap: Callable[[World], World]) -> Agents:
        """Return the same worlds, each in `wrap`; they replace this vector before the first reset."""
        make = self._make
        kind = cast("Callable[[World], Game]", type(self._games[0]))
        worlds = iter([game.env for game in self._games])
        id = self.spec.id
        inexact = self.spec.inexact or self_test(
            lambda: Agents(lambda: kind(wrap(make().env)), 1, id, "")
        )
        wrapped = Agents(lambda: kind(wrap(next(worlds))), len(self._games), id, inexact)
        wrapped._make = lambda: kind(wrap(make().env))
        return wrapped

    def _acting_agents(self) -> Array | None:
        """Return a mask [N] of the agents that act next; None for all."""
        if not self.spec.turns:
            return None
        return np.array(
            [
                agent in game.turn
                for game, rows_by_agent in zip(self._games, self._rows, strict=True)
                for agent in rows_by_agent
            ]
        )

    def _show_frame(self, number: int, opens: bool) -> None:
        if self._show is not None and number == 0:
            self._show(opens, lambda: picture(self._games[0].env.render(), self.spec.id))

    def show(self, show: Show) -> None:
        """Show every frame of the first world; called before the first reset."""
        self._show = show

    @property
    def fps(self) -> float:
        """Return the frames per second of the world's metadata; 30 by default."""
        return frame_rate(self._games[0].env.metadata)

    def info(self, key: str) -> list[object]:
        """Return the value of `key` in the `info` of each agent's last transition; None if it has no such key."""
        return [info.get(key) for info in self._infos]

    def info_names(self) -> list[str]:
        """Return the keys of these infos, of all agents together."""
        return sorted({str(key) for info in self._infos for key in info})

    def running_returns(self) -> Array:
        """Return the sum of rewards of each running episode [N]."""
        return self._totals.copy()

    def translate(self, action: Array) -> object:
        """Return canonical actions [N, ...] in the form that the agents accept."""
        return self._view.translate(action)

    def state_dict(self) -> State:
        """Return the worlds' states and running episodes; for an inexact environment only the reason."""
        state = capture_rows("games", self._games, self.spec)
        if "inexact" in state:
            return state
        return {
            **state,
            "obs": tree_map(np.copy, self._obs),
            **{name: array.copy() for name, array in self._arrays().items()},
        }

    def load_state_dict(self, state: State) -> None:
        """Continue from a saved state; works on a fresh environment, and the next call is `step`.

        Raises:
            BadEnv: the state was not captured, or has another number of rows.
        """
        check_state(state, len(state.get("lengths", ())), self.spec)
        self.reset(0)  # environments make some of their attributes in their first reset
        restore(self._games, state["games"])
        self._obs = tree_map(np.array, state["obs"])
        for name, array in self._arrays().items():
            array[:] = state[name]

    def _arrays(self) -> dict[str, Array]:
        return {
            "first": self._first,
            "over": self._over,
            "totals": self._totals,
            "lengths": self._lengths,
        }

    def close(self) -> None:
        """Close every world, even if the `close` of one raises."""
        for game in self._games:
            close_env(game.env.close, self.spec.id)


def _infos_with_masks(game: Game) -> dict[str, Info]:
    """Return the first infos that have masks, by agent, of agents without a mask in their observations."""
    return {
        agent: info
        for agent, info in game.infos().items()
        if MASK in info and not masked(game.env.observation_space(agent))
    }


def _make_view(
    game: Game,
    kinds: Mapping[str, str],
    masked_infos: Mapping[str, Info],
    id: str,
) -> tuple[Space, View]:
    """Return the action space, with a part for each kind of agent, and how agents see the world.

    Raises:
        BadEnv: their spaces differ, and their masks are in `info`.
    """
    if not kinds:
        obs, action = spaces_of(game, game.agents[0])
        return action, View(obs, action, next(iter(masked_infos.values()), {}), id)
    if masked_infos:
        raise BadEnv(
            f"{id}: its agents' spaces differ, so put '{MASK}' into the observation instead of info"
        )
    pairs = {kind: spaces_of(game, kind) for kind in dict.fromkeys(kinds.values())}
    actions = spaces.Dict([(kind, action) for kind, (_, action) in pairs.items()])
    return actions, View(
        spaces.Dict({kind: obs for kind, (obs, _) in pairs.items()}), actions, {}, id
    )
