"""The list of all checks, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, TypeAlias

Level: TypeAlias = Literal["static", "import", "contract", "learn"]

#: The class that represents the tested plugin, by kind: `module:class` in this package.
SUBJECTS = {
    "algorithm": "subject:Subject",
    "env": "env_subject:EnvSubject",
    "wrapper": "env_subject:WrapperSubject",
    "controller": "controller_checks:ControllerSubject",
    "population": "population_checks:PopulationSubject",
    "hooks": "hook_checks:HooksSubject",
    "memory": "module_subject:MemorySubject",
    "network": "module_subject:NetworkSubject",
}


def load_place(place: str) -> Any:
    """Return the object `module:name` of this package."""
    module, _, name = place.partition(":")
    return getattr(import_module(f"rlplug_core.testing.kit.{module}"), name)


@dataclass(frozen=True)
class Rule:
    """One check: the place of its code, and the checks it depends on.

    Attributes:
        place: `module:function` in this package; the function takes a subject and raises `Failed` or `Skipped`.
        needs: checks that must pass first; if one of them fails, this one is skipped.
        since: the contract that makes it mandatory; for plugins of older ones it is provisional and only warns.
    """

    name: str
    level: Level
    place: str
    needs: tuple[str, ...] = ()
    since: int = 1

    @property
    def function(self) -> Callable[[Any], None]:
        function: Callable[[Any], None] = load_place(self.place)
        return function

    @property
    def summary(self) -> str:
        """The tested behavior in one sentence."""
        return (self.function.__doc__ or "").strip().partition("\n")[0]


#: Checks that others need: state can be saved, and two runs with one seed have the same bits.
_STATE = ("save-load",)
_BITS = ("seeding",)
_STATE_AND_BITS = (*_STATE, *_BITS)

RULES = (
    Rule("entry-point", "static", "static:entry_point"),
    Rule("index", "static", "static:fresh_index"),
    Rule("options", "static", "static:options"),
    Rule("help", "static", "static:help_texts", ("options",), since=2),
    Rule("runners", "static", "static:runner_names"),
    Rule("presets", "static", "static:presets", ("options",)),
    Rule("import-light", "import", "imports:light"),
    Rule("import-quiet", "import", "imports:quiet"),
    Rule("spaces", "contract", "acting:spaces", ("options", "presets", "runners")),
    Rule("protocol", "contract", "acting:protocol", ("spaces",)),
    Rule("actions", "contract", "acting:actions", ("protocol",)),
    Rule("inputs", "contract", "side_effects:inputs", ("actions",), since=2),
    Rule("masks", "contract", "acting:masks", ("actions",)),
    Rule("updates", "contract", "updating:updates", ("actions",)),
    Rule("metrics", "contract", "updating:metrics", ("updates",)),
    Rule("clock", "contract", "updating:clock", ("updates",)),
    Rule("leaks", "contract", "side_effects:leaks", ("updates",)),
    Rule("seeding", "contract", "state:seeding", ("updates",)),
    Rule("generators", "contract", "side_effects:generators", ("updates",), since=2),
    Rule("non-finite", "contract", "updating:non_finite", _BITS, since=2),
    Rule("explore", "contract", "side_effects:explore", _BITS, since=2),
    Rule("agents", "contract", "agents:agents", ("updates", *_BITS)),
    Rule("memory", "contract", "agents:memory", ("updates", *_BITS)),
    Rule("save-load", "contract", "state:save_load", ("updates",)),
    Rule("resume", "contract", "state:resume", _STATE_AND_BITS),
    Rule("hidden-state", "contract", "unsaved_state:hidden", _STATE_AND_BITS, since=2),
    Rule("fresh-process", "contract", "state:fresh_process", ("resume",)),
    Rule("evaluation", "contract", "state:evaluation", _BITS),
    Rule("copies", "contract", "updating:copies", _BITS),
    Rule("termination", "contract", "termination:termination", _BITS),
    Rule("truncation", "contract", "termination:truncation", _BITS),
    Rule("successors", "contract", "termination:successors", ("truncation",), since=2),
    Rule("episodes", "contract", "credit:episodes", _STATE_AND_BITS, since=2),
    Rule("rewards", "contract", "credit:rewards", _STATE_AND_BITS, since=2),
    Rule("weight-zero", "contract", "updating:weight_zero", _BITS),
    Rule("pauses", "contract", "updating:pauses", ("weight-zero",), since=2),
    Rule("weight-scale", "contract", "updating:weight_scale", _BITS),
    Rule("signals", "contract", "input_checks:signals", _BITS, since=2),
    Rule("views", "contract", "view_checks:views", _BITS, since=2),
    Rule("dataset", "contract", "input_checks:dataset", _STATE_AND_BITS, since=2),
    Rule("extras", "contract", "learner_extras:extras", _STATE_AND_BITS, since=2),
    Rule("tensors", "contract", "learner_tensors:tensors", ("updates",), since=2),
    Rule("export", "contract", "export:export", ("updates", *_BITS), since=2),
    Rule("async", "contract", "runners:asynchronous", _BITS),
    Rule("decoupled", "contract", "runners:decoupled", _BITS),
    Rule("learn-chain", "learn", "learning:chain", _BITS),
    Rule("learn-continuous", "learn", "learning:continuous", _BITS),
    Rule("learn-masked", "learn", "learning:masked", ("masks", *_BITS)),
    Rule("learn-episodes", "learn", "learning:episodes", _BITS, since=2),
    Rule("learn-truncated", "learn", "learning:truncated", ("truncation",)),
)

#: Checks of an environment; a wrapped environment must pass them too.
ENV_RULES = (
    Rule("env-spaces", "contract", "env_checks:spaces", since=2),
    Rule("env-scale", "contract", "env_checks:scale", ("env-spaces",), since=2),
    Rule("env-steps", "contract", "env_checks:steps", ("env-spaces",), since=2),
    Rule("env-seeding", "contract", "env_checks:seeding", ("env-spaces",), since=2),
    Rule("env-arrays", "contract", "env_checks:arrays", ("env-seeding",), since=2),
    Rule("env-state", "contract", "env_checks:state", ("env-seeding",), since=2),
    Rule("env-close", "contract", "env_checks:close", ("env-spaces",), since=2),
)


def _rules(kind: str, first: str, others: tuple[str, ...]) -> tuple[Rule, ...]:
    """Return the checks in `<kind>_checks`, named like their functions; the others depend on the first one."""
    return tuple(
        Rule(
            f"{kind}-{name}",
            "contract",
            f"{kind}_checks:{name}",
            () if name == first else (f"{kind}-{first}",),
            since=2,
        )
        for name in (first, *others)
    )


KINDS: dict[str, tuple[Rule, ...]] = {
    "algorithm": RULES,
    "env": (
        *ENV_RULES,
        Rule("env-unknown", "contract", "env_checks:unknown", since=2),
        Rule("env-device", "contract", "tensor_envs:device", ("env-spaces",), since=2),
        Rule("env-device-waits", "contract", "tensor_envs:device_waits", ("env-device",), since=2),
        Rule("env-device-rows", "contract", "tensor_envs:device_rows", ("env-device",), since=2),
        Rule(
            "env-device-resets", "contract", "tensor_envs:device_resets", ("env-device",), since=2
        ),
    ),
    "wrapper": (
        *ENV_RULES,
        Rule("wrapper-inputs", "contract", "wrapper_checks:inputs", ("env-spaces",), since=2),
        Rule("wrapper-episodes", "contract", "wrapper_checks:episodes", ("env-seeding",), since=2),
        Rule("wrapper-observe", "contract", "wrapper_checks:observe", ("env-seeding",), since=2),
        Rule(
            "wrapper-learned", "contract", "wrapper_checks:learned_state", ("env-spaces",), since=2
        ),
    ),
    "controller": _rules("controller", "events", ("reason", "state", "settings", "generators")),
    "population": _rules(
        "population", "exchanges", ("values", "failures", "seed", "inputs", "resume")
    ),
    "hooks": (
        Rule("hooks-registered", "static", "hook_checks:registered", since=2),
        Rule("hooks-events", "contract", "hook_checks:events", ("hooks-registered",), since=2),
        Rule("hooks-options", "contract", "hook_checks:options", ("hooks-registered",), since=2),
        Rule("hooks-leftovers", "contract", "hook_checks:leftovers", ("hooks-events",), since=2),
    ),
    "memory": _rules(
        "memory", "state", ("unroll", "episodes", "recall", "rows", "weights", "export")
    ),
    "network": _rules("network", "outputs", ("rows", "calls", "weights", "export")),
}
