"""`Algorithm`, the base class of algorithms: a torch module with optimizers, and `pure`, which marks losses.

A learner does not have to inherit from it. A subclass gets flat parameters, a seeded generator, scheduled options, fast
or compiled losses, and a `state_dict` of networks, target networks, optimizers and the generator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from operator import attrgetter
from types import MethodType
from typing import Any, ClassVar, Concatenate, Generic, Literal, ParamSpec, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import nn

from rlplug_core.accelerator import Losses, room
from rlplug_core.clock import Clock
from rlplug_core.config.options import Config
from rlplug_core.config.schedules import Schedule, constant, linear
from rlplug_core.config.schema import flatten
from rlplug_core.context import Context
from rlplug_core.errors import PluginError, UsageError, did_you_mean
from rlplug_core.learning.optimizer import Optimizer, trainable_parameters
from rlplug_core.learning.optimizer_options import OptimizerOptions
from rlplug_core.learning.temperature import learnable_temperatures
from rlplug_core.learning.update_rules import Adam, UpdateRule, decays
from rlplug_core.nets.actions import check_actions
from rlplug_core.nets.normalize import ObservationNorm, Running
from rlplug_core.protocols import Agent, Buffer
from rlplug_core.seeds import Seeds
from rlplug_core.types import Result, Spec, State

B = TypeVar("B")
P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A", bound="Algorithm[Any]")


class Algorithm(nn.Module, Generic[B]):
    """The base of algorithms. Subclasses define `build`, `agent`, `buffer`, `learn`, and losses marked `pure`.

    Attributes:
        spec: the spaces, the number of environments and their id.
        config: the options, an instance of `Config`; `learn` gets them with the current values of schedules.
        context: everything else that a runner gives, such as its name and the number of learners.
        device: the device of networks and batches.
        seeds: the seeds of this learner; `seeds.child("name")` for parts that draw their own random numbers.
        generator: a NumPy generator for draws in `learn`, saved with the state.
        dataset: the data set of `--dataset`, or None.
        inference_backend: how actions are computed, for agents and `fast_forward`.
        optimizers: the optimizers, in the order of the calls of `optimizer`.
    """

    #: The dataclass of the options, a subclass of `Config`.
    Config: ClassVar[type[Config]]
    #: Names of the runners that it supports, the best first: `sync`, `async`, `decoupled`.
    runners: ClassVar[tuple[str, ...]] = ("sync",)
    #: Whether several learners may train it together (`--learners`). Then only `Optimizer.minimize` and the clock may
    #: change weights, and the number of gradient steps must not depend on batches or ends of episodes.
    data_parallel: ClassVar[bool] = False
    #: Why it does not support a runner, by the name of the runner, if the usual reason is wrong.
    unsound: ClassVar[Mapping[str, str]] = {}
    #: Action spaces that it can handle, as class names of `gymnasium.spaces`; empty means any.
    actions: ClassVar[tuple[str, ...]] = ()
    #: Keys of the environment's `info` that come with every step as `Step.extras`, float32 [N], or [N, ...] for arrays.
    #: In a dictionary each key has the value for steps without it; with a tuple every step must have all keys.
    signals: ClassVar[tuple[str, ...] | Mapping[str, ArrayLike]] = ()
    #: How it uses a data set (`--dataset`): the data set fills the replay buffer, or it is `self.dataset`, optional or
    #: required. `self.dataset` is None without a data set, and if the learner only acts.
    dataset_use: ClassVar[Literal["replay", "optional", "required"]] = "replay"
    #: The version of its state. Increase it when `state_dict` changes, and define `migrate`.
    state_version: ClassVar[int] = 1

    def __init__(self, spec: Spec, config: Any, context: Context) -> None:
        super().__init__()
        self.spec = spec
        self.config = config
        self.context = context
        self.device = context.device
        self.seeds = context.seeds
        self.dataset = context.dataset
        self.inference_backend = context.inference_backend
        if context.cudagraphs and self.inference_backend == "auto":
            self.inference_backend = "cudagraphs"
        if spec.device is not None:
            self.inference_backend = self._backend_on(spec.device)
        self.generator = context.seeds.child("learner", context.rank).generator()
        self.optimizers: list[Optimizer] = []
        self._recorded_steps = room().graphs(context.device) if context.cudagraphs else None
        #: How losses that are marked `pure` run, and whether they may run on arrays.
        self._losses: Losses = room().losses()
        self._takes_arrays = not self._why_tensors()
        self._check_spaces()
        self._build_from_seed(context.seeds.child("networks").integer())
        self.running = [module for module in self.modules() if isinstance(module, Running)]
        self._check_norms()

    def _why_tensors(self) -> str:
        """Return why all losses of this learner run on tensors, or ""."""
        if self.context.compile:
            return "losses are compiled"
        if self.device.type != "cpu":
            return f"the device is {self.device}"
        return "" if self._recorded_steps is None else "steps are recorded"

    def _build_from_seed(self, seed: int) -> None:
        """Build the networks with the seed of initial weights, and leave torch's own generators unchanged."""
        on_gpu = self.device.type == "cuda"
        with torch.random.fork_rng(devices=[self.device] if on_gpu else []):
            # `torch.manual_seed` is slow, because it seeds every kind of device.
            torch.default_generator.manual_seed(seed)
            if on_gpu:
                torch.cuda.manual_seed(seed)
            self.build()

    def _backend_on(self, device: torch.device) -> str:
        """Return the backend that computes actions from tensors on a device.

        Raises:
            UsageError: the backend is NumPy.
        """
        if self.inference_backend == "numpy":
            raise UsageError(
                f"{self.spec.id} gives tensors on {device}, which NumPy cannot use; leave "
                "--inference-backend at auto"
            )
        return "torch"

    def build(self) -> None:
        """Make networks, then optimizers; called once, with the seed for initial weights set."""
        raise self._missing_method("build(self)")

    def agent(self, rank: int = 0, ranks: int = 1) -> Agent:
        """Return an agent that acts with the networks; called for each actor, for evaluations and for exports."""
        raise self._missing_method("agent(self, rank=0, ranks=1)")

    def buffer(self) -> Buffer[B]:
        """Return the buffer that takes steps and gives the batches of `learn`."""
        raise self._missing_method("buffer(self)")

    def _missing_method(self, method: str) -> PluginError:
        return PluginError(
            f"{type(self).__name__} has no {method}, which every algorithm needs; write one"
        )

    def learn(self, batch: B, now: Any, clock: Clock) -> Result:
        """Update the weights with one batch.

        Args:
            batch: a batch of the buffer; it must not be changed.
            now: the config, with the current value of every option that follows a schedule.
            clock: env steps, updates and progress.
        """
        raise self._missing_method("learn(self, batch, now, clock)")

    def update(self, batch: B, clock: Clock) -> Result:
        """Call `learn` with one batch, then update running statistics with it; runners call it."""
        now = self.config.at(clock) if self.config.schedules else self.config
        # No warning of NumPy: the optimizer stops the run if a loss or a gradient is infinite.
        with np.errstate(over="ignore"):
            result = self.learn(batch, now, clock)
        if not isinstance(result, Result):
            raise PluginError(
                f"{type(self).__name__}.learn returned {result!r}; return rl.Result(metrics)"
            )
        if self.running:
            with self.context.stats_lock:
                for module in self.running:
                    module.update_stats(batch, clock)
        return result

    def optimizer(
        self,
        name: str,
        modules: Iterable[nn.Module],
        *,
        learning_rate: Schedule | float | str = "learning_rate",
        max_grad_norm: Schedule | float | None = None,
        rule: UpdateRule | None = None,
        defaults: Mapping[str, object] | None = None,
    ) -> Optimizer:
        """Make an optimizer; move the modules' trainable parameters to the device and into one flat tensor.

        If `learning_rate` is the name of an option, the config decides everything else that is not an argument: its
        options `anneal_lr`, `max_grad_norm`, `optimizer` and `optimizer_kwargs` apply if it has them. If it is a number
        or a function, no option applies. Weight decay does not change a learned `Temperature`.

        Args:
            name: its name in messages and shared state.
            modules: the modules to train.
            learning_rate: the name of an option, a number, or a function of progress.
            max_grad_norm: the largest norm of the whole gradient; None: no clipping.
            rule: the optimization method, such as Adam; default: that of the config, else Adam.
            defaults: the algorithm's own defaults of `optimizer_kwargs`, such as `{"eps": 1e-8}`.

        Raises:
            ValueError: another optimizer has this name.
            PluginError: the config has no such option.
        """
        if isinstance(learning_rate, str):
            rule = rule or self._rule(defaults or {})
            if max_grad_norm is None and getattr(self.config, "max_grad_norm", None) is not None:
                max_grad_norm = self.schedule("max_grad_norm")
            learning_rate = self.schedule(learning_rate, getattr(self.config, "anneal_lr", False))
        modules = list(modules)
        rule = rule or Adam()
        optimizer = self.context.optimizer(
            trainable_parameters(modules, self.device),
            name=f"{type(self).__name__}.{name}",
            rule=rule,
            learning_rate=learning_rate,
            max_grad_norm=max_grad_norm,
        )
        if decays(rule):
            optimizer.undecayed = [optimizer.part(log) for log in learnable_temperatures(modules)]
        if any(optimizer.name == existing.name for existing in self.optimizers):
            raise ValueError(
                f"two optimizers of {type(self).__name__} are called '{name}'; give each its own name"
            )
        if self._recorded_steps is not None:
            room().record(optimizer, self._recorded_steps)
        self.optimizers.append(optimizer)
        return optimizer

    def _rule(self, defaults: Mapping[str, object]) -> UpdateRule | None:
        """Return the rule of the options `optimizer` and `optimizer_kwargs`, None if the config does not have them."""
        name = getattr(self.config, "optimizer", None)
        options = getattr(self.config, "optimizer_kwargs", OptimizerOptions())
        return None if name is None else options.rule(name, **defaults)

    def describe_gradients(self) -> str:
        """Return how the gradient of each loss was computed and why, and the number of CUDA graphs."""
        paths = dict.fromkeys(self._losses.paths.values())
        if len(paths) > 1:
            paths = dict.fromkeys(
                f"{name}: {method}" for name, method in self._losses.paths.items()
            )
        graphs = self._recorded_steps
        recorded = "" if graphs is None else f"{graphs.count or 'no'} gradient steps as CUDA graphs"
        return "; ".join(filter(None, (*paths, recorded)))

    how_gradients_came = describe_gradients  # the former name, for one version

    def schedule(self, name: str, anneal: bool = False) -> Schedule:
        """Return the option `name` (dotted if nested) as a function of progress.

        With `anneal` a number decreases to 0 over the run.

        Raises:
            PluginError: the config has no such option.
        """
        schedule: Schedule | None = self.config.schedules.get(name)
        if schedule is not None:
            return schedule
        try:
            value: float = attrgetter(name)(self.config)
        except AttributeError as error:
            hint = did_you_mean(name, flatten(self.config))
            raise PluginError(
                f"{type(self).__name__} has no option '{name}' to follow a schedule{hint}"
            ) from error
        return linear(value, 0.0) if anneal else constant(value)

    def agent_seeds(self, rank: int) -> Seeds:
        """Return the seeds of the agent `rank`; agents of one learner draw different random numbers."""
        return self.seeds.child("agent", rank)

    def get_extra_state(self) -> State:
        """Return the state of optimizers, generator and data set, which `state_dict` adds to the tensors."""
        autograd_only = self._losses.autograd_only
        return {
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "generator": self.generator.bit_generator.state,
            **({} if self.state_version == 1 else {"state_version": self.state_version}),
            **({} if self.dataset is None else {"dataset": self.dataset.state_dict()}),
            **({"plain_losses": sorted(autograd_only)} if autograd_only else {}),
        }

    def set_extra_state(self, state: State) -> None:
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.generator.bit_generator.state = state["generator"]
        if self.dataset is not None and "dataset" in state:
            self.dataset.load_state_dict(state["dataset"])
        self._losses.autograd_only = set(state.get("plain_losses", ()))

    @classmethod
    def migrate(cls, state: State, version: int) -> State:
        """Convert the state of an older version of this class to that of the current version.

        Args:
            state: the result of `state_dict` in that version.
            version: the `state_version` of that version, lower than the current one.

        Raises:
            PluginError: the class cannot do it; the default.
        """
        raise PluginError(
            f"{cls.__name__} cannot load a state of version {version}, because its version is {cls.state_version}"
        )

    def _load_from_state_dict(
        self,
        state_dict: State,
        prefix: str,
        *args: Any,
    ) -> None:
        """Migrate an older state first; torch calls this for each module, including parts of other modules."""
        extra: State = state_dict.get(f"{prefix}_extra_state", {})
        version = extra.get("state_version", 1)
        if version != self.state_version:
            entries = {
                name: state_dict.pop(name) for name in list(state_dict) if name.startswith(prefix)
            }
            state = {name.removeprefix(prefix): value for name, value in entries.items()}
            state = self.migrate(state, version)
            state_dict.update({f"{prefix}{name}": value for name, value in state.items()})
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _check_norms(self) -> None:
        for module in self.running:
            if isinstance(module, ObservationNorm) and module.space != self.spec.obs:
                raise UsageError(
                    f"{type(self).__name__} cannot normalize observations: one of its networks has the input "
                    f"{module.space}, and {self.spec.id} has {self.spec.obs}; leave net.normalize_obs at false"
                )

    def _check_spaces(self) -> None:
        if self.spec.kinds:
            raise UsageError(
                f"the agents of {self.spec.id} have different spaces, and {type(self).__name__} trains one network for "
                "all of them; use independent, which has an algorithm for each agent: 'rlplug info independent'"
            )
        check_actions(type(self), self.spec)


