"""The provider of EnvPool's environments, stepped by threads of C++: `envpool:CartPole-v1`, `envpool:Pong-v5`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, VectorEnv

from rlplug_core.errors import BadEnv, MissingPackage, UnknownEnv, UsageError, did_you_mean, plain
from rlplug_core.processor import cores
from rlplug_core.protocols import Env
from rlplug_envs.adapter import Adapter
from rlplug_envs.families.envpool_arrays import StepResult, remove_copies, stepper
from rlplug_envs.families.listed import ListedProvider
from rlplug_envs.rows import row_seed

NAMESPACE = "envpool:"
INSTALL = "python -m pip install 'rlplug-envs[envpool]'"
#: Why a run cannot resume exactly.
INEXACT = "EnvPool does not expose its state"
#: Arguments that rlplug sets.
SET_BY_RLPLUG = (
    "base_path",
    "batch_size",
    "env_seed",
    "gym_reset_return_info",
    "max_num_players",
    "num_envs",
    "seed",
    "task",
)
#: Arguments that would change reported returns, with what to type instead.
REPLACEMENTS = {
    "episodic_life": "--wrap episodic-life",
    "reward_clip": "--wrap clip-reward",
    "zero_discount_on_life_loss": "--wrap episodic-life",
}


class EnvPool(ListedProvider):
    """Makes EnvPool's environments; `arguments` are settings of EnvPool: `num_threads`, `max_episode_steps`, …"""

    listed = "envpool"

    def make(self, id: str, num_envs: int) -> Env:
        """Make `num_envs` environments.

        Raises:
            UnknownEnv: EnvPool has no such id. MissingPackage: EnvPool is not installed.
            UsageError: the argument does not exist, or EnvPool refuses it. BadEnv: its actions have an unknown type.
        """
        id = NAMESPACE + id[len(NAMESPACE) :]  # also of `EnvPool:` and `envpool/`
        with _package(id, {}) as package:
            known = [NAMESPACE + name for name in package.list_all_envs()]
        if id not in known:
            raise UnknownEnv(f"unknown environment '{id}'{did_you_mean(id, known)}")
        with _package(id, {}) as package:
            settings = package.make_spec(id.removeprefix(NAMESPACE)).config._fields
            _check_arguments(id, settings, self.arguments)
        return Threads(Pool(id, num_envs, self.arguments))


class Threads(Adapter):
    """Environments of EnvPool: `threads` step them."""

    venv: Pool

    def __init__(self, pool: Pool) -> None:
        super().__init__(lambda: pool, pool.id, f"{pool.id}: {INEXACT}")
        self.threads = pool.threads

    def first_info(self) -> dict[str, Any]:
        """Return nothing: EnvPool puts no masks in `info`, and is only made when the seed is known."""
        return {}

    def limit(self, steps: int) -> None:
        """Truncate episodes after `steps` steps, which EnvPool does itself; called before the first reset."""
        self.venv.limit(steps)


class Pool(VectorEnv[Any, Any, Any]):
    """A vector of EnvPool that each seeded reset makes again: EnvPool fixes its seeds at construction."""

    def __init__(
        self,
        id: str,
        num_envs: int,
        arguments: Mapping[str, object],
    ) -> None:
        self.id, self.num_envs, self._name = id, num_envs, id.removeprefix(NAMESPACE)
        self._user_arguments = arguments
        self._arguments = {**arguments, "num_envs": num_envs}
        self.threads = self._arguments.setdefault("num_threads", min(num_envs, cores()))
        self._pool: Any = None
        self._step: Callable[[Any], StepResult] | None = None
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        with _package(self.id, self._user_arguments) as package:
            spec = package.make_spec(self._name, **self._arguments)
            self.single_observation_space = spec.gymnasium_observation_space
            self.single_action_space = spec.gymnasium_action_space
        self.spec = EnvSpec(self._name, max_episode_steps=spec.config.max_episode_steps)

    def limit(self, steps: int) -> None:
        """Truncate episodes after `steps` steps, or earlier if they already are."""
        assert self.spec is not None
        requested: Any = self._arguments.get("max_episode_steps")
        self._arguments["max_episode_steps"] = min(
            filter(None, (self.spec.max_episode_steps, requested, steps))
        )

    def reset(
        self,
        *,
        seed: Any = None,
        options: object = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Make every environment with its own seed, derived from `seed`."""
        self.close()
        seeds = [row_seed(seed, row) for row in range(self.num_envs)]
        with _package(self.id, self._user_arguments) as package:
            self._pool = package.make_gymnasium(self._name, env_seed=seeds, **self._arguments)
            obs, info = self._pool.reset()
        if len(info["players"]["env_id"]) != self.num_envs:
            raise BadEnv(
                f"{self.id}: several players share an environment, which rlplug does not take from EnvPool"
            )
        self._step = stepper(self._pool)
        return obs, remove_copies(info)

    def step(self, actions: Any) -> StepResult:
        assert self._step is not None
        return self._step(actions)

    def close(self, **kwargs: Any) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = self._step = None


@contextmanager
def _package(id: str, arguments: Mapping[str, object]) -> Iterator[ModuleType]:
    """Import EnvPool, which takes two seconds, and yield it for calls with an id and arguments.

    An exception becomes an error of one sentence; Gymnasium's warnings of float64 bounds are hidden.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            yield import_module("envpool")
    except ModuleNotFoundError as error:
        raise MissingPackage(
            f"'{id}' needs the Python module '{error.name}', which is not installed; install it: {INSTALL}"
        ) from error
    except ImportError as error:  # of a library of the system
        raise MissingPackage(f"'{id}' cannot be made here: {plain(str(error))}") from error
    except (AssertionError, RuntimeError, TypeError, ValueError) as error:
        arguments_text = (
            ", ".join(f"{name} {value}" for name, value in arguments.items()) or "its defaults"
        )
        reason = plain(str(error).strip().partition("\n")[0].partition(". ")[0])
        raise UsageError(
            f"'{id}' cannot be made by EnvPool with {arguments_text}: {reason}"
        ) from error


def _check_arguments(
    id: str,
    settings: Iterable[str],
    arguments: Mapping[str, object],
) -> None:
    """Raise UsageError for an argument that EnvPool does not take, or that would change reported returns."""
    known = sorted({*settings} - {*SET_BY_RLPLUG, *REPLACEMENTS})
    for word, value in arguments.items():
        if word in REPLACEMENTS and value:
            raise UsageError(
                f"'{id}': {word} would change the returns that are reported; type {REPLACEMENTS[word]} instead"
            )
        if word not in known and word not in REPLACEMENTS:
            hint = did_you_mean(word, known)
            raise UsageError(
                f"'{id}' takes no argument '{word}'{hint} (it takes {', '.join(known)})"
            )
