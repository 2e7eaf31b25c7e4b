"""One import line brings everything that an algorithm file needs, and nothing is loaded before it is used."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import rlplug_core


def test_every_name_is_there_and_is_listed() -> None:
    for name in rlplug_core.__all__:
        assert getattr(rlplug_core, name) is not None
    assert sorted(rlplug_core.__all__) == sorted(rlplug_core._HOMES)
    assert set(rlplug_core.__all__) < set(dir(rlplug_core))


def test_a_type_checker_sees_the_same_names() -> None:
    tree = ast.parse(inspect.getsource(rlplug_core))
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    seen = {
        alias.name: str(node.module).removeprefix("rlplug_core.")
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == rlplug_core._HOMES


def test_policies_are_told_apart() -> None:
    from rlplug_core.nets import policies
    from rlplug_core.runs import policy

    assert rlplug_core.PolicyNetwork is policies.PolicyNetwork
    assert rlplug_core.Policy is policy.Policy


def test_listing_the_names_loads_nothing() -> None:
    script = "import sys, rlplug_core; print(dir(rlplug_core)); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    listed, loaded = done.stdout.splitlines()
    assert "'gae'" in listed
    assert "torch" not in loaded.split()


def test_the_example_has_one_import_line_of_ours() -> None:
    source = (Path(__file__).parents[2] / "examples" / "my_algo.py").read_text(encoding="utf-8")
    assert re.findall(r"^.*import.*rlplug.*$|^.*rlplug.*import.*$", source, re.M) == ["import rlplug_core as rl"]