class pure(Generic[A, P, R]):  # a decorator
    """Mark a method of an `Algorithm` as a pure function of parameters and arguments, such as a loss.

    It draws no random numbers and changes nothing, so rlplug decides how it runs: compiled with `--compile`; recorded
    with `--cudagraphs`, together with the step of `Optimizer.minimize`; in NumPy if `rlplug_core.fast` has everything
    that it calls; else by autograd. A recorded loss may only depend on its arguments, and on parameters and buffers
    that change in place.
    """

    def __init__(self, function: Callable[Concatenate[A, P], R]) -> None:
        self.function = function
        self.__doc__ = function.__doc__
        self.fast = True
        self.minimized = True
        self.compiled: Callable[Concatenate[A, P], R] | None = None

    @classmethod
    def by_autograd(
        cls,
        function: Callable[Concatenate[A, P], R],
    ) -> pure[A, P, R]:
        """Mark a loss that needs autograd for more than the optimizer's step, such as `torch.autograd.grad`."""
        mark = cls(function)
        mark.fast = False
        return mark

    @classmethod
    def without_gradient(
        cls,
        function: Callable[Concatenate[A, P], R],
    ) -> pure[A, P, R]:
        """Mark a function of results that no optimizer minimizes, such as metrics; it is not compiled or recorded."""
        mark = cls(function)
        mark.minimized = False
        return mark

    def __get__(self, learner: A, owner: type[A]) -> Callable[P, R]:
        if learner is None:
            return self.function
        if learner._takes_arrays and self.fast:
            losses = learner._losses
            call = losses.call if self.minimized else losses.without_gradient
            return partial(call, self.function, learner)
        return self._on_tensors(learner) if self.minimized else MethodType(self.function, learner)

    def _on_tensors(self, learner: A) -> Callable[P, R]:
        """Return the loss of a learner as a function of tensors, and record why it runs on tensors."""
        reason = learner._why_tensors() or "its author says so"
        learner._losses.paths.setdefault(self.function.__name__, f"autograd: {reason}")
        function = self._compile() if learner.context.compile else self.function
        if learner._recorded_steps is not None:
            return partial(learner._recorded_steps.call, function, self.function, learner)
        if learner.context.compile:
            return partial(learner._losses.compiled, function, learner)
        return MethodType(function, learner)

    def _compile(self) -> Callable[Concatenate[A, P], R]:
        if self.compiled is None:
            self.compiled = torch.compile(self.function)
        return self.compiled
