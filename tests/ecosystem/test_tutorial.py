"""The tutorial for authors of plugins runs unchanged, offline."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.test_docs import blocks
from tests.ecosystem.conftest import Place

TUTORIAL = Path(__file__).parents[2] / "docs" / "plugins" / "tutorial.md"
#: An installation that the environment of the test already has; it has no network.
INSTALLED = "python -m pip install rlplug hatchling pytest\n"
#: Appended to `rlplug run` to make it short: the last value of an option holds.
SHORT = "--total-timesteps 2000 --eval-episodes 2 --final-eval-episodes 2"


def patch(root: Path, diff: str) -> None:
    """Apply a diff of one file like `patch -p1`; each hunk must match exactly once."""
    header, *hunks = re.split(r"^@@.*@@.*\n", diff, flags=re.M)
    name = re.search(r"^\+\+\+ b/(\S+)$", header, re.M)
    assert name
    path = root / name[1]
    text = path.read_text(encoding="utf-8")
    for hunk in hunks:
        lines = hunk.splitlines(keepends=True)
        old, new = ("".join(line[1:] for line in lines if line[0] in (" ", sign)) for sign in "-+")
        assert text.count(old) == 1, f"not once in {path.name}:\n{old}"
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")


def shell(place: Place, script: str) -> Place:
    """Run a block in a shell; return the environment with the final directory of the block."""
    short = re.sub(r"^(rlplug run (?!.*--help).*)$", rf"\1 {SHORT}", script, flags=re.M)
    done = place.run("sh", "-euc", f'{short}echo "$PWD"')
    return place.at(Path(done.stdout.splitlines()[-1]))


@pytest.mark.slow  # `test_readme` and `test_scaffold` do the same with other plugins
def test_tutorial_runs_unchanged(place: Place) -> None:
    for block in blocks(TUTORIAL.read_text(encoding="utf-8")):
        if block.language == "diff":
            patch(place.directory, block.text)
        elif block.language == "sh" and block.text != INSTALLED:
            place = shell(place, block.text)
    assert place.directory.name == "rlplug-my-idea"
    assert list(place.directory.glob("runs/*/config.json"))
    assert "my-idea" not in place.rlplug("list").stdout
