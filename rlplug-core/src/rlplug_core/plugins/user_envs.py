"""Makes environments of ours from a user's class, function or object."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from rlplug_core.config.import_string import describe
from rlplug_core.errors import PluginError, RlplugError, UsageError, did_you_mean
from rlplug_core.plugins.loading import build
from rlplug_core.plugins.names import DEFAULT, usable

if TYPE_CHECKING:
    from rlplug_core.protocols import Env, SupportsAdopt

T = TypeVar("T")
#: The parameter of a function that gets the number of environments to return.
ROWS = "num_envs"
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def make_from_code(
    code: object,
    name: str,
    num_envs: int,
    arguments: Mapping[str, object],
) -> Env:
    """Make `num_envs` environments from a user's code.

    Args:
        code: a class of single environments, made once per row; or a function. One with a parameter `num_envs` (or with
            any required parameter that is not among the arguments) returns that many, as a Gymnasium vector or as ours;
            one without returns a `gymnasium.Env`, and is called once per row.
        arguments: keyword arguments of the class or the function.

    Raises:
        UsageError: it has no such argument, or made another number. PluginError: it raised, or made something else.
    """
    from gymnasium import Env as Single  # heavy, so only here

    if not callable(code):
        raise PluginError(
            f"'{name}' is a {type(code).__name__}; an environment is a subclass of gymnasium.Env, or a function that "
            "returns one or a vector of them"
        )
    check_arguments(code, name, arguments)
    if isinstance(code, type) and issubclass(code, Single):
        return adopt(partial(code, **arguments), num_envs, name)
    make, takes_number = _call(code, num_envs, arguments)
    first = call_user_code(make, name)
    if takes_number and isinstance(first, Single):
        raise PluginError(
            f"'{name}' takes the number of environments, but returned one; leave '{ROWS}' out of it"
        )
    env = adopt_like(first, _first_then_new(first, make, name), num_envs, name)
    # Single environments and worlds were made once per row; a function chooses the number in a vector.
    has_right_number = isinstance(first, Single) or is_world(first)
    return env if has_right_number else check_env(env, name, num_envs)


def _call(
    code: Any,
    num_envs: int,
    arguments: Mapping[str, object],
) -> tuple[Callable[[], object], bool]:
    """Return the call of a function, and whether the function takes the number of environments."""
    parameters = _parameters(code)
    if ROWS in parameters and parameters[ROWS].kind is not inspect.Parameter.POSITIONAL_ONLY:
        return partial(code, **{ROWS: num_envs}, **arguments), True
    needed = [
        parameter.name
        for parameter in parameters.values()
        if parameter.kind in _POSITIONAL and parameter.default is parameter.empty
    ]
    if [name for name in needed if name not in arguments]:
        return partial(code, num_envs, **arguments), True
    return partial(code, **arguments), False


def _parameters(code: Any) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(code).parameters
    except (TypeError, ValueError):  # code in C may have no signature
        return {}


def accepts_keyword(code: object, keyword: str) -> bool:
    """Return whether a class or a function takes a keyword."""
    parameters = _parameters(code)
    return keyword in parameters or any(
        parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()
    )


def check_arguments(
    code: object,
    name: str,
    arguments: Mapping[str, object],
) -> None:
    """Raise UsageError if a class or a function does not take a keyword."""
    parameters = _parameters(code)
    if ROWS in arguments:
        raise UsageError(f"'{name}': the option {ROWS} sets the number of environments")
    for keyword in arguments:
        if not accepts_keyword(code, keyword):
            known = [parameter for parameter in parameters if parameter != ROWS]
            raise UsageError(
                f"'{name}' takes no argument '{keyword}'{did_you_mean(keyword, known)} "
                f"(it takes {', '.join(known) or 'none'})"
            )


def _first_then_new(
    first: object,
    make: Callable[[], object],
    name: str,
) -> Callable[[], object]:
    """Return a function that returns `first` at its first call, and then new environments.

    It raises PluginError if a new one is the first one again: rows and evaluations would step the same world.
    """
    from gymnasium import Env as Single
    from gymnasium.vector import VectorEnv

    waiting = [first]
    world = getattr(first, "unwrapped", first)

    def next_env() -> object:
        if waiting:
            return waiting.pop()
        env = make()
        bare = getattr(env, "unwrapped", env)
        if bare is world and (is_world(env) or isinstance(env, Single | VectorEnv)):
            raise PluginError(
                f"'{name}' returned the same environment twice, which training and evaluation would share; make a new "
                "one at every call, or give the environment itself in place of a function"
            )
        return env

    return next_env


def adopt(make: Callable[[], object], num_envs: int, name: str) -> Env:
    """Return several single environments as one vector."""
    adopter = _adopter(name)
    return call_user_code(lambda: adopter.adopt(make, num_envs, name), name, make)


def adopt_like(
    example: object,
    make: Callable[[], object],
    num_envs: int,
    name: str,
) -> Any:
    """Return environments from `make` as one of ours; `example` is of the same kind as those that it makes.

    Several calls of `make` give `num_envs` single environments or worlds; one call gives a vector. Anything else is
    returned unchanged.
    """
    from gymnasium import Env as Single
    from gymnasium.vector import VectorEnv

    if isinstance(example, Single):
        return adopt(make, num_envs, name)
    if is_world(example):
        return call_user_code(lambda: _adopter(name).adopt_worlds(make, num_envs, name), name)
    if isinstance(example, VectorEnv) or is_tensor_env(example):
        return call_user_code(lambda: _adopter(name).adopt_vector(make, name), name)
    return make()


def _adopter(name: str) -> SupportsAdopt:
    """Return the default provider of environments; raise PluginError if it cannot adopt the environment `name`."""
    from rlplug_core.protocols import SupportsAdopt

    adopter = build(usable("envs", DEFAULT))
    if not isinstance(adopter, SupportsAdopt):
        raise PluginError(
            f"the environment provider '{DEFAULT}' cannot adopt '{name}'; upgrade rlplug-envs"
        )
    return adopter


def is_tensor_env(env: object) -> bool:
    """Return whether an object is a vector of environments that declares a device for its tensors."""
    from rlplug_core.protocols import TensorEnv  # with torch, so only here

    return isinstance(env, TensorEnv)


def with_device(
    code: object,
    arguments: Mapping[str, object],
    device: str,
) -> Mapping[str, object]:
    """Add the run's device to the arguments of code that makes rows on a device: it takes `num_envs` and `device`."""
    parameters = _parameters(code)
    if "device" in arguments or not {ROWS, "device"} <= parameters.keys():
        return arguments
    return {**arguments, "device": device}


