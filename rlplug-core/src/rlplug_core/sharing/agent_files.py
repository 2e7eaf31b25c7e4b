"""The files of a shared agent. `agent.json` lists the others with their sizes and hashes.

| file | content |
|---|---|
| `policy.json`, `policy.safetensors` | the exported policy |
| `README.md` | the model card |
| `film.webp` | a film of an episode, if `push --film` made one |
| `config.json`, `journal.jsonl` | the options, evaluations and scores of the run, for comparisons |
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from rlplug_core.config.files import as_type, content, from_json
from rlplug_core.errors import BadFile, RlplugError, plain
from rlplug_core.export.bundle import read
from rlplug_core.sharing.film_file import FILM, FILM_BYTES, FILM_MARKDOWN, check_film

FORMAT = 1
MANIFEST = "agent.json"
#: The maximum size in bytes of the manifest, and of the other files by name.
MANIFEST_BYTES = 2**16
LIMITS = {
    "policy.json": 2**24,
    "policy.safetensors": 2**30,
    "README.md": 2**20,
    FILM: FILM_BYTES,
    "config.json": 2**20,
    "journal.jsonl": 2**24,
}
#: The maximum number of elements in one tensor of a program.
MOST_NUMBERS = 2**28
REQUIRED = ("policy.json", "policy.safetensors")
#: HTML, links and pictures, which rlplug never writes into a card.
_MARKUP = re.compile(r"[<>]|\][(\[:]")


class ListedFile(msgspec.Struct):
    """The size and the hash of a file."""

    bytes: Annotated[int, msgspec.Meta(ge=0)]
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class Manifest(msgspec.Struct):
    """The content of `agent.json`; `reproduce` is the command line that trains the agent again."""

    format: int
    files: dict[str, ListedFile]
    algorithm: str = ""
    env: str = ""
    reproduce: str = ""


def manifest_of(
    files: Mapping[str, bytes],
    algorithm: str,
    env: str,
    reproduce: str,
) -> bytes:
    """Return the content of `agent.json` for these files."""
    listed = {
        name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in files.items()
    }
    record = {"format": FORMAT, "algorithm": algorithm, "env": env, "reproduce": reproduce}
    return (json.dumps({**record, "files": listed}, indent=1) + "\n").encode()


def read_manifest(data: bytes, place: str) -> Manifest:
    """Return the content of `agent.json`.

    Args:
        place: the place of the agent, for messages.

    Raises:
        RlplugError: the data is not a manifest, has another format, or lists a file that an agent does not have.
    """
    try:
        manifest = as_type(json.loads(data), Manifest, Path(MANIFEST))
    except BadFile as error:
        raise RlplugError(f"{place} has no valid {MANIFEST}: {error.reason}") from error
    except (ValueError, RecursionError) as error:
        raise RlplugError(f"{place} has no valid {MANIFEST}: {plain(str(error), 100)}") from error
    if manifest.format != FORMAT:
        raise RlplugError(
            f"{place} has format {manifest.format} of shared agents; this version of rlplug reads format {FORMAT}"
        )
    if missing := [name for name in REQUIRED if name not in manifest.files]:
        raise RlplugError(
            f"{place} is not a complete agent: its {MANIFEST} does not list {missing[0]}"
        )
    for name, listed in manifest.files.items():
        if name not in LIMITS:
            raise RlplugError(
                f"{place} lists the file {plain(repr(name), 60)}, which a shared agent does not have; do not use it"
            )
        if listed.bytes > LIMITS[name]:
            raise RlplugError(
                f"{name} of {place} has {listed.bytes:,} bytes, more than the limit of {LIMITS[name]:,}; do not use it"
            )
    return manifest


def check_content(
    name: str,
    data: bytes,
    listed: ListedFile,
    place: str,
) -> None:
    """Compare the content of a file with its entry in the manifest.

    Raises:
        RlplugError: its size or its hash is different.
    """
    if len(data) != listed.bytes or hashlib.sha256(data).hexdigest() != listed.sha256:
        raise RlplugError(
            f"{name} of {place} is not the file that {MANIFEST} lists: its size or its hash differs; do not use it"
        )


def check_folder(folder: Path) -> None:
    """Check the files of an agent in a folder: the policy, the card, the film, and the record of the run.

    Raises:
        RlplugError: a file is damaged, the card has markup, or the record names code.
    """
    policy = read(folder)
    policy.program.check(policy.example_inputs(), MOST_NUMBERS)
    film = folder / FILM
    if film.is_file():
        check_film(content(film, FILM_BYTES))
    card = folder / "README.md"
    if card.is_file():
        check_card(content(card).decode(errors="replace"), shows_film=film.is_file())
    if (folder / "config.json").is_file():
        config = from_json(folder / "config.json")
        if not isinstance(config, dict) or config.get("sources") or config.get("modules"):
            raise RlplugError("config.json names source files, which a shared agent does not have")


def check_card(text: str, shows_film: bool = False) -> None:
    """Raise RlplugError if a card has HTML, links, control characters, or pictures other than the film."""
    if shows_film:
        text = text.replace(f"\n{FILM_MARKDOWN}\n", "\n", 1)
    if markup := _MARKUP.search(text):
        raise RlplugError(
            f"README.md has markup ({plain(markup[0])}), which a card of rlplug never has; do not use this agent"
        )
    if not all(char.isprintable() or char == "\n" for char in text):
        raise RlplugError(
            "README.md has control characters, which a card of rlplug never has; do not use this agent"
        )
