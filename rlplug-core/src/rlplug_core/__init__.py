"""rlplug-core: the protocols, the training loop and the plugin contract of rlplug.

Import everything that an algorithm, a wrapper or a script needs from here. A name is loaded when it is first used, so
importing this package costs nothing. The names are in `__init__.pyi`, which type checkers and editors read too.
`Policy` is the class that a user loads from a run; `PolicyNetwork` is the network.
"""

from __future__ import annotations

import re
import warnings
from importlib import import_module
from pathlib import Path

from rlplug_core.processor import tell_openblas

__version__ = "0.1.0"

_STUB = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
#: The module of each name.
_MODULES = {
    name: module for module, name in re.findall(r"^from (\S+) import \w+ as (\w+)$", _STUB, re.M)
}
#: The present name of each former one.
_RENAMED = dict(re.findall(r"^(\w+) = (\w+)$", _STUB, re.M))
__all__ = sorted(_MODULES)

tell_openblas()


def __getattr__(name: str) -> object:
    if name in _RENAMED:
        message = f"rlplug_core.{name} is now rlplug_core.{_RENAMED[name]}; the old name goes with the next version"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return __getattr__(_RENAMED[name])
    if name not in _MODULES:
        raise AttributeError(f"module 'rlplug_core' has no attribute '{name}'")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({name for name in globals() if name.startswith("__")} | {*__all__})
