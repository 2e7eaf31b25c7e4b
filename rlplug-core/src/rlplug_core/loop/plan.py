"""A plan: a user's request, resolved and checked, before anything is built or written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch

from rlplug_core.algorithm import Algorithm
from rlplug_core.buffers.dataset import Dataset
from rlplug_core.buffers.dataset_files import read
from rlplug_core.clock import Clock
from rlplug_core.config.parse import convert_both, current_names
from rlplug_core.config.run_options import RunOptions
from rlplug_core.config.schedules import ParsedSchedule
from rlplug_core.config.schema import flat, flatten, schema
from rlplug_core.context import Context
from rlplug_core.errors import UsageError
from rlplug_core.learner_dataset import LearnerDataset
from rlplug_core.learning.optimizer import Optimizer, OptimizerFactory
from rlplug_core.loop.actor import Actor
from rlplug_core.loop.actor_placement import LOCAL, address_of
from rlplug_core.loop.controllers import settings_of
from rlplug_core.loop.freezing import freeze
from rlplug_core.loop.learner_checks import check_learners
from rlplug_core.loop.learner_data import check_dataset, fit_dataset, gets_dataset, learner_dataset
from rlplug_core.loop.memory_check import check_layers, check_sizes
from rlplug_core.loop.torch_settings import usable_device, without_auto
from rlplug_core.nets.actions import check_actions
from rlplug_core.plugins import algorithm as find_algorithm
from rlplug_core.plugins.env_base import complete
from rlplug_core.plugins.env_source import EVAL, TRAIN, EnvSource
from rlplug_core.plugins.request import RunRequest
from rlplug_core.plugins.reserved import check_options
from rlplug_core.plugins.spec import PartSpec, WrapperSpec, build_controller, with_path, wrap_env
from rlplug_core.protocols import AnyLearner, Env
from rlplug_core.seeds import Seeds
from rlplug_core.types import Spec

#: Why a learner may refuse a runner.
UNSOUND = {
    "async": "its workers would apply each other's stale gradients",
    "sync": "it is written for asynchronous workers",
    "decoupled": "its loss does not correct for policy lag (those of impala and appo do)",
}
#: Vector steps that a decoupled actor sends at once if an algorithm has no rollout length `n_steps`.
CHUNK_STEPS = 16


@dataclass(frozen=True)
class Plan:
    """One run: the names that the user typed, the learner's class, options of the run and the algorithm, wrappers."""

    algorithm: str
    env: str
    learner: type[Any]
    options: RunOptions
    config: Any
    wrappings: tuple[WrapperSpec, ...]
    schedules: Mapping[str, ParsedSchedule]
    #: Make the environments for training and for evaluation.
    source: EnvSource = field(kw_only=True)
    eval_source: EnvSource = field(kw_only=True)
    #: The wrappers for evaluation if they differ; the controllers of the run.
    eval_wrappings: tuple[WrapperSpec, ...] | None = field(default=None, kw_only=True)
    controllings: tuple[PartSpec, ...] = field(default=(), kw_only=True)
    #: Sets the initial weights of a new learner; None if they are random.
    start: Callable[[AnyLearner], None] | None = field(default=None, kw_only=True)
    #: The content of the option `dataset`, once it is read.
    dataset: Dataset | None = field(default=None, kw_only=True)

    @classmethod
    def make(
        cls,
        algorithm: str,
        env: object,
        options: Mapping[str, object],
    ) -> Plan:
        """Return the plan of options that are complete, such as those of a run's record; see `of`."""
        return cls.of(RunRequest.make(algorithm, env, options))

    @classmethod
    def of(cls, request: RunRequest) -> Plan:
        """Convert the options of a request to those of the run and of the algorithm, and check that they go together.

        Raises:
            UsageError: unknown algorithm or wrapper, unsound runner, no environment. BadConfig: a wrong option.
            PluginError: an unusable plugin.
        """
        learner: type[Any] = find_algorithm(request.algorithm)
        check_options(request.algorithm, [option.name for option in schema(learner.Config)])
        values = current_names(learner.Config, request.options, request.algorithm)
        places = {name: with_path(str(values[name])) for name in _target_options(learner, values)}
        source = request.source
        eval_source = request.eval_source
        options, config, schedules = convert_both(
            learner.Config, {**values, **places}, request.algorithm
        )
        plan = cls(
            algorithm=request.algorithm,
            env=source.name,
            learner=learner,
            options=options,
            config=config,
            wrappings=_wrappers_of(source, options.wrap),
            schedules=schedules,
            source=source,
            eval_source=eval_source,
            eval_wrappings=_eval_wrappers(options.eval_wrap),
            controllings=tuple(PartSpec.parse("controller", text) for text in options.controller),
        )._write_options()
        plan.check()
        return plan

    def _write_options(self) -> Plan:
        """Return the plan with parsed wrappers, controllers and loggers in its options, and no `auto`."""
        options = without_auto(self.options, self.runner)
        source = replace(self.source, device=options.device)
        shares_source = self.eval_source is self.source
        return replace(
            self,
            source=source,
            eval_source=source
            if shares_source
            else replace(self.eval_source, device=options.device),
            options=replace(
                options,
                wrap=_words_of(self.wrappings),
                controller=_words_of(self.controllings),
                log=tuple(map(with_path, options.log)),
                eval_wrap=_words_of(self.eval_wrappings)
                if self.eval_wrappings
                else options.eval_wrap,
            ),
        )

    def with_learner_data(self) -> Plan:
        """Return the plan with the content of the data set if its learner gets it, for another process."""
        if not (self.options.dataset and gets_dataset(self.learner)):
            return self
        return replace(self, dataset=read(self.options.dataset))

    @property
    def runner(self) -> str:
        """Return the name of the runner: the requested one, or the learner's best."""
        return (
            str(self.learner.runners[0]) if self.options.runner == "auto" else self.options.runner
        )

    @cached_property
    def flat(self) -> dict[str, Any]:
        """All options by dotted name, schedules as text, and the arguments of environments."""
        values = {**flatten(self.options), **flatten(self.config)}
        values |= {name: schedule.text for name, schedule in self.schedules.items()}
        values |= flat(self.source.arguments, TRAIN)
        if self.eval_source is not self.source:
            values |= flat(self.eval_source.arguments, EVAL)
        return values

    @property
    def max_lag(self) -> int:
        """Return the largest policy lag of decoupled actors: the option, or twice as many chunks as actors, minus one.

        Then each actor may act while another of its chunks waits for the learner.
        """
        options = self.options
        return 2 * options.actors - 1 if options.max_lag is None else options.max_lag

    @property
    def chunk_steps(self) -> int:
        """Return the vector steps that a decoupled actor sends at once: the option, or the rollout length."""
        return self.options.chunk_steps or int(getattr(self.config, "n_steps", CHUNK_STEPS))

    @property
    def targets(self) -> tuple[str, ...]:
        """Return the options that name something to import: the algorithm's own, and the evaluation environment."""
        return (
            *_target_options(self.learner, self.flat),
            *(["eval_env"] if self.options.eval_env else []),
        )

    def check(self) -> None:
        """Refuse a plan that cannot run, before anything is built."""
        runners = self.learner.runners
        if self.runner not in runners:
            reasons = self.learner.unsound if issubclass(self.learner, Algorithm) else {}
            reason = {**UNSOUND, **reasons}.get(self.runner, "it does not support it")
            raise UsageError(
                f"{self.algorithm} does not run under '{self.runner}': {reason}; use --runner {runners[0]}"
            )
        if self.options.env_workers != 1 and self.runner != "sync":
            raise UsageError(
                f"workers of the runner '{self.runner}' step their own environments; leave out --env-workers, or "
                "use --runner sync"
            )
        if self.options.cudagraphs and torch.device(self.options.device).type != "cuda":
            raise UsageError("--cudagraphs replays gradient steps on a GPU; add --device cuda")
        if self.options.learners > 1:
            check_learners(self.algorithm, self.learner, self.runner, self.options, self.flat)
        if self.options.resume_exact and (self.runner != "sync" or self.source.is_object):
            raise UsageError(
                "--resume-exact makes new environments, which needs --runner sync and an environment that is not an "
                "object; leave it out"
            )
        self._check_place()
        check_dataset(self.algorithm, self.learner, self.runner, self.options)
        self._check_source()

    def _check_place(self) -> None:
        """Refuse devices and nodes that this machine or the runner does not have."""
        options = self.options
        if usable_device(options.device, "--device").type != "cpu" and self.runner == "async":
            raise UsageError("async workers share parameters in host memory; use --device cpu")
        usable_device(options.actor_device, "--actor-device")
        if options.actor_device != "cpu" and (
            self.runner != "decoupled" or options.inline or options.on != LOCAL
        ):
            raise UsageError(
                "--actor-device is for actor processes on this machine, which need --runner decoupled without "
                "--inline and --on; leave it out"
            )
        if options.on == LOCAL:
            if options.gpus:
                raise UsageError("--gpus reserves GPUs in Ray for the learner; it needs --on ray")
            return
        address_of(options.on)
        if self.runner != "decoupled" or options.inline:
            raise UsageError(
                f"--on {options.on} places the actors of the runner 'decoupled'; "
                + ("leave out --inline" if options.inline else "use --runner decoupled")
            )
        if options.gpus and options.device == "cpu":
            raise UsageError(
                "--gpus reserves GPUs for a learner that computes on the CPU; add --device cuda"
            )

    def _check_source(self) -> None:
        source = self.source
        asynchronous = self.runner == "async"
        if source.num_envs not in (None, self.options.num_envs):
            raise UsageError(
                f"num_envs is {self.options.num_envs}, and the object {self.env} has {source.num_envs}; "
                "leave num_envs out"
            )
        in_processes = (
            self.runner == "decoupled" and not self.options.inline
        ) or self.options.learners > 1
        if not source.unnamed or not (
            asynchronous or in_processes or self.options.env_workers != 1
        ):
            return
        if source.is_object or not (asynchronous and self.options.inline):
            advice = "use --inline" if asynchronous or in_processes else "leave out --env-workers"
            advice = "leave out --learners" if self.options.learners > 1 else advice
            raise UsageError(
                f"each worker makes its own environments, but {self.env} is {source.unnamed}; put it at the top of a "
                f"file or a module, or {'use --runner sync' if asynchronous and source.is_object else advice}"
            )

    def seeds(self) -> Seeds:
        return Seeds(self.options.seed)

    def make_env(self, num_envs: int) -> Env:
        """Return the environment inside its wrappers."""
        return self.with_settings(wrap_env(self.bare_env(num_envs), self.wrappings))

    def with_settings(self, env: Env) -> Env:
        """Return the environment with the first settings of the controllers.

        Raises:
            UsageError: it has no such attributes.
        """
        if settings := settings_of(map(build_controller, self.controllings)):
            complete(env).configure(settings)
        return env

    def make_eval_env(self, num_envs: int) -> Env:
        """Return the environment for evaluations, in the wrappers of `for_evaluation`."""
        return self.for_evaluation(self.eval_source.with_copies().make(num_envs))

    def for_evaluation(self, env: Env) -> Env:
        """Return an environment in the wrappers of evaluations, or in those wrappers of training that they use, too."""
        wrappings = self.wrappings if self.eval_wrappings is None else self.eval_wrappings
        return wrap_env(env, wrappings, training=False)

    def bare_env(self, num_envs: int) -> Env:
        """Return the environment without wrappers."""
        return self.source.make(num_envs)

    def device(self, rank: int) -> torch.device:
        """Return the device of the learner `rank` of several: without a number, each has its own GPU."""
        device = torch.device(self.options.device)
        shared = device.type != "cuda" or device.index is not None or self.options.learners == 1
        return device if shared else torch.device("cuda", rank)

    def make_learner(
        self,
        spec: Spec,
        optimizer: OptimizerFactory = Optimizer,
        rank: int = 0,
        ranks: int = 1,
        stats_lock: AbstractContextManager[object] | None = None,
        data: Env | None = None,
    ) -> AnyLearner:
        """Make a learner with freshly initialized networks, the same for every rank.

        Args:
            data: the environment that the data set must fit, if the learner learns; None if it only acts.

        Raises:
            UsageError: the algorithm does not suit the spaces. BadConfig: the learner or its environments would not
                fit into this machine's memory.
        """
        if not issubclass(self.learner, Algorithm):  # an Algorithm checks its actions itself
            check_actions(self.learner, spec)
        check_sizes(self.flat, spec.obs)
        check_layers(self.flat, spec.obs, spec.action)
        options = self.options
        device = torch.device(options.device)
        context = Context(
            seeds=self.seeds(),
            device=device,
            optimizer=optimizer,
            rank=rank,
            ranks=ranks,
            inference_backend=options.inference_backend,
            compile=options.compile,
            cudagraphs=options.cudagraphs,
            dataset=None if data is None else self._learner_dataset(data, rank, device),
            runner=self.runner,
            stats_lock=stats_lock or nullcontext(),
        )
        learner: AnyLearner = self.learner(spec, self.config, context)
        if self.start is not None:
            self.start(learner)
        freeze(learner, options.freeze)
        return learner

    def make_actor(
        self,
        env: Env,
        learner: AnyLearner,
        clock: Clock,
        rank: int,
        ranks: int,
    ) -> Actor:
        """Make the actor `rank` of several, with its own agent, buffer and seed, and reset its environments."""
        actor = Actor(env, learner, learner.agent(rank, ranks), learner.buffer(), clock)
        actor.reset(self.seeds().child("env", rank).integer())
        return actor

    def _learner_dataset(
        self,
        env: Env,
        rank: int,
        device: torch.device,
    ) -> LearnerDataset | None:
        if self.dataset is None or not gets_dataset(self.learner):
            return None
        seeds = self.seeds().child("dataset", rank)
        return learner_dataset(fit_dataset(self.dataset, env), seeds, device)


def _words_of(specs: Iterable[WrapperSpec | PartSpec]) -> tuple[str, ...]:
    """Return the words that were typed for each wrapper or controller, with absolute paths."""
    return tuple(spec.words for spec in specs)


def _eval_wrappers(words: tuple[str, ...]) -> tuple[WrapperSpec, ...] | None:
    """Return the wrappers of evaluations, without the word `none`; None if evaluations use those of training."""
    if not words:
        return None
    return tuple(WrapperSpec.parse(text) for text in words if text != "none")


def _wrappers_of(
    source: EnvSource,
    words: Iterable[str],
) -> tuple[WrapperSpec, ...]:
    """Return the wrappers of an environment; a missing module names its install command."""
    try:
        return tuple(map(WrapperSpec.parse, words))
    except UsageError as error:
        if isinstance(error.__cause__, ModuleNotFoundError):
            source.make(1).close()
        raise


def _target_options(
    learner: type[Any],
    values: Mapping[str, object],
) -> tuple[str, ...]:
    """Return the options of an algorithm that name something to import, if one of `values` does."""
    named = [option.name for option in schema(learner.Config) if option.type == "target"]
    return tuple(name for name in named if isinstance(values.get(name), str))
