"""A change of the contract that is not an addition is noticed, before a plugin notices it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

from rlplug_core.plugins.index import CONTRACT
from tests.contract import PATH, Described, breaks, snapshot

STORED: Described = json.loads(PATH.read_text(encoding="utf-8"))


def test_the_contract_only_grows() -> None:
    """Keep the former name or signature, or raise CONTRACT and write `python -m tests.contract`."""
    current = snapshot()
    if STORED["contract"] == CONTRACT:
        assert breaks(STORED, current) == []
    assert current == STORED, "the contract grew: python -m tests.contract writes it down"


def planted() -> list[Callable[[Described], object]]:
    """Changes that break plugins."""
    names: Callable[[Described], Any] = lambda new: new["names"]  # noqa: E731
    gone = ("gae", "Algorithm", "Step", "Scheduled", "train", "Net", "ILLEGAL", "tree_map")
    methods = (
        ("Algorithm", "learn"),
        ("Algorithm", "optimizer"),
        ("Optimizer", "minimize"),
        ("Samples", "minibatches"),
    )
    fields = (
        ("Step", "reward"),
        ("Rollout", "weight"),
        ("Act", "extras"),
        ("Timestep", "final_obs"),
        ("Result", "metrics"),
    )
    parameters = (("gae", 1), ("clipped_surrogate", 2), ("standardize", 0), ("load", 0))
    return [
        *(lambda new, name=name: names(new).pop(name) for name in gone),
        *(lambda new, cls=cls, name=name: names(new)[cls]["methods"].pop(name) for cls, name in methods),
        *(lambda new, cls=cls, name=name: names(new)[cls]["fields"].pop(name) for cls, name in fields),
        *(lambda new, name=name, at=at: names(new)[name]["parameters"].pop(at) for name, at in parameters),
        lambda new: names(new)["gae"]["parameters"][0].__setitem__(0, "batch"),
        lambda new: names(new)["gae"]["parameters"].reverse(),
        lambda new: names(new)["gae"]["parameters"].append(["more", "KEYWORD_ONLY", ""]),
        lambda new: names(new)["Result"]["fields"].__setitem__("more", ""),
        lambda new: names(new)["Algorithm"].__setitem__("kind", "function"),
        lambda new: new["hooks"].popitem(),
        lambda new: new["hooks"]["rlplug_run_log"].pop(),
        lambda new: new["options"].pop("seed"),
        lambda new: new["options"]["num_envs"].__setitem__("default", "7"),
        lambda new: new["groups"].remove("wrappers"),
    ]


def test_planted_breaks_are_noticed_and_additions_are_not() -> None:
    changes = planted()
    assert len(changes) >= 30
    missed = []
    for number, change in enumerate(changes):
        new = copy.deepcopy(STORED)
        change(new)
        if not breaks(STORED, new):
            missed.append(number)
    assert not missed
    grown = copy.deepcopy(STORED)
    grown["names"]["gae"]["parameters"].append(["more", "KEYWORD_ONLY", "None"])
    grown["names"]["Result"]["fields"]["more"] = "made"
    grown["names"]["new_name"] = grown["names"]["gae"]
    grown["hooks"]["rlplug_new"] = []
    assert breaks(STORED, grown) == []
