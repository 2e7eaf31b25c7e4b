"""Every interface of rlplug on one page.

Data flows one way, `Env -> Actor -> Buffer -> Learner -> Agent`; only actions, weights and priorities flow back:

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

All protocols are structural: a plugin does not have to inherit from them. They are provisional until 1.0.
A published protocol never gets another method. Optional abilities are separate protocols, `SupportsX`; those of
environments and wrappers are methods with defaults in `plugins.env_base.EnvBase`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar, runtime_checkable

from torch import Tensor, device, nn

from rlplug_core.clock import Clock, Steering
from rlplug_core.types import (
    Act,
    Array,
    Chunk,
    Episode,
    Obs,
    RecurrentState,
    Result,
    Space,
    Spec,
    State,
    Step,
    Timestep,
)

B = TypeVar("B")
#: Shows a frame. Arguments: whether an episode starts, and a function that renders the current frame [H, W, 3] uint8.
Show: TypeAlias = Callable[[bool, Callable[[], Array]], None]


@runtime_checkable
class Stateful(Protocol):
    """Has state that checkpoints must contain; `load_state_dict(state_dict())` changes nothing."""

    def state_dict(self) -> State: ...
    def load_state_dict(self, state: State, /) -> Any: ...


@runtime_checkable
class Env(Stateful, Protocol):
    """`num_envs` environments in one interface; a single environment has `num_envs` 1."""

    @property
    def spec(self) -> Spec: ...
    def reset(self, seed: int) -> Timestep: ...
    def step(self, action: Array) -> Timestep: ...
    def close(self) -> None: ...


@runtime_checkable
class TensorEnv(Protocol):
    """N environments as tensors [N, ...] on one device: Gymnasium's vector interface, with torch in place of numpy.

    rlplug accepts it like a vector environment of Gymnasium, and copies nothing to the host. The entry
    "autoreset_mode" of `metadata` says when a finished row is reset; under SAME_STEP the last observations of episodes
    are in `info["final_obs"]` [N, ...]. With `state_dict` and `load_state_dict` of `Stateful`, runs resume exactly.
    """

    num_envs: int

    @property
    def device(self) -> device | str: ...
    @property
    def metadata(self) -> Mapping[str, object]: ...
    @property
    def single_observation_space(self) -> Space: ...
    @property
    def single_action_space(self) -> Space: ...
    def reset(
        self,
        *,
        seed: int | None = None,
        options: State | None = None,
    ) -> tuple[Obs, State]:
        """Start every row, or those in `options["reset_mask"]` [N]; return observations and `info`."""

    def step(
        self,
        action: Tensor,
        /,
    ) -> tuple[Obs, Tensor, Tensor, Tensor, State]:
        """Return observations, rewards [N], terminated [N], truncated [N], and `info`."""


@runtime_checkable
class Agent(Stateful, Protocol):
    """Chooses actions. Its state is random generators and noise; it shares its weights with the learner."""

    def weights(self) -> State:
        """Return live views of the weights that are sent to actors and evaluators."""

    def initial(self, num_envs: int) -> RecurrentState:
        """Return the memory of `num_envs` environments before their first step: None, or a tree of arrays [N, ...]."""

    def act(
        self,
        obs: Obs,
        is_first: Array,
        recurrent_state: RecurrentState,
        clock: Clock,
        explore: bool = True,
    ) -> Act:
        """Return actions for the observations of all N environments.

        The caller does not reset the memory. In rows with `is_first` an episode starts, and no result for such a row,
        including the new memory, may depend on the row's `recurrent_state`. Losses use `Rollout.is_first` in the same
        way.

        Args:
            obs: [N, ...] observations.
            is_first: [N] bool, whether `obs` is the first observation of an episode.
            recurrent_state: [N, ...] memory from the last call; None without a memory.
            clock: for schedules of exploration.
            explore: False for greedy actions, which need no random numbers unless the agent documents it.

        Returns:
            The actions [N, ...], the new memory, and other outputs for the learner, such as log-probabilities.
        """


@runtime_checkable
class Buffer(Stateful, Protocol[B]):
    """Stores steps and returns batches; a batch is valid until the next batch or `add`."""

    def add(self, step: Step, source: int = 0) -> None:
        """Store a step of the actor `source`; sequences never mix rows of different actors."""

    def batches(self, clock: Clock) -> Iterable[B]:
        """Yield the batches that are ready. The state counts them, so a run that stops between two loses none."""

    def feedback(self, batch: B, result: Result) -> None: ...


@runtime_checkable
class Learner(Stateful, Protocol[B]):
    """The algorithm: built as `cls(spec, config, context)`.

    If it has an attribute `signals`, actors add these keys of `info` to its steps: see `Algorithm.signals`. If it has
    `dataset_use`, `context.dataset` may be the data set of the run: see `Algorithm.dataset_use`. Its state contains
    `context.dataset.state_dict()`.
    """

    #: The runners that it supports, best first.
    runners: ClassVar[tuple[str, ...]]

    def agent(self, rank: int = 0, ranks: int = 1) -> Agent:
        """Return an agent with the learner's parameters. Agents do not share generators or memory."""

    def buffer(self) -> Buffer[B]: ...
    def update(self, batch: B, clock: Clock) -> Result: ...


