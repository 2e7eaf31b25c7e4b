"""A plan: what a user asked for, resolved and checked, before anything is built or written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from rlplug_core.algorithm import Context
from rlplug_core.config.parse import convert, schedules
from rlplug_core.config.run_options import RunOptions
from rlplug_core.config.schedules import Written
from rlplug_core.config.schema import flatten, schema
from rlplug_core.config.synonyms import nearest
from rlplug_core.errors import BadConfig, UsageError
from rlplug_core.learning.optimizer import Optimizer, OptimizerFactory
from rlplug_core.loop.sizes import check_sizes
from rlplug_core.plugins import absolute, make_env
from rlplug_core.plugins import algorithm as find_algorithm
from rlplug_core.plugins.wrapping import Wrapping, wrapped
from rlplug_core.protocols import Env, Learner
from rlplug_core.seeds import Seeds
from rlplug_core.types import Spec

#: Why a learner may refuse a runner.
UNSOUND = {
    "async": "its workers would apply each other's stale gradients",
    "sync": "it is written for asynchronous workers",
}


@dataclass(frozen=True)
class Plan:
    """One run: the names that were typed, the class, both halves of its options, and what is around the environment."""

    algorithm: str
    env: str
    learner: type[Any]
    options: RunOptions
    config: Any
    wrappings: tuple[Wrapping, ...]
    schedules: Mapping[str, Written]
    #: What a new learner begins with instead of random weights.
    start: Callable[[Learner[Any]], None] | None = field(default=None, kw_only=True)

    @classmethod
    def make(cls, algorithm: str, env: str, values: Mapping[str, Any]) -> Plan:
        """Split `values` into run options and the algorithm's own, and check both.

        Raises:
            UsageError: unknown algorithm or wrapper, unsound runner. BadConfig: a wrong option.
            PluginError: an unusable plugin.
        """
        learner: type[Any] = find_algorithm(algorithm)
        names, own = {option.name for option in schema(RunOptions)}, {option.name for option in schema(learner.Config)}
        if clash := names & own:
            raise BadConfig(f"{algorithm} redefines the run option '{min(clash)}'; its author must rename it")
        for name in values:
            if name not in names | own:
                near = nearest(name, names | own)
                raise BadConfig(f"{algorithm} has no option '{name}'{near} (`rlplug info {algorithm}` lists them)")
        options = convert(RunOptions, {k: v for k, v in values.items() if k in names}, algorithm)
        places = {name: absolute(values[name]) for name in targets(learner, values)}
        given = {k: v for k, v in {**values, **places}.items() if k in own}
        config = convert(learner.Config, given, algorithm)
        wrappings = tuple(map(Wrapping.parse, options.wrap))
        options = replace(options, wrap=tuple(one.words for one in wrappings))
        plan = cls(algorithm, env, learner, options, config, wrappings, schedules(learner.Config, given, algorithm))
        plan.check()
        return plan

    @property
    def runner(self) -> str:
        """The name of the runner: what was asked for, or the best of the learner's."""
        return str(self.learner.runners[0]) if self.options.runner == "auto" else self.options.runner

    @property
    def flat(self) -> dict[str, Any]:
        """All options by dotted name, schedules as they were written."""
        texts = {name: one.text for name, one in self.schedules.items()}
        return {**flatten(self.options), **flatten(self.config), **texts}

    @property
    def targets(self) -> tuple[str, ...]:
        """The algorithm's own options that name something to import."""
        return targets(self.learner, self.flat)

    def check(self) -> None:
        """Refuse what cannot run, before anything is built."""
        sound = self.learner.runners
        if self.runner not in sound:
            raise UsageError(
                f"{self.algorithm} does not run under '{self.runner}': "
                f"{UNSOUND.get(self.runner, 'it does not support it')}; "
                f"use --runner {sound[0]}"
            )
        try:
            device = torch.device(self.options.device)
        except RuntimeError as error:
            raise UsageError(f"no device '{self.options.device}'; use cpu or cuda") from error
        if device.type == "cuda" and not torch.cuda.is_available():
            raise UsageError("device 'cuda' is not available to this torch; use --device cpu")
        if device.type != "cpu" and self.runner == "async":
            raise UsageError("async workers share parameters in host memory; use --device cpu")

    def seeds(self) -> Seeds:
        return Seeds(self.options.seed)

    def make_env(self, num_envs: int) -> Env:
        """The environment inside its wrappers."""
        return wrapped(make_env(self.env, num_envs), self.wrappings)

    def make_learner(
        self, spec: Spec, optimizer: OptimizerFactory = Optimizer, rank: int = 0, ranks: int = 1
    ) -> Learner[Any]:
        """Make a learner with freshly initialized networks, the same for every rank.

        Raises:
            BadConfig: it, or the environments it is to learn from, would not fit into this machine's memory.
        """
        check_sizes(self.flat, spec.obs)
        o = self.options
        device = torch.device(o.device)
        context = Context(
            seeds=self.seeds(), device=device, optimizer=optimizer, rank=rank, ranks=ranks,
            inference_backend=o.inference_backend, compile=o.compile, runner=self.runner,
        )  # fmt: skip
        learner: Learner[Any] = self.learner(spec, self.config, context)
        if self.start is not None:
            self.start(learner)
        return learner


def targets(learner: type[Any], values: Mapping[str, Any]) -> tuple[str, ...]:
    """The options of an algorithm that name something to import, where one of `values` does."""
    named = [option.name for option in schema(learner.Config) if option.type == "target"]
    return tuple(name for name in named if isinstance(values.get(name), str))
