"""One import gives all names that an algorithm file needs, and loads nothing before its use."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import rlplug_core
from rlplug_core.doors import read_stub

STUB = Path(rlplug_core.__file__).with_suffix(".pyi")


def test_all_names_exist_and_are_listed() -> None:
    for name in rlplug_core.__all__:
        assert getattr(rlplug_core, name) is not None
    assert len(rlplug_core.__all__) > 100
    assert set(rlplug_core.__all__) < set(dir(rlplug_core))


def test_stub_lists_only_names_that_the_package_reads() -> None:
    """Only type checkers would see a line in another form; a name of a module would be replaced by it."""
    stubs = sorted(STUB.parent.rglob("__init__.pyi"))
    assert len(stubs) > 5
    for stub in stubs:
        package = import_module(".".join(stub.relative_to(STUB.parents[1]).parent.parts))
        exported = set()
        for node in ast.parse(stub.read_text(encoding="utf-8")).body[1:]:
            if isinstance(node, ast.ImportFrom):
                (alias,) = node.names
                exported.add(alias.asname)
                try:
                    assert getattr(package, str(alias.asname)) is getattr(import_module(str(node.module)), alias.name)
                except ModuleNotFoundError as error:  # the rest of that module needs the extra `ray`
                    if error.name != "ray":
                        raise
            else:
                text = ast.unparse(node)
                former = text.partition(" = ")[0] in read_stub(stub)[1]
                assert former or text == "__version__: str" or text.startswith("__all__ = ["), f"{stub}: {text}"
        assert exported == set(package.__all__), stub
        modules = {path.stem for path in stub.parent.iterdir()}
        assert exported & modules <= {"records"}, f"{stub}: names of modules"


def test_old_name_of_a_part_warns(tmp_path: Path) -> None:
    package = tmp_path / "rlplug_core"
    shutil.copytree(STUB.parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    stub = package / "__init__.pyi"
    stub.write_text(stub.read_text(encoding="utf-8") + "Chronometer = Clock\n", encoding="utf-8")
    script = (
        "import warnings, rlplug_core\n"
        "with warnings.catch_warnings(record=True, action='always') as caught:\n"
        "    assert rlplug_core.Chronometer is rlplug_core.Clock\n"
        "assert 'Chronometer' not in rlplug_core.__all__\n"
        "print(caught[0].category.__name__, caught[0].message, caught[0].filename)"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, env=environment)
    assert done.stdout.startswith("DeprecationWarning rlplug_core.Chronometer is now rlplug_core.Clock;")
    assert done.stdout.endswith("<string>\n"), "it points at the line that uses the name"


def test_policies_are_different_types() -> None:
    from rlplug_core.nets import policies
    from rlplug_core.runs import policy

    assert rlplug_core.PolicyNetwork is policies.PolicyNetwork
    assert rlplug_core.Policy is policy.Policy


def test_dir_loads_nothing() -> None:
    script = "import sys, rlplug_core; print(dir(rlplug_core)); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    listed, loaded = done.stdout.splitlines()
    assert "'gae'" in listed
    assert "torch" not in loaded.split()


def test_example_has_one_import_from_rlplug() -> None:
    source = (Path(__file__).parents[2] / "examples" / "my_algo.py").read_text(encoding="utf-8")
    assert re.findall(r"^.*import.*rlplug.*$|^.*rlplug.*import.*$", source, re.M) == ["import rlplug_core as rl"]