def is_world(env: object) -> bool:
    """Return whether an object is a world of many agents with one of PettingZoo's interfaces."""
    members = ("possible_agents", "observation_space", "action_space", "reset", "step")
    return all(hasattr(env, name) for name in members)


def hold(env: object, name: str) -> Env:
    """Return an existing environment unchanged; closing the result leaves it open."""
    from gymnasium import Env as Single
    from gymnasium.vector import VectorEnv

    if isinstance(env, Single | VectorEnv) or is_tensor_env(env):
        return call_user_code(lambda: _adopter(name).hold(env, name), name)
    if is_world(env):
        return call_user_code(lambda: _adopter(name).hold_world(env, name), name)
    return check_env(env, name, None)


def is_environment(code: object) -> bool:
    """Return whether a class is an environment and not a wrapper."""
    from gymnasium import Env as Single  # heavy, so only here
    from gymnasium import Wrapper

    return isinstance(code, type) and issubclass(code, Single) and not issubclass(code, Wrapper)


def check_env(env: Any, name: str, num_envs: int | None) -> Env:
    """Return `env` if it is an environment of ours with this number of environments.

    Raises:
        UsageError: it has another number. PluginError: it is something else.
    """
    missing = [
        part for part in ("spec", "reset", "step", "state_dict") if getattr(env, part, None) is None
    ]
    if missing:
        kind = "None" if env is None else f"a {type(env).__name__}"
        raise PluginError(f"'{name}' made {kind}, {_describe_other(env, missing)}")
    # In a multi-agent world each agent has a row.
    agents = len(set(getattr(env.spec, "agents", ()))) or 1
    count = getattr(env.spec, ROWS, num_envs)
    count = count // agents if count else count
    if num_envs is not None and count != num_envs:
        env.close()
        raise UsageError(
            f"'{name}' made {count} environments but was called for {num_envs}; give the function a parameter "
            f"'{ROWS}', and return that many"
        )
    return env


def _describe_other(env: object, missing: list[str]) -> str:
    """Describe an object that is not an environment, and the accepted forms."""
    if any(base.__module__.partition(".")[0] == "gym" for base in type(env).__mro__):
        return (
            "an environment of the old package gym: derive its class from gymnasium.Env, whose reset returns (obs, "
            "info) and whose step returns (obs, reward, terminated, truncated, info)"
        )
    remedy = "return a gymnasium.Env or a gymnasium.vector.VectorEnv"
    if not {"reset", "step"} & set(missing):
        remedy = "derive its class from gymnasium.Env"
    return f"which is not an environment: {remedy} (one of rlplug's own has {', '.join(map(repr, missing))} too)"


def missing_argument(make: Callable[..., object]) -> str:
    """Return the first required argument, or an empty string."""
    parameters = _parameters(make).values()
    return next(
        (
            parameter.name
            for parameter in parameters
            if parameter.kind in _NAMED and parameter.default is parameter.empty
        ),
        "",
    )


def call_user_code(
    make: Callable[[], T],
    name: str,
    code: Callable[[], object] | None = None,
) -> T:
    """Call a user's code and return its result; `code` is the code itself if `make` only wraps it.

    Raises:
        PluginError: it raised.
    """
    try:
        return make()
    except (RlplugError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # user code may raise anything
        missing = missing_argument(code or make) if isinstance(error, TypeError) else ""
        remedy = f"give it: --env.{missing} VALUE" if missing else "--traceback shows where"
        if missing == "device":
            remedy = f"rlplug gives it to a function with the parameters '{ROWS}' and 'device'"
        raise PluginError(f"'{name}' cannot be made: {describe(error)}; {remedy}") from error
