"""The contract only grows: changes that break plugins are found."""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable
from types import ModuleType

import pytest

from rlplug_core.plugins.index import CONTRACT
from tests.contract import PATH, Described, breaks, describe, outline, snapshot

STORED: Described = json.loads(PATH.read_text(encoding="utf-8"))
#: Code of every kind in the contract; the tables below change it.
CODE = '''
from __future__ import annotations
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Protocol
Scheduled = Literal["float", "int"]
LIMIT = 20
def gae(rollout: Rollout, gamma: float, lam: float = 0.95, *, clip: float | None = None) -> Array:
    """Advantages."""
def old(name: str) -> None: ...
class Base: ...
class Buffer(Protocol):
    capacity: int
    def add(self, step: Step, source: int = 0) -> None: ...
class Learner(Base):
    runners: ClassVar[tuple[str, ...]] = ("sync",)
    def __init__(self, spec: Spec) -> None: ...
    def update(self, batch: Batch, clock: Clock) -> Result | None: ...
    @classmethod
    def migrate(cls, state: State) -> State: ...
    @property
    def device(self) -> str: ...
@dataclass
class Step:
    obs: Array
    reward: Array
    weight: Array | None = None
    extras: dict[str, Array] = field(default_factory=dict)
'''
#: A string in the code and its replacement, which breaks a plugin or its caller.
BREAKS = (
    ("def old(", "def new("),
    ("class Learner(Base)", "class Teacher(Base)"),
    ("Scheduled =", "Schedule ="),
    ('["float", "int"]', '["float"]'),
    ("LIMIT = 20", "LIMIT = 30"),
    ("def old(name: str) -> None: ...", "class old:\n    def __init__(self, name: str) -> None: ..."),
    ("gamma: float,", "discount: float,"),
    ("rollout: Rollout, gamma: float,", "gamma: float, rollout: Rollout,"),
    ("gamma: float,", ""),
    ("gamma: float,", "gamma: Schedule,"),
    ("lam: float = 0.95", "lam: float = 0.9"),
    ("lam: float = 0.95", "lam: float"),
    ("*, clip", "clip"),
    ("lam: float = 0.95, *,", "*, lam: float = 0.95,"),
    ("clip: float | None = None", "clip: float | None = None, sharp: bool"),
    ("clip: float | None", "clip: float"),
    ("-> Array:", "-> Tensor:"),
    ("-> Array:", "-> Array | None:"),
    ("class Learner(Base)", "class Learner"),
    ("class Base: ...", "Base = object"),
    ("def update(", "def learn("),
    ("clock: Clock) -> Result", "clock: Clock, now: Now) -> Result"),
    ("Result | None", "Result | float"),
    ("def __init__(self, spec: Spec)", "def __init__(self, spec: Spec, config: Config)"),
    ("def migrate(cls, state: State)", "def migrate(cls, old: State)"),
    ("def device(", "def place("),
    ("def device(self) -> str", "def device(self) -> int"),
    ("runners: ClassVar", "loops: ClassVar"),
    ("capacity: int", "capacity: str"),
    ("source: int = 0) -> None: ...", "source: int = 0) -> None: ...\n    def sample(self) -> Batch: ..."),
    ("class Buffer(Protocol)", "class Buffer"),
    ("    reward: Array\n", ""),
    ("    reward: Array\n", "    reward: float\n"),
    ("    obs: Array\n    reward: Array\n", "    reward: Array\n    obs: Array\n"),
    ("    reward: Array\n", "    reward: Array\n    cost: Array\n"),
    ("    weight: Array", "    cost: Array | None = None\n    weight: Array"),
    ("weight: Array | None = None", "weight: Array | None = 1"),
    ("default_factory=dict", "default=None"),
)
ADDITIONS = (
    ("Advantages.", "Advantages (Schulman et al., 2016)."),
    ("clip: float | None = None", "clip: float | str | None = None, sharp: bool = False"),
    ("Result | None", "Result"),
    ("class Base: ...", "class Base:\n    def more(self) -> int: ..."),
    ("default_factory=dict)", "default_factory=dict)\n    cost: Array | None = None"),
    ("LIMIT = 20", "LIMIT = 20\nMORE = 30"),
)
EXAMPLE = "rlplug_core.example"
EMPTY: Described = {"groups": [], "names": {}, "hooks": {}, "options": {}, "algorithms": {}, "schemas": {}}


