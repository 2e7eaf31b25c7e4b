"""Every interface of rlplug on one page.

Data flows one way, `Env -> Actor -> Buffer -> Learner -> Agent`; only actions, weights and priorities go back:

    env = provider.make("CartPole-v1", num_envs=8)
    learner = A2C(env.spec, A2CConfig(), context)
    agent, buffer = learner.agent(), learner.buffer()
    actor = Actor(env, learner, agent, buffer, clock)
    actor.reset(seed)
    while not clock.done:
        step = actor.step()
        actor.buffer.add(step)
        for batch in actor.buffer.batches(clock):
            actor.buffer.feedback(batch, actor.learner.update(batch, clock))

All protocols are structural: a plugin that inherits nothing is as good as one that does. Provisional until 1.0.
A published protocol never gains a method. Further abilities are the separate `SupportsX` protocols at the end; those of
environments and wrappers are methods with defaults, in `plugins.env_base.EnvBase`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar, runtime_checkable

from torch import nn

from rlplug_core.clock import Clock, Steering
from rlplug_core.types import (
    Act,
    Array,
    Chunk,
    Episode,
    Obs,
    RecurrentState,
    Result,
    Spec,
    State,
    Step,
    Timestep,
)

B = TypeVar("B")
#: Called with whether an episode opens, and what gives the frame [H, W, 3] uint8 to be seen now, if it is wanted.
Show: TypeAlias = Callable[[bool, Callable[[], Array]], None]


@runtime_checkable
class Stateful(Protocol):
    """Holds state that a checkpoint must carry; `load_state_dict(state_dict())` changes nothing."""

    def state_dict(self) -> State: ...
    def load_state_dict(self, state: State, /) -> Any: ...


@runtime_checkable
class Env(Stateful, Protocol):
    """`num_envs` environments behind one interface; a single environment is one of them."""

    @property
    def spec(self) -> Spec: ...
    def reset(self, seed: int) -> Timestep: ...
    def step(self, action: Array) -> Timestep: ...
    def close(self) -> None: ...


@runtime_checkable
class Agent(Stateful, Protocol):
    """Acts. Its state is generators and noise, never weights; those are shared with the learner."""

    def weights(self) -> State:
        """Live views of what travels to actors and evaluators."""
        ...

    def initial(self, num_envs: int) -> RecurrentState:
        """The memory with which `num_envs` environments begin."""
        ...

    def act(
        self,
        obs: Obs,
        is_first: Array,
        recurrent_state: RecurrentState,
        clock: Clock,
        explore: bool = True,
    ) -> Act:
        """Answer the observations of all N environments.

        Nobody resets the memory: where `is_first` is set an episode opens, and nothing in the answer for such a row,
        what will be remembered included, may depend on the row's `recurrent_state`. Losses go by `Rollout.is_first` in
        the same way.

        Args:
            obs: [N, ...] what the environments show.
            is_first: [N] bool, `obs` opens an episode.
            recurrent_state: [N, ...] what the last answer said will be remembered; None without a memory.
            clock: for schedules of exploration.
            explore: False for the greedy action, which draws no random number unless the agent says so.

        Returns:
            The actions [N, ...], what will be remembered, and what only the agent knows of them.
        """
        ...


@runtime_checkable
class Buffer(Stateful, Protocol[B]):
    """Takes steps, hands out the batches that are due; a batch is valid until the next batch or `add`."""

    def add(self, step: Step, source: int = 0) -> None:
        """Store a step; `source` says which actor it came from, whose rows are never mixed with another's."""
        ...

    def batches(self, clock: Clock) -> Iterable[B]:
        """The batches due now; what is owed is an integer in the state, so stopping between two loses none."""
        ...

    def feedback(self, batch: B, result: Result) -> None: ...


