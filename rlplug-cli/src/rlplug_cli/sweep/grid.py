"""From what was typed to the tasks of a sweep: algorithms × environments × alternatives × seeds."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import product

from rlplug_cli.sweep.manifest import Task
from rlplug_core.errors import UsageError

#: Types of options whose values hold commas themselves; their alternatives are parted by semicolons alone.
LISTS = ("ints", "floats", "strs", "repeated")
#: One alternative of an option: the words that choose it, and what a run's name says of it.
Choice = tuple[tuple[str, ...], str]


def seeds(text: str, first: int = 1) -> list[int]:
    """`5` means five seeds from `first` on, `1,2,7` these.

    Raises:
        UsageError: it is neither.
    """
    try:
        numbers = [int(word) for word in text.split(",") if word.strip()]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < ("," not in text):
        raise UsageError(
            f"--seeds {text}: write how many, as in --seeds 5, or which, as in --seeds 1,2,7"
        )
    return list(dict.fromkeys(numbers)) if "," in text else list(range(first, first + numbers[0]))


def refuse_seed(origins: Mapping[str, str]) -> None:
    """Refuse a seed among options that were typed, whose place in `origins` is `option` or `set`.

    Raises:
        UsageError: there is one.
    """
    if origins.get("seed") in ("option", "set"):
        raise UsageError(
            "option '--seed' is of a single run; --seeds says which seeds: --seeds 7,8"
        )


def listed(text: str, what: str) -> list[str]:
    """Words between commas, each once.

    Raises:
        UsageError: there is none.
    """
    words = list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not words:
        raise UsageError(f"name at least one {what}")
    return words


def alternatives(text: str, kind: str) -> list[str]:
    """`1e-3,3e-4` → two, `linear(1e-3,0);1e-4` too; what is inside brackets or quotes belongs to a value.

    Where there is a semicolon, and in a list's values, every comma does.
    """
    parts = _parted(text, ";")
    if len(parts) == 1 and kind not in LISTS:
        parts = _parted(text, ",")
    return [part.strip() for part in parts if part.strip()]


def _parted(text: str, mark: str) -> list[str]:
    parts = [""]
    depth = 0
    for token in re.findall(r'"[^"]*"|.', text, re.DOTALL):
        depth = max(0, depth + (token in "([{") - (token in ")]}"))
        if token == mark and not depth:
            parts.append("")
        else:
            parts[-1] += token
    return parts


def axis(name: str, flag: Sequence[str], text: str, kind: str) -> list[Choice]:
    """The alternatives of one option; `flag` comes before each value, such as `--set name=`.

    A value is part of a run's name only where there are several.
    """
    values = alternatives(text, kind) or [text]
    said = [f"{name}={value}" if len(values) > 1 else "" for value in values]
    *before, last = flag
    glued = last.endswith("=")
    return [
        ((*before, last + value) if glued else (*before, last, value), word)
        for value, word in zip(values, said, strict=True)
    ]


def tasks(
    algorithms: Sequence[str],
    envs: Sequence[str],
    axes: Mapping[str, Sequence[Sequence[Choice]]],
    numbers: Sequence[int],
) -> list[Task]:
    """All tasks, those of one seed before those of the next, so that a sweep that is stopped early compares something.

    Args:
        axes: of each algorithm, the alternatives of its options.
        numbers: the seeds.
    """
    found = []
    for seed in numbers:
        for algorithm, env in product(algorithms, envs):
            for chosen in product(*axes[algorithm]):
                words = tuple(word for words, _ in chosen for word in words)
                said = [word for _, word in chosen if word]
                name = _name(algorithm, env, said, seed)
                found.append(Task(name, algorithm, env, seed, words))
    return _told_apart(found)


def _name(algorithm: str, env: str, said: Iterable[str], seed: int) -> str:
    short = algorithm.rpartition(":")[2].rpartition("/")[2].lower()
    stem = re.sub(
        r"[^A-Za-z0-9._=-]+", "-", "-".join([short, env.rpartition(":")[2], *said])
    ).strip("-.")
    if len(stem) > 120:
        stem = f"{stem[:100]}-{digest([algorithm, env, *said])}"
    return f"{stem}-s{seed}"


def _told_apart(found: Sequence[Task]) -> list[Task]:
    """The same tasks, where two have one name with a part of their hash in it."""
    names = [task.name for task in found]
    return [
        task
        if names.count(task.name) == 1
        else Task(f"{task.name}-{digest([task.algorithm, task.env, *task.words])}", *_rest(task))
        for task in found
    ]


def _rest(task: Task) -> tuple[str, str, int, tuple[str, ...]]:
    return task.algorithm, task.env, task.seed, task.words


def digest(words: Iterable[str]) -> str:
    """Six characters that stand for some words."""
    return hashlib.sha256(json.dumps(list(words)).encode()).hexdigest()[:6]
