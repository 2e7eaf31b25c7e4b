"""From a user's word to a plugin: an algorithm, a controller, a wrapper, a memory, a network, a logger or hooks.

A word is an id, `distribution/id`, an alias, `module:Class` or `./file.py:Class`. Only the named plugin is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rlplug_core.config.import_string import is_target, load_target
from rlplug_core.errors import PluginError, UsageError
from rlplug_core.plugins.loading import check_attributes, load
from rlplug_core.plugins.names import usable
from rlplug_core.plugins.records import Group


@dataclass(frozen=True)
class Kind:
    """A kind of plugin.

    Attributes:
        group: of entry points.
        noun: in messages, with its article.
        attributes: the names that its class must define.
        example: a word with options; empty if the kind takes none.
    """

    group: Group
    noun: str
    attributes: tuple[str, ...]
    example: str = ""


_STATE = ("state_dict", "load_state_dict")
ALGORITHM = Kind(
    "algorithms", "an algorithm", ("Config", "runners", "agent", "buffer", "update", *_STATE)
)
CONTROLLER = Kind("controllers", "a controller", _STATE, "early-stopping:patience=3")
LOGGER = Kind("loggers", "a logger", (), "my-logger:file=events.txt")
MEMORY = Kind("memories", "a memory", ("initial", "step", "unroll"), "gru:units=128")
NETWORK = Kind("networks", "a network", (), "my-network:depth=2")
POPULATION = Kind("populations", "a population rule", ("exchange",), "truncation:share=0.25")
WRAPPER = Kind("wrappers", "a wrapper", ("reset", "step", "close", *_STATE), "time-limit:steps=200")


def algorithm(name: str) -> type:
    """Return an algorithm's class.

    Raises:
        UsageError: no plugin has this name, or several have.
        PluginError: the plugin is disabled, incompatible or broken, or its class is not an algorithm.
    """
    return _class(ALGORITHM, name)


def controller(name: str) -> type:
    """Return a controller's class; raise as `algorithm` does."""
    return _class(CONTROLLER, name)


def memory(name: str) -> type:
    """Return a memory's class; raise as `algorithm` does."""
    return _class(MEMORY, name)


def network(name: str) -> Callable[..., object]:
    """Return the function or class that makes a network; raise as `algorithm` does."""
    maker: object = _load_code(NETWORK, name) if is_target(name) else load(usable("networks", name))
    if not callable(maker):
        raise PluginError(
            f"'{name}' is not a network: it is a {type(maker).__name__}; name a function (space, net) that returns "
            "(module, features)"
        )
    return maker


def population(name: str) -> type:
    """Return the class of a population's rule; raise as `algorithm` does."""
    return _class(POPULATION, name)


def wrapper(name: str) -> object:
    """Return a wrapper's class, which may be a `gymnasium.Wrapper`, or a function; raise as `algorithm` does."""
    from rlplug_core.plugins.single_wrappers import is_single  # imports torch and gymnasium

    if is_target(name):
        code = _load_code(WRAPPER, name)
        if is_single(code):
            return code
    return _class(WRAPPER, name)


def _class(kind: Kind, name: str) -> type:
    if is_target(name):
        return check_attributes(_load_code(kind, name), kind.attributes, f"'{name}'", kind.noun)
    record = usable(kind.group, name)
    return check_attributes(load(record), kind.attributes, str(record), kind.noun)


def _load_code(kind: Kind, name: str) -> object:
    """Return the object that `module:Class` or `./file.py:Class` names."""
    if kind.example and not name.rpartition(":")[2].isidentifier() and not name.endswith(".py"):
        raise UsageError(f"'{name}': options are written NAME:option=value, as in {kind.example}")
    return load_target(name, kind.noun.split()[1])


def logger(name: str) -> object:
    """Return the hooks of a logger: a module, an object or a class; raise as `algorithm` does.

    `MissingPackage` names a package that it needs.
    """
    return _load_code(LOGGER, name) if is_target(name) else load(usable("loggers", name))


def hook(name: str) -> object:
    """Return the hooks of an installed hook plugin: a module, an object or a class; raise as `algorithm` does."""
    if is_target(name):
        raise UsageError(
            f"'{name}' is not an installed hook plugin; to call the hooks of a class, type --log {name}"
        )
    return load(usable("hooks", name))


#: The function for the plugins of each group, except providers of environments.
LOADERS: Mapping[Group, Callable[[str], object]] = {
    "algorithms": algorithm,
    "wrappers": wrapper,
    "controllers": controller,
    "memories": memory,
    "networks": network,
    "populations": population,
    "hooks": hook,
    "loggers": logger,
}
