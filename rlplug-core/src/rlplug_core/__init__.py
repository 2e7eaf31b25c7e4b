"""rlplug-core: the protocols, the training loop and the plugin contract of rlplug.

Import everything that an algorithm, a wrapper or a script needs from here. Each name is loaded when it is first used,
so importing this package is fast. The names are in `__init__.pyi`, which type checkers and editors read too.
`Policy` is the class that a user loads from a run; `PolicyNetwork` is the network.

Front ends, such as the command line, import the names of a room from the room: `rlplug_core.config`, `plugins`, `loop`,
`export`, `films`, `runs` and `testing`.
"""

from __future__ import annotations

from rlplug_core.doors import open_door
from rlplug_core.processor import configure_openblas

__version__ = "0.1.0"
__getattr__, __dir__, __all__ = open_door(__name__)

configure_openblas()
