"""The README's section on plugins runs unchanged, and a plugin is as small as it says."""

from __future__ import annotations

import json
import re
import shutil

import pytest

from tests.cli.test_docs import EXAMPLE, PLUGINS, ROOT, Block, blocks, section
from tests.ecosystem.conftest import Place

#: Appended to `rlplug run` to make it short: the last value of an option holds.
SHORT = "--total-timesteps 2000 --eval-episodes 2 --final-eval-episodes 2"


@pytest.fixture(scope="module")
def readme_blocks() -> list[Block]:
    return list(blocks(section(ROOT / "README.md", PLUGINS)))


def test_minimal_plugin_has_60_lines_and_15_of_packaging(readme_blocks: list[Block]) -> None:
    (packaging,) = (block for block in readme_blocks if block.title == "pyproject.toml")
    assert len(packaging.text.splitlines()) <= 15
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) <= 60


def test_section_on_plugins_runs_unchanged(place: Place, readme_blocks: list[Block]) -> None:
    shutil.copy(EXAMPLE, place.directory)
    shutil.copytree(ROOT / "examples", place.directory / "examples")
    for block in readme_blocks:
        if block.title:
            (place.directory / block.title).write_text(block.text, encoding="utf-8")
        else:
            place.run("sh", "-euxc", re.sub(r"^(rlplug run .*)$", rf"\1 {SHORT}", block.text, flags=re.M))
    configs = [json.loads(path.read_bytes()) for path in place.directory.glob("runs/*/config.json")]
    assert sorted(config["algorithm"] for config in configs) == ["cem", "my-algo", "ppo"]
    assert "my-algo" not in place.rlplug("list").stdout
