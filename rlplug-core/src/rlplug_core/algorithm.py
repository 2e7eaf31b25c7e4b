"""The base class of learners: networks and optimisers built, tracked and saved by torch's own means.

A learner need not inherit it; whoever does gets parameters in flat memory, seeds, the learner's generator, compilation
of `loss`, and a `state_dict` that covers networks, targets, optimisers and the generator.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import nn

from rlplug_core.batches import Transitions
from rlplug_core.clock import Clock
from rlplug_core.config import Config
from rlplug_core.errors import BadConfig, UsageError
from rlplug_core.normalise import ObservationNorm, Running
from rlplug_core.optimiser import Optimiser, OptimiserFactory, flatten, joined
from rlplug_core.protocols import Agent, Buffer
from rlplug_core.rules import Adam, Rule
from rlplug_core.scheduled import at, unguarded
from rlplug_core.schedules import Schedule, constant, linear
from rlplug_core.seeds import Seeds
from rlplug_core.types import Result, Spec, State

B = TypeVar("B")
M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True)
class Context:
    """What a runner gives a learner besides spec and config: seeds, device, gradient seam, its place among ranks.

    `runner` is its name, for options that are not sound under every runner that the learner's class names. `schedules`
    are those of the options that follow one, by dotted name; the config guards these (`scheduled.guarded`).
    """

    seeds: Seeds
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    optimiser: OptimiserFactory = Optimiser
    rank: int = 0
    ranks: int = 1
    acting: str = "auto"
    compile: bool = False
    runner: str = "sync"
    schedules: Mapping[str, Schedule] = field(default_factory=dict)


class Algorithm(nn.Module, Generic[B]):
    """Subclasses write `build`, `agent`, `buffer`, `update` and usually `loss` (pure: batch to loss and metrics)."""

    Config: ClassVar[type[Config]]
    runners: ClassVar[tuple[str, ...]] = ("sync",)
    #: Spaces of actions it can handle, as class names of `gymnasium.spaces`; empty means any.
    actions: ClassVar[tuple[str, ...]] = ()

    def __init__(self, spec: Spec, config: Any, context: Context) -> None:
        super().__init__()
        self.spec, self.config, self.context = spec, config, context
        self.device, self.seeds, self.acting = context.device, context.seeds, context.acting
        self.generator = context.seeds.child("learner", context.rank).generator()
        self.optimisers: list[Optimiser] = []
        self._check_spaces()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(context.seeds.child("networks").integer())
            self.build()
        self._share_norms()
        if running := [module for module in self.modules() if isinstance(module, Running)]:
            self.update = _absorbing(self.update, running)  # type: ignore[method-assign, assignment]
        for name, value in vars(self).items():
            if isinstance(value, Optimiser):
                value.name = f"{type(self).__name__}.{name}"
        if context.compile:
            self.loss = torch.compile(self.loss)  # type: ignore[method-assign]
        if context.schedules:
            self.update = self._scheduled(self.update)  # type: ignore[method-assign,assignment]

    def _scheduled(self, update: Callable[[B, Clock], Result]) -> Callable[[B, Clock], Result]:
        """`update`, during which `config` holds what the schedules say at the clock's progress."""
        guard, whole = self.config, unguarded(self.config)

        def scheduled(batch: B, clock: Clock) -> Result:
            self.config = at(whole, self.context.schedules, clock.progress)
            try:
                return update(batch, clock)
            finally:
                self.config = guard

        return scheduled

    def build(self) -> None:
        """Make networks, then optimisers; called once, with the seed for initial weights set."""
        raise NotImplementedError

    def agent(self, rank: int = 0, ranks: int = 1) -> Agent:
        raise NotImplementedError

    def buffer(self) -> Buffer[B]:
        raise NotImplementedError

    def update(self, batch: B, clock: Clock) -> Result:
        raise NotImplementedError

    def loss(self, batch: Any) -> tuple[Any, ...]:
        """The loss, its metrics, and what else `update` needs of a batch; pure, so that it can be compiled whole."""
        raise NotImplementedError

    def optimiser(
        self, modules: Iterable[nn.Module], lr: Schedule, clip: Schedule | float | None = None,
        rule: Rule | None = None,
    ) -> Optimiser:  # fmt: skip
        """An optimiser of the modules' trainable parameters, which move to the device and into one flat tensor."""
        parameters = [
            parameter
            for module in modules
            for parameter in module.to(self.device).parameters()
            if parameter.requires_grad
        ]
        made = self.context.optimiser(parameters, rule or Adam(), lr, clip)
        self.optimisers.append(made)
        for each in self.optimisers:  # a single one need not choose, which takes 10 microseconds a step
            each.inputs = None if len(self.optimisers) == 1 else each.parameters
        return made

    def step_size(self, name: str = "lr", anneal: bool = False) -> Schedule:
        """The step size that the option `name` says: its schedule, or else itself, falling to 0 with `anneal`."""
        if anneal and name not in self.context.schedules:
            return linear(getattr(self.config, name), 0.0)
        return self.schedule(name)

    def schedule(self, name: str) -> Schedule:
        """The option `name` as a function of progress, for whatever is given it once and knows the clock."""
        found = self.context.schedules.get(name)
        return found or constant(getattr(self.config, name))

    def agent_seeds(self, rank: int) -> Seeds:
        """Where an agent's random numbers come from: its rank, so that agents of one learner draw apart."""
        return self.seeds.child("agent", rank)

    def get_extra_state(self) -> State:
        """What `state_dict` holds besides tensors of modules: optimisers and the learner's generator."""
        return {
            "optimisers": [optimiser.state_dict() for optimiser in self.optimisers],
            "generator": self.generator.bit_generator.state,
        }

    def set_extra_state(self, state: State) -> None:
        for optimiser, saved in zip(self.optimisers, state["optimisers"], strict=True):
            optimiser.load_state_dict(saved)
        self.generator.bit_generator.state = state["generator"]

    def _share_norms(self) -> None:
        """Let all networks, targets too, scale observations by the same moments, those of the first.

        Raises:
            UsageError: a network looks at other observations than the environment's.
        """
        first: ObservationNorm | None = None
        for holder in list(self.modules()):
            for name, norm in list(holder.named_children()):
                if not isinstance(norm, ObservationNorm):
                    continue
                if norm.space != self.spec.obs:
                    raise UsageError(
                        f"{type(self).__name__} cannot scale what one of its networks sees, {norm.space}, because that "
                        f"is not what {self.spec.id} shows, {self.spec.obs}; leave normalise at false"
                    )
                first = first or norm
                setattr(holder, name, first)

    def _check_spaces(self) -> None:
        kind = type(self.spec.action).__name__
        if self.actions and kind not in self.actions:
            needed = ", ".join(self.actions[:-1]) + " or " * (len(self.actions) > 1) + self.actions[-1]
            given = "Dict, which a Tuple is as well" if kind == "Dict" else kind
            raise UsageError(
                f"{type(self).__name__} needs {needed} actions and {self.spec.id} has {given}; "
                f"`rlplug list --actions {kind}` shows those that take {kind}"
            )


