"""The tested algorithm: its class, its configuration, and the environments it accepts."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from rlplug_core.config.parse import convert
from rlplug_core.config.schema import schema
from rlplug_core.context import Context
from rlplug_core.errors import BadConfig, RlplugError, UsageError
from rlplug_core.learner_dataset import LearnerDataset
from rlplug_core.learning.optimizer import Optimizer, OptimizerFactory
from rlplug_core.plugins import algorithm, make_env
from rlplug_core.plugins.presets import preset
from rlplug_core.plugins.records import Record
from rlplug_core.plugins.spec import WrapperSpec, wrap_env
from rlplug_core.protocols import Env, Learner
from rlplug_core.seeds import Seeds
from rlplug_core.testing import envs, multi_part_actions
from rlplug_core.testing.kit.outcome import Skipped
from rlplug_core.testing.kit.short_run import Trial
from rlplug_core.types import Spec

T = TypeVar("T")

#: The environments of the kit, in order of preference: usual actions, other observations, other actions.
KIT_ENVS: tuple[type[envs.Vector], ...] = (
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
#: Rows of a small run; several, so one vector step may make several batches due.
ROWS = 8
#: Maximum env steps before updates must occur.
BUDGET = 20_000


@dataclass(frozen=True)
class Horizon:
    """The vector steps of the first (`first`) and third (`turns`) update on the main environment; 0 without a third.

    `repeated_update` is the number of an update that is followed by another one in the same vector step, or 0.
    """

    first: int = 0
    turns: int = 0
    repeated_update: int = 0


class Subject:
    """An imported algorithm with the options of the test.

    Raises:
        UsageError: an option is wrong, or the class, environment or wrapper does not exist.
        PluginError: the algorithm cannot be loaded.
    """

    def __init__(
        self,
        name: str,
        record: Record | None,
        options: Mapping[str, object],
        env: str | None,
        wrap: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.record = record
        self.options = options
        self.env = env
        self.wrap = wrap
        self.wrappers = tuple(map(WrapperSpec.parse, wrap))
        self.cls: type[Any] = algorithm(name)
        self.cache: dict[Any, Any] = {}
        if options and not self._has_wrong_schema():
            convert(self.cls.Config, options, name)

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the result of `make`, computed once; several checks use it."""
        if key not in self.cache:
            self.cache[key] = make()
        return self.cache[key]

    @cached_property
    def config(self) -> Any:
        """The configuration: the options of the test over the preset for all environments over the defaults."""
        names = {option.name for option in schema(self.cls.Config)}
        preset_values = {
            name: value for name, value in preset(self.name, "").items() if name in names
        }
        return convert(self.cls.Config, {**preset_values, **self.options}, self.name)

    def learner(
        self,
        spec: Spec,
        seeds: Seeds,
        optimizer: OptimizerFactory = Optimizer,
        dataset: LearnerDataset | None = None,
    ) -> Learner[Any]:
        """Create a new learner. One that requires a data set and gets none only acts."""
        context = Context(seeds, optimizer=optimizer, dataset=dataset)
        return self.cls(spec, self.config, context)

    @cached_property
    def refusals(self) -> dict[str, Exception | None]:
        """The error of building the learner for each environment, or the UsageError of agent or buffer; else None."""
        return {name: self._refusal(make(ROWS).spec) for name, make in self.makers.items()}

    @cached_property
    def makers(self) -> dict[str, Callable[[int], Env]]:
        """Functions that create each environment, by a name that every process can import."""
        functions: dict[str, Callable[[int], Env]] = {}
        if self.env is not None:
            env = self.env
            functions[env] = lambda num_envs: wrap_env(make_env(env, num_envs), self.wrappers)
        for env_class in KIT_ENVS:
            if self._is_accepted_by_wrappers(env_class):
                functions[name_of(env_class)] = self._maker(env_class)
        return functions

    def _is_accepted_by_wrappers(self, env_class: type[envs.Vector]) -> bool:
        """Return whether the wrappers accept an environment of the kit; some wrappers need other environments."""
        try:
            self._maker(env_class)(ROWS)
        except RlplugError:
            return False
        return True

    def _maker(self, env_class: type[envs.Vector]) -> Callable[[int], Env]:
        """Return a function that makes an environment without `scribbles`: only the check `copies` tests for that."""

        def make(num_envs: int) -> Env:
            env = env_class(num_envs)
            env.scribbles = False
            return wrap_env(env, self.wrappers)

        return make

    @cached_property
    def accepted(self) -> tuple[str, ...]:
        """The names of accepted environments; the first is its main environment."""
        return tuple(name for name, refusal in self.refusals.items() if refusal is None)

    @property
    def main_env(self) -> str:
        """The name of the environment that most checks run on."""
        return self.accepted[0]

    @cached_property
    def spec(self) -> Spec:
        """The spec of its main environment."""
        return self.make_main_env().spec

    @cached_property
    def horizon(self) -> Horizon:
        """The vector steps of the first updates on its main environment."""
        trial = Trial(self)
        if not trial.run_updates(3, BUDGET):
            return Horizon()
        turns = trial.updates.turns
        repeated_update = next(
            (number for number in range(1, len(turns)) if turns[number - 1] == turns[number]), 0
        )
        return Horizon(turns[0], trial.turns, repeated_update)

    def make_main_env(self, num_envs: int = ROWS) -> Env:
        return self.makers[self.main_env](num_envs)

    def require(self, env_class: type[envs.Vector]) -> None:
        """Raise `Skipped` if it does not accept this environment of the kit."""
        if name_of(env_class) not in self.refusals:
            raise Skipped(f"the wrappers refuse {env_class.__name__}")
        refusal = self.refusals[name_of(env_class)]
        if refusal is not None:
            raise Skipped(f"it refuses {env_class.__name__}: {refusal}")

    def _refusal(self, spec: Spec) -> Exception | None:
        try:
            learner = self.learner(spec, Seeds(0))
        except Exception as error:  # noqa: BLE001  # the plugin is foreign code and may raise anything
            return error
        try:
            learner.agent()
            learner.buffer()
        except Exception as error:  # noqa: BLE001  # only a refusal counts; another error fails the check of the protocol
            return error if isinstance(error, UsageError) else None
        return None

    def _has_wrong_schema(self) -> bool:
        """Return whether the configuration class is wrong; a check reports it."""
        try:
            schema(self.cls.Config)
        except (BadConfig, TypeError):
            return True
        return False


def name_of(env_class: type[envs.Vector]) -> str:
    """Return the name of an environment of the kit that every process can import."""
    return f"{env_class.__module__}:{env_class.__qualname__}"


def short(name: str) -> str:
    """Return the short name of an environment for messages."""
    return name.rpartition(":")[2]