@runtime_checkable
class Learner(Stateful, Protocol[B]):
    """The algorithm: built as `cls(spec, config, context)`."""

    #: The runners it is sound under, best first.
    runners: ClassVar[tuple[str, ...]]

    def agent(self, rank: int = 0, ranks: int = 1) -> Agent:
        """An agent on these parameters; repeatable: agents never share generators, noise or memory."""
        ...

    def buffer(self) -> Buffer[B]: ...
    def update(self, batch: B, clock: Clock) -> Result: ...


#: A learner and a buffer of some kind of batch: what a runner passes between them is theirs.
AnyLearner: TypeAlias = Learner[Any]
AnyBuffer: TypeAlias = Buffer[Any]


class Link(Protocol):
    """The learner's end of what connects it with decoupled actors."""

    def publish(self, weights: State) -> None:
        """Make these the actors' next version of the weights; whatever was received before is done with."""
        ...

    def receive(self) -> list[Chunk]:
        """Chunks to learn from, perhaps none; their arrays are valid until the next `publish`."""
        ...


class ActorLink(Protocol):
    """The actor's end of a link."""

    def pull(self, agent: Agent, seen: int) -> tuple[int, Clock]:
        """Wait until there is a chunk to be acted, put the newest weights into the agent; their version, the time.

        `seen` is the version that the agent has.
        """
        ...

    def send(self, chunk: Chunk) -> None: ...


@runtime_checkable
class Provider(Protocol):
    """The target of an `rlplug.envs` entry point: a class without constructor arguments that makes environments."""

    def ids(self) -> Iterable[str]:
        """The ids it can make, as the user would type them; used for suggestions."""
        ...

    def make(self, id: str, num_envs: int) -> Env:
        """Raises `errors.UnknownEnv` for an id it does not know, `errors.MissingPackage` where a package is absent."""
        ...


class Wrapper(Protocol):
    """The target of an `rlplug.wrappers` entry point: a class, built over an environment with its `Config`.

    Episode statistics come from below it, so reported returns are untransformed. `transform.Transform` is a base to
    start from.
    """

    def __call__(self, env: Env, config: Any, /) -> Env: ...


@runtime_checkable
class SupportsAdopt(Protocol):
    """A provider that can put a foreign class of single environments behind a vector."""

    def adopt(self, make: Callable[[], Any], num_envs: int, id: str) -> Env:
        """`num_envs` environments from `make`, which returns a new `gymnasium.Env`."""
        ...


@runtime_checkable
class SupportsAdoptWorlds(Protocol):
    """A provider that can put foreign worlds of many agents behind our interface."""

    def adopt_worlds(self, make: Callable[[], Any], num_envs: int, id: str) -> Env:
        """`num_envs` worlds from `make`, which returns a new `pettingzoo.ParallelEnv` or `pettingzoo.AECEnv`."""
        ...

    def hold_world(self, world: Any, id: str) -> Env:
        """A world that exists already; it stays open."""
        ...


@runtime_checkable
class SupportsAdoptVector(Protocol):
    """A provider that can put a foreign vector of environments behind our interface."""

    def adopt_vector(self, make: Callable[[], Any], id: str) -> Env:
        """The vector from `make`, which returns a new `gymnasium.vector.VectorEnv`."""
        ...


@runtime_checkable
class SupportsHold(Protocol):
    """A provider that can put a foreign environment that exists already behind our interface."""

    def hold(self, env: Any, id: str) -> Env:
        """A `gymnasium.Env` or a `gymnasium.vector.VectorEnv` as it is; `close` leaves it open, it is its owner's."""
        ...


@runtime_checkable
class SupportsArguments(Protocol):
    """A provider whose environments take keyword arguments."""

    def with_arguments(self, arguments: Mapping[str, object]) -> Provider:
        """A provider of the same environments, made with these arguments.

        It raises `errors.UsageError` where an environment has no such argument.
        """
        ...


@runtime_checkable
class SupportsFinish(Protocol):
    """A learner that has something left to do before the final checkpoint."""

    def finish(self, clock: Clock) -> None: ...


