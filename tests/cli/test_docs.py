"""The documentation tells the truth: its commands and snippets run, its links lead somewhere, its options exist.

Every fenced block of the README and of `docs/*.md` is run in the order of the page, in one empty directory per page. What is
run is what is written, but shorter: `shortened` and `abridged` say how. Blocks of these kinds are known:

    sh        commands, one per line
    console   commands after `$ `, `^C` for Ctrl-C at the one before, and what they print, `…` for anything, numbers as
              they come
    python    a script; with `title=NAME` a file for the blocks after it
    text      nothing to run
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import sysconfig
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
#: Pages that have links but nothing to run.
LINKED = [*PAGES, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs" / "decisions").glob("*.md"))]
#: Commands that are not run here, and why.
ELSEWHERE = {
    "python3 -m venv": "the environment that runs this test is one",
    "python -m pip install": "the session `wheels` installs the packages and runs the main job from there",
    "python -m nox": "it runs this test",
}
#: What is appended to `rlplug run`, and to a run that is to be interrupted; the last of an option's values counts.
SHORT = ["--total-steps", "1500", "--eval-every", "1000", "--eval-episodes", "2", "--verdict-episodes", "2"]
ENDLESS = ["--total-steps", "1000000", "--eval-every", "1000", "--eval-episodes", "2", "--verdict-episodes", "2"]
#: Seconds that one command may take, on a busy machine.
PATIENCE = 300


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the words after it, its lines."""

    language: str
    title: str
    text: str


@dataclass(frozen=True)
class Command:
    """One command of a block: what is typed, whether Ctrl-C follows, and what it is said to print."""

    line: str
    interrupted: bool
    output: tuple[str, ...]


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, indented ones too."""
    pattern = r"^( *)```(\w*)(?: title=(\S+))?\n(.*?)^\1```$"
    for indent, language, title, text in re.findall(pattern, page.read_text(encoding="utf-8"), re.M | re.S):
        yield Block(language, title, re.sub(f"^{indent}", "", text, flags=re.M))


def commands(block: Block) -> Iterator[Command]:
    """The commands of a block; `a && b` are two."""
    if block.language == "sh":
        lines = [line for line in block.text.splitlines() if line]
        yield from (Command(part, False, ()) for line in lines for part in line.split(" && "))
        return
    for part in re.split(r"^\$ ", block.text, flags=re.M)[1:]:
        line, *output = part.splitlines()
        yield Command(line, "^C" in output, tuple(text for text in output if text != "^C"))


def shortened(command: Command) -> list[str]:
    """A command's words, such that it takes seconds."""
    words = shlex.split(command.line, comments=True)
    rlplug = words[words.index("rlplug") :] if "rlplug" in words else []
    if rlplug[1:2] == ["run"] and "--help" not in rlplug:
        return words + (ENDLESS if command.interrupted else SHORT)
    if rlplug[1:2] == ["resume"]:
        return [*words, "--steps", "2500"] if "--steps" in words else words
    return [*words, "--port", "0"] if rlplug[1:2] == ["ui"] else words


def abridged(script: str) -> str:
    """A Python snippet with short runs."""
    script = re.sub(r'(train\("\w+", "[\w-]+")\)', r"\1, {})", script)
    script = re.sub(r'(train\("\w+", "[\w-]+", \{)(?:"total_steps": [\d_]+)?', r'\1"total_steps": 1500, ', script)
    return re.sub(r"total_steps=[\d_]+", "total_steps=2500", script)
