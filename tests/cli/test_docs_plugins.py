"""The pages for authors of plugins tell the truth: their commands and options exist.

`tests/ecosystem` runs the tutorial.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from rlplug_cli.app import COMMANDS, app
from rlplug_core.plugins import reserved
from tests.cli.documents import options
from tests.tables import for_each

PAGES = sorted((Path(__file__).parents[2] / "docs" / "plugins").glob("*.md"))


def blocks(page: Path, *languages: str) -> Iterator[tuple[str, str]]:
    """The fenced blocks of a page: language and text."""
    for language, text in re.findall(r"^```(\w+)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S):
        if language in languages:
            yield language, text


@for_each("page", PAGES)
def test_commands_and_options_that_are_named_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    code = "\n".join([*re.findall(r"`([^`\n]+)`", text), *(block for _, block in blocks(page, "sh"))])
    named = set(re.findall(r"^rlplug ([a-z]+)", code, re.M))
    assert named <= COMMANDS.keys()
    known = set(options(app)) | {"--no-build-isolation", "--editable", "--target", "--yes", "--no-index"}
    known |= {"--require-hashes"}
    assert set(re.findall(r"(?<![\w-])--[a-z][\w-]*", text)) <= known


def test_the_contract_names_the_reserved_names_of_the_command_line() -> None:
    text = next(page for page in PAGES if page.stem == "contract").read_text(encoding="utf-8")
    (line,) = (line for line in text.splitlines() if line.startswith("| options |"))
    assert set(re.findall(r"`([a-z_]+)`", line)) == reserved.COMMAND_LINE


def test_the_contract_shows_the_bounds_that_are_written() -> None:
    from rlplug_cli.scaffold import bounds
    from rlplug_core import __version__

    text = next(page for page in PAGES if page.stem == "contract").read_text(encoding="utf-8")
    assert f'"rlplug-core{bounds(__version__)}"' in text
    assert f'"rlplug-core{bounds("1.3.0")}"' in text