@runtime_checkable
class SupportsRender(Protocol):
    """A provider whose environments can be watched."""

    def make_shown(self, id: str, render_mode: str) -> Env:
        """One environment, `SupportsShow`, made with Gymnasium's `render_mode`: `human` or `rgb_array`."""
        ...


@runtime_checkable
class SupportsExport(Protocol):
    """An agent that can be written down without its class."""

    def exported(self) -> nn.Module:
        """A module from observations [B, ...] to the best actions [B, ...]; it draws no random numbers."""
        ...


@runtime_checkable
class SupportsPart(Protocol):
    """Environments that can be some of a larger vector's, seeded as they are there."""

    def part(self, first: int) -> None:
        """Say that its first environment is number `first` of the whole; called before the first reset."""
        ...


@runtime_checkable
class SupportsEvaluation(Protocol):
    """A wrapper that is another one, or none, around environments that only evaluate."""

    def in_evaluation(self, config: Any) -> object:
        """The options it has there; None leaves it out. Spaces must be the same."""
        ...


@runtime_checkable
class SupportsRestart(Protocol):
    """A buffer that can be told that its rows begin anew: the steps it holds are not followed by those to come."""

    def restart(self) -> None: ...


@runtime_checkable
class SupportsSources(Buffer[Any], Protocol):
    """A buffer that keeps the rows of several actors apart, by the `source` of each step."""

    def restart_source(self, source: int) -> None:
        """Begin the rows of one source anew: what it sends next does not follow what it sent last."""
        ...


class Evaluated(Protocol):
    """The result of an evaluation: undiscounted returns and lengths of its episodes, and what they said."""

    @property
    def returns(self) -> Sequence[float]: ...
    @property
    def lengths(self) -> Sequence[int]: ...
    @property
    def mean(self) -> float: ...
    @property
    def success_rate(self) -> float | None: ...
    @property
    def info_means(self) -> Mapping[str, float]: ...


@runtime_checkable
class Controller(Stateful, Protocol):
    """Steers a run: the target of an `rlplug.controllers` entry point, a class, built with its `Config`.

    It is told what happened by the abilities below, and lives in the run's own process. Its state is saved with the
    run. `reason` says why it stopped the run; it is empty as long as it has not.
    """

    @property
    def reason(self) -> str: ...


@runtime_checkable
class SupportsEvaluated(Protocol):
    """A controller that is told of evaluations."""

    def evaluated(self, evaluation: Evaluated, clock: Steering) -> None: ...


@runtime_checkable
class SupportsEnded(Protocol):
    """A controller that is told of training episodes, right after the vector step in which they ended."""

    def ended(self, episodes: Sequence[Episode], clock: Steering) -> None: ...


@runtime_checkable
class SupportsSettings(Protocol):
    """A controller that sets attributes of the training environments, such as a curriculum's level."""

    def settings(self) -> Mapping[str, object]:
        """Attributes by name: numbers, texts, booleans, or lists of them; a function of its state alone.

        It is asked before the first episode, and again after it was told something. Where a value has changed, the
        environments have it from each row's next episode on.
        """
        ...


__all__ = [
    "ActorLink",
    "Agent",
    "AnyBuffer",
    "AnyLearner",
    "Buffer",
    "Controller",
    "Env",
    "Evaluated",
    "Learner",
    "Link",
    "Provider",
    "Show",
    "Stateful",
    "SupportsAdopt",
    "SupportsAdoptVector",
    "SupportsArguments",
    "SupportsEnded",
    "SupportsEvaluated",
    "SupportsEvaluation",
    "SupportsExport",
    "SupportsFinish",
    "SupportsHold",
    "SupportsPart",
    "SupportsRender",
    "SupportsRestart",
    "SupportsSettings",
    "SupportsSources",
    "Wrapper",
]
