"""The conformance kit on installed distributions: entry point, index, presets, imports."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rlplug_core import plugins
from rlplug_core.errors import PluginError
from rlplug_core.plugins import indexing
from rlplug_core.plugins.names import find
from rlplug_core.testing import checks
from rlplug_core.testing.distributions import write_distribution

ALGORITHM = '''
"""A search of its own."""
from tests.core.wrong_algorithms import Tiny

class Mine(Tiny):
    """Searches."""
'''
GOOD = {"rlplug_mine/__init__.py": "", "rlplug_mine/mine.py": ALGORITHM}
INSTALLED = ("entry-point", "index", "presets", "import-light", "import-quiet")
SKIPPED = {"index": "skipped", "presets": "skipped"}

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Return a function that installs a distribution with an algorithm 'mine'."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(files: dict[str, str], requires: tuple[str, ...] = ("rlplug-core>=0.1,<1",)) -> None:
        points = {"rlplug.algorithms": {"mine": "rlplug_mine.mine:Mine"}}
        write_distribution(tmp_path, "rlplug-mine", points, files, requires=requires)
        plugins.refresh()

    yield write
    monkeypatch.undo()
    for name in [name for name in sys.modules if name.startswith("rlplug_mine")]:
        del sys.modules[name]
    plugins.refresh()


def outcomes() -> dict[str, str]:
    return {c.name: c.outcome().status for c in checks("mine") if c.name in INSTALLED}


def message(name: str) -> str:
    return next(check for check in checks("mine") if check.name == name).outcome().message


def test_right_distribution_passes(install: Install, tmp_path: Path) -> None:
    install(
        {
            **GOOD,
            "rlplug_mine/presets/mine.toml": '[default]\nlearning_rate = 0.1\nnum_envs = 4\n["Chain-*"]\nn_steps = 8\n',
        }
    )
    indexing.write(find("algorithms", "mine"))
    assert outcomes() == dict.fromkeys(INSTALLED, "passed")


def test_examines_with_presets_for_all_environments(install: Install) -> None:
    install({**GOOD, "rlplug_mine/presets/mine.toml": "[default]\nlearning_rate = 0.1\nnum_envs = 4\n"})
    examination = checks("mine")[0].examination
    assert (examination.subject.config.learning_rate, examination.subject.config.n_steps) == (0.1, 4)


def test_missing_requirement_of_core_fails(install: Install) -> None:
    install(GOOD, requires=())
    assert outcomes() == {**dict.fromkeys(INSTALLED, "passed"), **SKIPPED, "entry-point": "failed"}
    assert "rlplug-mine does not require rlplug-core" in message("entry-point")


def test_outdated_index_fails(install: Install, tmp_path: Path) -> None:
    install(GOOD)
    path = indexing.write(find("algorithms", "mine"))
    path.write_text(json.dumps({**json.loads(path.read_text()), "summary": "Something else."}))
    plugins.refresh()
    assert outcomes() == {**dict.fromkeys(INSTALLED, "passed"), "presets": "skipped", "index": "failed"}
    assert "write it with: rlplug index rlplug-mine" in message("index")


def test_index_of_another_core_is_skipped(install: Install) -> None:
    install(GOOD)
    path = indexing.write(find("algorithms", "mine"))
    data = json.loads(path.read_text())
    path.write_text(json.dumps({**data, "modules": {**data["modules"], "rlplug_core.nets.net": "0"}}))
    plugins.refresh()
    assert message("index").startswith(
        "its index was made with another version of rlplug_core.nets.net; rlplug ignores it"
    )
    assert outcomes() == {**dict.fromkeys(INSTALLED, "passed"), **SKIPPED}


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("[default]\nlr = 0.1\n", r"table 'default': mine has no option 'lr'"),
        (
            '["Chain-*"]\nlearning_rate = -1.0\n',
            r"table 'Chain-\*': mine: option 'learning_rate': expected `float` > 0.0",
        ),
    ],
)
def test_wrong_presets_fail(install: Install, text: str, pattern: str) -> None:
    install({**GOOD, "rlplug_mine/presets/mine.toml": text})
    assert outcomes() == {**dict.fromkeys(INSTALLED, "passed"), "index": "skipped", "presets": "failed"}
    assert re.search(pattern, message("presets"))


def test_import_of_torch_fails(install: Install) -> None:
    install({**GOOD, "rlplug_mine/__init__.py": "import torch\n"})
    assert outcomes() == {**dict.fromkeys(INSTALLED, "passed"), **SKIPPED, "import-light": "failed"}
    assert "importing 'rlplug_mine' imports torch" in message("import-light")


def test_printing_on_import_fails(install: Install) -> None:
    install({**GOOD, "rlplug_mine/mine.py": f"print('welcome')\n{ALGORITHM}"})
    assert outcomes() == {**dict.fromkeys(INSTALLED, "passed"), **SKIPPED, "import-quiet": "failed"}
    assert "'welcome'" in message("import-quiet")


def test_broken_plugin_raises(install: Install) -> None:
    install({**GOOD, "rlplug_mine/mine.py": "1 / 0\n"})
    with pytest.raises(PluginError, match="ZeroDivisionError"):
        checks("mine")[0]()


def test_collecting_checks_imports_no_large_package(install: Install) -> None:
    install(GOOD)
    script = (
        "import sys; from rlplug_core.testing import checks; checks('mine');"
        "print(*{'torch', 'numpy', 'gymnasium', 'pytest', 'rlplug_mine'} & set(sys.modules))"
    )
    path = {"PYTHONPATH": ":".join(sys.path)}
    process = subprocess.run([sys.executable, "-c", script], env=path, capture_output=True, text=True, check=True)
    assert process.stdout.split() == []