def _absorbing(update: Callable[[B, Clock], Result], running: list[Running]) -> Callable[[B, Clock], Result]:
    """An update at whose end moments run on."""

    def absorbing(batch: B, clock: Clock) -> Result:
        result = update(batch, clock)
        for module in running:
            module.absorb(batch)
        return result

    return absorbing


def target_network(network: M) -> M:
    """A copy that no gradient reaches, flat in memory; it changes only when the learner says so.

    Moments of observations are shared with the network.
    """
    shared = {id(module): module for module in network.modules() if isinstance(module, ObservationNorm)}
    target = copy.deepcopy(network, dict(shared))
    parameters = list(target.parameters())
    if parameters:
        flatten(parameters)
    for parameter in parameters:
        parameter.grad = None
        parameter.requires_grad_(False)
    return target


def replay_gamma(learner: Algorithm[Transitions], n_step: int) -> float:
    """The discount that a learner's replay works with: its own, or 1 where `discounted` puts in that of the moment.

    Raises:
        BadConfig: it follows a schedule, and sums of several rewards are made with it before a learner sees them.
    """
    if "gamma" not in learner.context.schedules:
        return float(learner.config.gamma)
    if n_step > 1:
        raise BadConfig(
            f"option 'gamma' cannot follow a schedule with n_step {n_step}: replay sums rewards with it; give it a "
            "number, or leave n_step at 1"
        )
    return 1.0


def discounted(learner: Algorithm[Transitions], batch: Transitions) -> None:
    """Put the discount of the moment into replayed transitions, where it follows a schedule."""
    if "gamma" in learner.context.schedules:
        batch.discount = batch.discount * learner.config.gamma


class Follower:
    """Moves a target network towards the one that it follows; made once both lie in memory where they will stay."""

    def __init__(self, target: nn.Module, online: nn.Module) -> None:
        self.target, self.online = joined(list(target.parameters())), joined(list(online.parameters()))
        if len(self.target) != len(self.online):
            self.target, self.online = list(target.parameters()), list(online.parameters())

    def move(self, tau: float = 1.0) -> None:
        """By the share `tau` of the way, in place; 1 copies."""
        with torch.no_grad():
            torch._foreach_lerp_(self.target, self.online, tau)


class Frozen:
    """A context in which a module's parameters want no gradient: what is differentiated through it costs no more."""

    def __init__(self, module: nn.Module) -> None:
        self.parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]

    def __enter__(self) -> None:
        for parameter in self.parameters:
            parameter.requires_grad = False

    def __exit__(self, *failure: object) -> None:
        for parameter in self.parameters:
            parameter.requires_grad = True


def move_target(target: nn.Module, online: nn.Module, tau: float = 1.0) -> None:
    """Move the target's parameters by the share `tau` of the way to the online ones, in place; 1 copies them.

    Who does so at every update saves time with a `Follower`.
    """
    with torch.no_grad():
        torch._foreach_lerp_(list(target.parameters()), list(online.parameters()), tau)
