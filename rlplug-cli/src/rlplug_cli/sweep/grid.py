"""Makes the tasks of a sweep from the command line: algorithms × environments × alternatives × seeds."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product

from rlplug_cli.sweep.manifest import Task
from rlplug_core.errors import UsageError

#: Types of options with commas in their values; only semicolons separate their alternatives.
LISTS = ("ints", "floats", "strs", "repeated")
#: One alternative of an option: the words that select it, and its part of a run's name.
Choice = tuple[tuple[str, ...], str]


def seeds(text: str, first: int = 1) -> list[int]:
    """Parse seeds: `5` means five seeds starting at `first`, `1,2,7` means these three.

    Raises:
        UsageError: it is neither.
    """
    try:
        numbers = [int(word) for word in text.split(",") if word.strip()]
    except ValueError:
        numbers = []
    least = 0 if "," in text else 1  # a seed may be 0, a number of seeds may not
    if not numbers or min(numbers) < least:
        raise UsageError(
            f"--seeds {text}: write how many, as in --seeds 5, or which, as in --seeds 1,2,7"
        )
    if "," in text:
        return list(dict.fromkeys(numbers))
    return list(range(first, first + numbers[0]))


def refuse_seed(origins: Mapping[str, str]) -> None:
    """Refuse a typed `--seed`: its origin in `origins` is `option` or `set`.

    Raises:
        UsageError: it was typed.
    """
    if origins.get("seed") in ("option", "set"):
        raise UsageError("option '--seed' is for a single run; use --seeds, as in --seeds 7,8")


def split_words(text: str, kind: str) -> list[str]:
    """Return the words between commas, without repetitions; `kind` names them in the error.

    Raises:
        UsageError: there are none.
    """
    words = list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not words:
        raise UsageError(f"name at least one {kind}")
    return words


def alternatives(text: str, kind: str) -> list[str]:
    """Split a string into alternatives: two in `1e-3,3e-4` and in `linear(1e-3,0);1e-4`.

    Commas inside brackets or quotes belong to a value, also those before an option of a plugin, as in
    `gru:units=8,own=1,lstm`, which has two alternatives. If there is a semicolon, or if the option is a list, every
    comma belongs to a value.
    """
    values = _split(text, ";")
    if len(values) == 1 and kind not in LISTS:
        values = _split(text, ",")
        if kind == "target":
            values = _join_options(values)
    return [value.strip() for value in values if value.strip()]


def _join_options(words: Sequence[str]) -> list[str]:
    """Join names of plugins with their options, `option=value`, that were split at commas."""
    joined: list[str] = []
    for word in words:
        name, is_option, _ = word.strip().partition("=")
        if joined and is_option and name.isidentifier():
            joined[-1] += f",{word}"
        else:
            joined.append(word)
    return joined


def _split(text: str, separator: str) -> list[str]:
    """Split at a separator outside brackets and quotes."""
    values = [""]
    depth = 0
    for token in re.findall(r'"[^"]*"|.', text, re.DOTALL):
        depth = max(0, depth + (token in "([{") - (token in ")]}"))
        if token == separator and not depth:
            values.append("")
        else:
            values[-1] += token
    return values


def axis(name: str, flag: Sequence[str], text: str, kind: str) -> list[Choice]:
    """Return the alternatives of one option; the words `flag`, such as `--set name=`, precede each value.

    A value is part of a run's name only if there are several.
    """
    values = alternatives(text, kind) or [text]
    *before, last = flag
    choices = []
    for value in values:
        words = (*before, last + value) if last.endswith("=") else (*before, last, value)
        choices.append((words, f"{name}={value}" if len(values) > 1 else ""))
    return choices


def tasks(
    algorithms: Sequence[str],
    envs: Sequence[str],
    axes: Mapping[str, Sequence[Sequence[Choice]]],
    numbers: Sequence[int],
) -> list[Task]:
    """Return all tasks, seed by seed, so that a sweep that is stopped early has something to compare.

    Args:
        axes: the alternatives of the options, by algorithm.
        numbers: the seeds.
    """
    grid = []
    for seed in numbers:
        for algorithm, env in product(algorithms, envs):
            for choices in product(*axes[algorithm]):
                words = tuple(word for words, _ in choices for word in words)
                labels = [label for _, label in choices if label]
                name = _name(algorithm, env, labels, seed)
                grid.append(Task(name, algorithm, env, seed, words))
    names = [task.name for task in grid]
    for index, task in enumerate(grid):
        if names.count(task.name) > 1:
            grid[index] = replace(task, name=f"{task.name}-{digest(task.options)}")
    return grid


def _name(algorithm: str, env: str, labels: Iterable[str], seed: int) -> str:
    short = algorithm.rpartition(":")[2].rpartition("/")[2].lower()
    words = "-".join([short, env.rpartition(":")[2], *labels])
    stem = re.sub(r"[^A-Za-z0-9._=-]+", "-", words).strip("-.")
    if len(stem) > 120:
        stem = f"{stem[:100]}-{digest([algorithm, env, *labels])}"
    return f"{stem}-s{seed}"


def digest(words: Iterable[str]) -> str:
    """Return six characters that identify some words."""
    return hashlib.sha256(json.dumps(list(words)).encode()).hexdigest()[:6]
