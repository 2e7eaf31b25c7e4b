"""A plugin that inherits nothing from rlplug, checked against the protocols by `nox -s types`.

The lines with an ignored error must stay errors, because strict mode reports unused ignores. The same classes are
trained in `tests/core/test_inherits_nothing.py`, so code that the checker accepts also runs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium.spaces as spaces
import numpy as np

from rlplug_core.clock import Clock
from rlplug_core.config.options import Config
from rlplug_core.context import Context
from rlplug_core.protocols import Agent, Buffer, Env, Learner, Provider, Stateful, SupportsFinish, Wrapper
from rlplug_core.types import Act, Array, Episode, Obs, RecurrentState, Result, Spec, State, Step, Timestep


class Corridor:
    """Walk right `length` times; each step right has reward 1."""

    length = 4

    def __init__(self, num_envs: int) -> None:
        self.spec = Spec(spaces.Box(0.0, 1.0, (1,)), spaces.Discrete(2), num_envs, "corridor")
        self.position = np.zeros(num_envs, dtype=np.int64)
        self.total = np.zeros(num_envs)

    def reset(self, seed: int) -> Timestep:
        self.position[:] = 0
        self.total[:] = 0
        num_envs = self.spec.num_envs
        return self._timestep(
            self._obs(), np.zeros(num_envs, np.float32), np.zeros(num_envs, bool), np.ones(num_envs, bool), []
        )

    def step(self, action: Array) -> Timestep:
        right = action == 1
        self.position += right
        self.total += right
        final = self._obs()
        over = self.position == self.length
        episodes = [Episode(int(row), float(self.total[row]), self.length) for row in np.flatnonzero(over)]
        self.position[over] = 0
        self.total[over] = 0
        return self._timestep(final, right.astype(np.float32), over, over.copy(), episodes)

    def close(self) -> None:
        pass

    def state_dict(self) -> State:
        return {"position": self.position.copy(), "total": self.total.copy()}

    def load_state_dict(self, state: State) -> None:
        self.position[:] = state["position"]
        self.total[:] = state["total"]

    def _obs(self) -> Array:
        return (self.position / self.length).astype(np.float32)[:, None]

    def _timestep(
        self, final_obs: Array, reward: Array, over: Array, is_first: Array, episodes: list[Episode]
    ) -> Timestep:
        num_envs = self.spec.num_envs
        never, always = np.zeros(num_envs, bool), np.ones(num_envs, bool)
        obs = self._obs() if over.any() else final_obs
        return Timestep(obs, final_obs, reward, over, never, is_first, always, episodes, bool(over.any()), num_envs)


class Corridors:
    """The provider of corridors."""

    def ids(self) -> list[str]:
        return ["corridor"]

    def make(self, id: str, num_envs: int) -> Corridor:
        return Corridor(num_envs)


@dataclass
class Tally:
    """The batch of the bandit: the count and the total reward of each action."""

    count: Array
    reward: Array


class TallyBuffer:
    """Yields one tally per vector step."""

    def __init__(self) -> None:
        self.tallies: list[Tally] = []

    def add(self, step: Step, source: int = 0) -> None:
        chosen = np.eye(2)[step.action] * step.valid[:, None]
        self.tallies.append(Tally(chosen.sum(0), (chosen * step.reward[:, None]).sum(0)))

    def batches(self, clock: Clock) -> Iterator[Tally]:
        while self.tallies:
            yield self.tallies.pop(0)

    def feedback(self, batch: Tally, result: Result) -> None:
        pass

    def state_dict(self) -> State:
        return {"tallies": [[tally.count, tally.reward] for tally in self.tallies]}

    def load_state_dict(self, state: State) -> None:
        self.tallies = [Tally(count, reward) for count, reward in state["tallies"]]


class BanditAgent:
    """Takes the action with the highest mean reward, or a random one with probability 0.2."""

    def __init__(self, values: Array, seed: int) -> None:
        self.values = values
        self.generator = np.random.default_rng(seed)

    def weights(self) -> State:
        return {"values": self.values}

    def initial(self, num_envs: int) -> RecurrentState:
        return None

    def act(
        self, obs: Obs, is_first: Array, recurrent_state: RecurrentState, clock: Clock, explore: bool = True
    ) -> Act:
        num_envs = len(is_first)
        best = np.full(num_envs, self.values.argmax())
        if explore:
            best = np.where(self.generator.random(num_envs) < 0.2, self.generator.integers(2, size=num_envs), best)
        return Act(best)

    def state_dict(self) -> State:
        return {"generator": self.generator.bit_generator.state}

    def load_state_dict(self, state: State) -> None:
        self.generator.bit_generator.state = state["generator"]


@dataclass(frozen=True)
class DoubledConfig(Config):
    """Options of the wrapper."""

    factor: float = 2.0  # factor of rewards


class Doubled:
    """A wrapper that multiplies rewards."""

    Config = DoubledConfig

    def __init__(self, env: Env, config: DoubledConfig) -> None:
        self.env = env
        self.spec = env.spec
        self.factor = config.factor

    def reset(self, seed: int) -> Timestep:
        return self.env.reset(seed)

    def step(self, action: Array) -> Timestep:
        now = self.env.step(action)
        return dataclasses.replace(now, reward=now.reward * np.float32(self.factor))

    def close(self) -> None:
        self.env.close()

    def state_dict(self) -> State:
        return self.env.state_dict()

    def load_state_dict(self, state: State) -> None:
        self.env.load_state_dict(state)


@dataclass(frozen=True)
class BanditConfig(Config):
    """Options of the bandit."""

    learning_rate: float = 0.1  # step size


class Bandit:
    """Learns the mean reward of each action."""

    Config = BanditConfig
    runners: ClassVar[tuple[str, ...]] = ("sync",)

    def __init__(self, spec: Spec, config: BanditConfig, context: Context) -> None:
        self.config = config
        self.context = context
        self.values = np.zeros(2)

    def agent(self, rank: int = 0, ranks: int = 1) -> BanditAgent:
        return BanditAgent(self.values, self.context.seeds.child("agent", rank).integer())

    def buffer(self) -> TallyBuffer:
        return TallyBuffer()

    def update(self, batch: Tally, clock: Clock) -> Result:
        self.values += self.config.learning_rate * (batch.reward - batch.count * self.values)
        return Result({"value": float(self.values.max())})

    def finish(self, clock: Clock) -> None:
        pass

    def state_dict(self) -> State:
        return {"values": self.values.copy()}

    def load_state_dict(self, state: State) -> None:
        self.values[:] = state["values"]


class OtherBuffer(TallyBuffer):
    """A buffer of numbers instead of tallies."""

    def batches(self, clock: Clock) -> Iterator[float]:  # type: ignore[override]
        yield 0.0

    def feedback(self, batch: float, result: Result) -> None:  # type: ignore[override]
        pass


class Mismatched(Bandit):
    """A learner of tallies with a buffer of numbers."""

    def buffer(self) -> OtherBuffer:
        return OtherBuffer()


class AlwaysExplores(BanditAgent):
    """An agent without the argument `explore` of `act`."""

    def act(self, obs: Obs, is_first: Array, recurrent_state: RecurrentState, clock: Clock) -> Act:  # type: ignore[override]
        return Act(np.zeros(len(is_first)))


env: Env = Corridor(2)
provider: Callable[[], Provider] = Corridors
wrapper: Wrapper = Doubled
agent: Agent = BanditAgent(np.zeros(2), 0)
buffer: Buffer[Tally] = TallyBuffer()
stateful: Stateful = Corridor(1)


def accepts(spec: Spec, context: Context) -> tuple[Any, ...]:
    """Assignments that must be accepted."""
    learner: Learner[Tally] = Bandit(spec, BanditConfig(), context)
    constructor: Callable[[Spec, BanditConfig, Context], Learner[Tally]] = Bandit
    finisher: SupportsFinish = Bandit(spec, BanditConfig(), context)
    paired: Buffer[Tally] = learner.buffer()
    return constructor, finisher, paired


def refuses(spec: Spec, context: Context) -> tuple[Any, ...]:
    """Assignments that must be errors, which strict mode checks by their ignores."""
    wrong_buffer: Buffer[Tally] = OtherBuffer()  # type: ignore[assignment]
    wrong_pair: Learner[Tally] = Mismatched(spec, BanditConfig(), context)  # type: ignore[assignment]
    other: Learner[float] = Bandit(spec, BanditConfig(), context)  # type: ignore[assignment]
    no_explore: Agent = AlwaysExplores(np.zeros(2), 0)  # type: ignore[assignment]
    no_env: Env = Corridors()  # type: ignore[assignment]
    no_wrapper: Wrapper = Corridor  # type: ignore[assignment]
    return wrong_buffer, wrong_pair, other, no_explore, no_env, no_wrapper