#: A learner and a buffer of any kind of batch; a runner only passes batches between them.
AnyLearner: TypeAlias = Learner[Any]
AnyBuffer: TypeAlias = Buffer[Any]


class Link(Protocol):
    """The learner's end of its connection with decoupled actors."""

    def publish(self, weights: State) -> None:
        """Make these the actors' next version of the weights; chunks received before may be overwritten."""

    def receive(self) -> list[Chunk]:
        """Return the chunks that arrived; their arrays are valid until the next `publish`."""


@runtime_checkable
class Provider(Protocol):
    """The target of an `rlplug.envs` entry point: a class without constructor arguments that makes environments."""

    def ids(self) -> Iterable[str]:
        """Return the ids of its environments, as a user types them; used for suggestions."""

    def make(self, id: str, num_envs: int) -> Env:
        """Make environments; raise `errors.UnknownEnv` or, if a package is absent, `errors.MissingPackage`."""


class Wrapper(Protocol):
    """The target of an `rlplug.wrappers` entry point: a class that wraps an environment, with options in `Config`.

    Reported returns are those of the wrapped environment. `plugins.transform.Transform` is a base class.
    """

    def __call__(self, env: Env, config: Any, /) -> Env: ...


@runtime_checkable
class SupportsAdopt(Protocol):
    """A provider that can adapt a user's environments and worlds: new ones from a class, or existing ones."""

    def adopt(self, make: Callable[[], Any], num_envs: int, id: str) -> Env:
        """Return `num_envs` environments from `make`, which returns a new `gymnasium.Env`."""

    def adopt_vector(self, make: Callable[[], Any], id: str) -> Env:
        """Return the vector from `make`, which returns a new `gymnasium.vector.VectorEnv`."""

    def adopt_worlds(
        self,
        make: Callable[[], Any],
        num_envs: int,
        id: str,
    ) -> Env:
        """Return `num_envs` worlds from `make`, which returns a new PettingZoo `ParallelEnv` or `AECEnv`."""

    def hold(self, env: Any, id: str) -> Env:
        """Adapt a `gymnasium.Env` or a `gymnasium.vector.VectorEnv`; `close` leaves it open for its owner."""

    def hold_world(self, world: Any, id: str) -> Env:
        """Adapt an existing world; `close` leaves it open for its owner."""


@runtime_checkable
class SupportsDevice(Protocol):
    """A provider with environments that return tensors on a device."""

    def on_device(self, device: str) -> Provider:
        """Return a provider of the same environments that makes them on this device, such as `cuda`."""


@runtime_checkable
class SupportsTensors(Protocol):
    """An agent that can act on tensors on a device."""

    def use_tensors(self, num_envs: int, device: device) -> None:
        """Act on tensors [num_envs, ...] on this device until the next call of `initial`."""


