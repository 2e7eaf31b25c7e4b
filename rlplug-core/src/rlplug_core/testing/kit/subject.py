"""The algorithm under examination: its class, its configuration, and the environments it accepts."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from rlplug_core.algorithm import Context
from rlplug_core.config.parse import convert
from rlplug_core.config.schema import schema
from rlplug_core.errors import BadConfig
from rlplug_core.learning.optimizer import Optimizer, OptimizerFactory
from rlplug_core.loop.torch_settings import torch_settings
from rlplug_core.plugins import algorithm, make_env
from rlplug_core.plugins.presets import preset
from rlplug_core.plugins.records import Record
from rlplug_core.protocols import Env, Learner
from rlplug_core.seeds import Seeds, untouched
from rlplug_core.testing import envs, multi_part_actions
from rlplug_core.testing.kit.outcome import Skipped
from rlplug_core.testing.kit.short_run import Trial
from rlplug_core.types import Spec

T = TypeVar("T")

#: The environments of the kit, the first choice first: actions of the usual kinds, other observations, other actions.
PROBES: tuple[type[envs.Vector], ...] = (
    envs.Chain,
    envs.Continuous,
    envs.Recall,
    envs.Pixels,
    envs.Masked,
    multi_part_actions.Dials,
    multi_part_actions.MaskedDials,
    multi_part_actions.Switches,
    multi_part_actions.Panel,
)
#: Rows of a small run; several, so that one vector step may make several batches due.
ROWS = 8
#: Env steps within which there must be updates.
BUDGET = 20_000


@dataclass(frozen=True)
class Horizon:
    """The vector steps at which a run at home makes its first and its third update, all 0 without a third.

    `burst` is the number of an update after which another was owed in the same vector step, 0 where that never was.
    """

    first: int = 0
    turns: int = 0
    burst: int = 0


class Subject:
    """An imported algorithm with the options it is examined with.

    Raises:
        UsageError: an option in `given` is wrong, or there is no such class or environment. PluginError: it cannot be
            loaded.
    """

    def __init__(
        self, name: str, record: Record | None, given: Mapping[str, object], env: str | None
    ) -> None:
        self.name = name
        self.record = record
        self.given = given
        self.env = env
        self.cls: type[Any] = algorithm(name)
        self.notes: dict[Any, Any] = {}
        if given and not self._schema_error():
            convert(self.cls.Config, given, name)

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the result of `make`, computed once; several checks use it."""
        if key not in self.notes:
            self.notes[key] = make()
        found: T = self.notes[key]
        return found

    @contextmanager
    def apart(self) -> Iterator[None]:
        """One torch thread, as in a run; the process's generators are afterwards as before."""
        with torch_settings(1), untouched():
            yield

    @cached_property
    def config(self) -> Any:
        """The configuration: the given options over the preset for all environments over the defaults."""
        own = {option.name for option in schema(self.cls.Config)}
        usual = {name: value for name, value in preset(self.name, "").items() if name in own}
        return convert(self.cls.Config, {**usual, **self.given}, self.name)

    def learner(
        self, spec: Spec, seeds: Seeds, optimizer: OptimizerFactory = Optimizer
    ) -> Learner[Any]:
        """A fresh learner."""
        made: Learner[Any] = self.cls(spec, self.config, Context(seeds, optimizer=optimizer))
        return made

    @cached_property
    def refusals(self) -> dict[str, Exception | None]:
        """For every environment, by name, what building a learner for it raised; None where it was accepted."""
        return {name: self._refusal(make(ROWS).spec) for name, make in self.makers.items()}

    @cached_property
    def makers(self) -> dict[str, Callable[[int], Env]]:
        """Return the maker of each environment, by the name under which any process can make it."""
        own: dict[str, Callable[[int], Env]] = {}
        if self.env is not None:
            env = self.env
            own[env] = lambda num_envs: make_env(env, num_envs)
        return own | {_name(probe): _calm(probe) for probe in PROBES}

    @cached_property
    def accepted(self) -> tuple[str, ...]:
        """The names of the environments it accepts; its home is the first."""
        return tuple(name for name, refusal in self.refusals.items() if refusal is None)

    @property
    def home(self) -> str:
        """The environment that most checks run on."""
        return self.accepted[0]

    @cached_property
    def spec(self) -> Spec:
        """Return the spec of its home."""
        return self.home_env().spec

    @cached_property
    def horizon(self) -> Horizon:
        """Return when a run at home learns."""
        trial = Trial(self, self.home_env())
        if not trial.run_updates(3, BUDGET):
            return Horizon()
        turns = trial.updates.turns
        burst = next(
            (number for number in range(1, len(turns)) if turns[number - 1] == turns[number]), 0
        )
        return Horizon(turns[0], trial.turns, burst)

    def accepts(self, probe: type[envs.Vector]) -> bool:
        return self.refusals[_name(probe)] is None

    def home_env(self, num_envs: int = ROWS) -> Env:
        return self.makers[self.home](num_envs)

    def require(self, probe: type[envs.Vector]) -> None:
        """Raise `Skipped` where it does not accept one of the kit's environments."""
        refusal = self.refusals[_name(probe)]
        if refusal is not None:
            raise Skipped(f"it refuses {probe.__name__}: {refusal}")

    def _refusal(self, spec: Spec) -> Exception | None:
        try:
            self.learner(spec, Seeds(0))
        except Exception as error:  # noqa: BLE001  # the plugin is foreign code and may raise anything
            return error
        return None

    def _schema_error(self) -> bool:
        """Return whether the configuration itself is wrong, which a check reports."""
        try:
            schema(self.cls.Config)
        except (BadConfig, TypeError):
            return True
        return False


def _calm(probe: type[envs.Vector]) -> Callable[[int], Env]:
    """A probe that leaves alone what it handed out: one check asks who keeps it, the others are about other things."""

    def make(num_envs: int) -> Env:
        env = probe(num_envs)
        env.scribbles = False
        return env

    return make


def _name(probe: type[envs.Vector]) -> str:
    return f"{probe.__module__}:{probe.__qualname__}"


def short(name: str) -> str:
    """Return the name of an environment in sentences."""
    return name.rpartition(":")[2]
