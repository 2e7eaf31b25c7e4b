"""The words of other libraries: their names of rlplug's options, and hints for words that are not options of rlplug.

Did-you-mean and `docs/words.md` use both. The names are in `synonyms.csv`, one line for each option. Only did-you-mean
uses its last column: names of xagents and OpenAI Baselines, old names in these libraries, and the names of rlplug's
own options before 0.1. `instead.csv` has the other words, each with the text to type.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_suffix(".csv")
INSTEAD = FILE.with_stem("instead")


@cache
def table() -> dict[str, dict[str, list[str]]]:
    """Return the names of each option by library, in the order of the file."""
    head, *lines = (line.split(",") for line in FILE.read_text(encoding="utf-8").splitlines())
    return {
        option: dict(zip(head[1:], map(str.split, cells), strict=True)) for option, *cells in lines
    }


@cache
def instead() -> dict[str, str]:
    """Return the text to type instead of each word that is not an option of rlplug, in the order of the file."""
    _, *lines = (line.partition(",") for line in INSTEAD.read_text(encoding="utf-8").splitlines())
    return {word: clause for words, _, clause in lines for word in words.split()}


def nearest(
    word: str,
    known: Collection[str],
    write: Callable[[str], str] = str,
) -> str:
    """Return `"; did you mean 'num_envs'?"` for an unknown option, or another hint, or an empty string.

    Args:
        word: the typed word, with or without leading dashes.
        known: the existing options, by dotted name.
        write: formats an option in the syntax of `word`, such as `--num-envs` on a command line.
    """
    from difflib import get_close_matches  # 4 ms, and most words are right

    if clause := instead().get(_normalize(word)):
        return f"; {clause}"
    matches = options_called(word, known)
    known_names = set(known)
    if not matches:
        options = {_normalize(option): option for option in known_names}
        options |= {
            name: option
            for option in table()
            if option in known_names
            for name in _other_names(option)
        }
        matches = [
            options[name] for name in get_close_matches(_normalize(word), options, n=3, cutoff=0.6)
        ]
    suggestions = " or ".join(repr(write(option)) for option in dict.fromkeys(matches))
    return f"; did you mean {suggestions}?" if suggestions else ""


def options_called(word: str, known: Collection[str]) -> list[str]:
    """Return the options among `known` that some library calls `word`, in the order of the file."""
    typed = _normalize(word)
    existing = set(known)
    return [option for option in table() if option in existing and typed in _other_names(option)]


def _other_names(option: str) -> list[str]:
    """Return all names of an option in other libraries."""
    return [name for names in table()[option].values() for name in names]


def _normalize(word: str) -> str:
    return word.lstrip("-").lower().replace("-", "_")