@runtime_checkable
class SupportsArguments(Protocol):
    """A provider with environments that take keyword arguments."""

    def with_arguments(self, arguments: Mapping[str, object]) -> Provider:
        """Return a provider of the same environments, made with these arguments.

        It raises `errors.UsageError` if an environment has no such argument.
        """


@runtime_checkable
class SupportsFinish(Protocol):
    """A learner that takes a last step before the final checkpoint."""

    def finish(self, clock: Clock) -> None:
        """Take the last step, with the clock at the end of training."""


@runtime_checkable
class SupportsRender(Protocol):
    """A provider with environments that can be watched."""

    def make_shown(self, id: str, render_mode: str) -> Env:
        """Return one environment with a `show`, made with Gymnasium's `render_mode`: `human` or `rgb_array`."""


@runtime_checkable
class SupportsExport(Protocol):
    """An agent that can be exported without its class."""

    def exported(self) -> nn.Module:
        """Return a module from observations [B, ...] to the best actions [B, ...]; it draws no random numbers.

        With a memory the module has the method of `SupportsInitial`. It maps observations, whether an episode starts
        ([B] bool), and the state (tensors [B, ...] by name) to the actions and the new state.
        """


@runtime_checkable
class SupportsInitial(Protocol):
    """A module that an agent with a memory exports."""

    def initial(self, num_envs: int) -> Mapping[str, Array]:
        """Return the state before the first step: float32 zeros [num_envs, ...] by name."""


@runtime_checkable
class SupportsPart(Protocol):
    """Environments that can be a part of a larger vector, with the seeds that they have in it."""

    def part(self, first: int) -> None:
        """Number its environments from `first`, as in the larger vector; called before the first reset."""


@runtime_checkable
class SupportsEvaluation(Protocol):
    """A wrapper with other options in evaluations, or one that evaluations do not use."""

    def in_evaluation(self, config: Any) -> object:
        """Return its options in evaluations; None leaves it out. Spaces must be the same."""


@runtime_checkable
class SupportsRestart(Protocol):
    """A buffer that can start new rows: the next steps do not follow the stored ones."""

    def restart(self) -> None: ...


@runtime_checkable
class SupportsSources(Buffer[Any], Protocol):
    """A buffer that keeps the rows of several actors apart by the `source` of each step."""

    def restart_source(self, source: int) -> None:
        """Start new rows for one source: its next steps do not follow its last ones."""


class Evaluated(Protocol):
    """The result of an evaluation: undiscounted returns, lengths, success and `info` of its episodes."""

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
    @property
    def signals(self) -> Mapping[str, Sequence[float]]: ...


@runtime_checkable
class SupportsEvaluationRank(Protocol):
    """A learner that says which of two evaluations is better; without it the mean return decides."""

    def evaluation_rank(
        self,
        evaluation: Evaluated,
    ) -> float | tuple[float, ...]:
        """Return a number, or several: the first that differs decides; larger is better."""


@runtime_checkable
class Controller(Stateful, Protocol):
    """Steers a run: the target of an `rlplug.controllers` entry point, a class, built with its `Config`.

    The methods of the protocols below receive events, in the run's own process. Its state is saved with the run.
    `reason` says why it stopped the run, and is empty while the run continues.
    """

    @property
    def reason(self) -> str: ...


@runtime_checkable
class SupportsEvaluated(Protocol):
    """A controller that receives evaluations."""

    def evaluated(self, evaluation: Evaluated, clock: Steering) -> None: ...


@runtime_checkable
class SupportsEnded(Protocol):
    """A controller that receives training episodes, right after the vector step of their end."""

    def ended(self, episodes: Sequence[Episode], clock: Steering) -> None: ...


@runtime_checkable
class SupportsSettings(Protocol):
    """A controller that sets attributes of the training environments, such as a curriculum's level."""

    def settings(self) -> Mapping[str, object]:
        """Return attributes by name: numbers, strings, booleans, or lists of them; a function of its state only.

        It is called before the first episode, and again after every event. If a value has changed,
        each row uses it from its next episode on.
        """