def test_contract_only_grows() -> None:
    """Keep the former name or signature, or raise CONTRACT and write `python -m tests.contract`."""
    current = snapshot()
    assert None not in STORED["algorithms"].values(), "written while the index was older than the code"
    if STORED["contract"] == CONTRACT:
        assert breaks(STORED, current) == []
    parts = STORED.keys() - {"algorithms"}  # a new option of an algorithm joins with the next change of the contract
    grown = [part for part in parts if current[part] != STORED[part]]
    assert not grown, "the contract grew: python -m tests.contract writes it down"


def contract_of(code: str) -> Described:
    """Return the contract of a module that exports everything."""
    module = ModuleType(EXAMPLE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, EXAMPLE, module)  # data classes look their module up
        exec(code, vars(module))
    hidden = {"annotations", "dataclass", "field", "ClassVar", "Literal", "Protocol"}
    public = {name: value for name, value in vars(module).items() if name[0] != "_" and name not in hidden}
    return {**EMPTY, "names": {name: describe(value) for name, value in public.items()}}


def test_breaking_changes_of_code_are_found() -> None:
    before = contract_of(CODE)
    for change in (*BREAKS, *ADDITIONS):
        assert CODE.count(change[0]) == 1, change
    missed = [change for change in BREAKS if not breaks(before, contract_of(CODE.replace(*change)))]
    false = [breaks(before, contract_of(CODE.replace(*change))) for change in ADDITIONS]
    assert (missed, [one for one in false if one]) == ([], [])
    assert len(BREAKS) >= 30


def breaking_changes() -> list[Callable[[Described], object]]:
    """Return changes of groups, hooks, options and JSON outputs that break a plugin or a script."""
    return [
        lambda new: new["names"].pop("Algorithm"),
        lambda new: new["hooks"].popitem(),
        lambda new: new["hooks"]["rlplug_run_log"].pop(0),
        lambda new: new["options"].pop("seed"),
        lambda new: new["options"]["num_envs"].__setitem__("default", "7"),
        lambda new: new["options"]["seed"].__setitem__("type", "str"),
        lambda new: new["groups"].remove("wrappers"),
        lambda new: new["algorithms"].pop("ppo"),
        lambda new: new["algorithms"]["ppo"].pop("clip_range"),
        lambda new: new["algorithms"]["dqn"].__setitem__("buffer_size", "float"),
        lambda new: new["schemas"].pop("check.checks[].name"),
        lambda new: new["schemas"].__setitem__("check.checks[].name", "string"),
        lambda new: new["schemas"].__setitem__("check.checks[].seconds", "string | required"),
        lambda new: new["schemas"].__setitem__("check.checks", "array | null | required"),
    ]


def test_breaking_changes_of_hooks_options_and_outputs_are_found() -> None:
    missed = []
    for number, change in enumerate(breaking_changes()):
        new = copy.deepcopy(STORED)
        change(new)
        missed += [] if breaks(STORED, new) else [number]
    assert missed == []
    grown = copy.deepcopy(STORED)
    grown["hooks"]["rlplug_new"] = []
    grown["schemas"]["check.checks[].more"] = "string"
    grown["algorithms"]["ppo"]["more"] = "float"
    grown["algorithms"]["dqn"] = None  # its index file is older than its code
    assert breaks(STORED, grown) == []


def test_json_schema_becomes_one_line_per_value() -> None:
    schema = {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"type": "string"},
            "runs": {"type": "array", "items": {"properties": {"steps": {"type": ["integer", "null"]}}}},
            "best": {"anyOf": [{"type": "number"}, True]},
        },
        "additionalProperties": {"$ref": "#/$defs/one"},
        "$defs": {"one": {"type": "boolean"}},
    }
    assert outline(schema, "x") == {
        "x": "object",
        "x.name": "string | required",
        "x.runs": "array",
        "x.runs[]": "",
        "x.runs[].steps": "integer | null",
        "x.best": "",
        "x.best:0": "number",
        "x.best:1": "",
        "x.*": "#/$defs/one",
        "x#one": "boolean",
    }
