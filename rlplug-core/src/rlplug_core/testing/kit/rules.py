"""The list of all checks of algorithms, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from rlplug_core.testing.kit.subject import Subject

Level: TypeAlias = Literal["static", "import", "contract", "learn"]

#: The contract that this version of rlplug-core holds plugins to. It grows by one when something may break.
CONTRACT = 1


@dataclass(frozen=True)
class Rule:
    """One check: where its code is, and what it rests on.

    Attributes:
        place: `module:function` in this package; the function takes a `Subject` and raises `Failed` or `Skipped`.
        needs: checks without which this one says nothing; it is skipped where one of them fails.
        since: the contract with which it binds; before, it is provisional and only warns.
    """

    name: str
    level: Level
    place: str
    needs: tuple[str, ...] = ()
    since: int = 1

    @property
    def provisional(self) -> bool:
        return self.since > CONTRACT

    @property
    def function(self) -> Callable[[Subject], None]:
        module, _, name = self.place.partition(":")
        found: Callable[[Subject], None] = getattr(import_module(f"rlplug_core.testing.kit.{module}"), name)
        return found

    @property
    def summary(self) -> str:
        """Return what it tests, in one sentence."""
        return (self.function.__doc__ or "").strip().partition("\n")[0]


_STATE = ("save-load",)
_BITS = ("seeding",)
_STATE_AND_BITS = (*_STATE, *_BITS)

RULES = (
    Rule("entry-point", "static", "static:entry_point"),
    Rule("index", "static", "static:fresh_index"),
    Rule("options", "static", "static:options"),
    Rule("help", "static", "static:help_texts", ("options",), since=2),
    Rule("runners", "static", "static:known_runners"),
    Rule("presets", "static", "static:presets", ("options",)),
    Rule("import-light", "import", "imports:light"),
    Rule("import-quiet", "import", "imports:quiet"),
    Rule("spaces", "contract", "acting:spaces", ("options", "presets", "runners")),
    Rule("protocol", "contract", "acting:protocol", ("spaces",)),
    Rule("actions", "contract", "acting:actions", ("protocol",)),
    Rule("inputs", "contract", "manners:inputs", ("actions",), since=2),
    Rule("masks", "contract", "acting:masks", ("actions",)),
    Rule("updates", "contract", "updating:updates", ("actions",)),
    Rule("metrics", "contract", "updating:metrics", ("updates",)),
    Rule("clock", "contract", "updating:clock", ("updates",)),
    Rule("leaks", "contract", "leaks:leaks", ("updates",)),
    Rule("seeding", "contract", "state:seeding", ("updates",)),
    Rule("generators", "contract", "manners:generators", ("updates",), since=2),
    Rule("non-finite", "contract", "updating:non_finite", _BITS, since=2),
    Rule("explore", "contract", "manners:explore", _BITS, since=2),
    Rule("agents", "contract", "agents:agents", ("updates", *_BITS)),
    Rule("memory", "contract", "agents:memory", ("updates", *_BITS)),
    Rule("save-load", "contract", "state:save_load", ("updates",)),
    Rule("resume", "contract", "state:resume", _STATE_AND_BITS),
    Rule("hidden-state", "contract", "hidden:hidden", ("resume",), since=2),
    Rule("fresh-process", "contract", "state:fresh_process", ("resume",)),
    Rule("evaluation", "contract", "state:evaluation", _BITS),
    Rule("copies", "contract", "updating:copies", _BITS),
    Rule("termination", "contract", "ends:termination", _BITS),
    Rule("truncation", "contract", "ends:truncation", _BITS),
    Rule("successors", "contract", "ends:successors", ("truncation",), since=2),
    Rule("episodes", "contract", "credit:episodes", _STATE_AND_BITS, since=2),
    Rule("rewards", "contract", "credit:rewards", _STATE_AND_BITS, since=2),
    Rule("weight-zero", "contract", "updating:weight_zero", _BITS),
    Rule("pauses", "contract", "updating:pauses", ("weight-zero",), since=2),
    Rule("weight-scale", "contract", "updating:weight_scale", _BITS),
    Rule("async", "contract", "runners:asynchronous", _BITS),
    Rule("decoupled", "contract", "runners:decoupled", _BITS),
    Rule("learn-chain", "learn", "learning:chain", _BITS),
    Rule("learn-continuous", "learn", "learning:continuous", _BITS),
    Rule("learn-masked", "learn", "learning:masked", ("masks", *_BITS)),
    Rule("learn-episodes", "learn", "learning:tempted", _BITS, since=2),
    Rule("learn-truncated", "learn", "learning:truncated", ("truncation",)),
)
