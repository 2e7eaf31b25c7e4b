"""The places of shared agents: each reads files by name, with a limit, and writes all files of an agent."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from rlplug_core.config.download import download, upload
from rlplug_core.config.files import content
from rlplug_core.errors import MissingPackage, UsageError, did_you_mean, plain
from rlplug_core.export.bundle import new_directory
from rlplug_core.sharing.agent_files import MANIFEST
from rlplug_core.sharing.words import is_source, parse

#: The server of the Hugging Face Hub, unless the variable `HF_ENDPOINT` names another one, as for its own library.
HUB = "https://huggingface.co"


class Place(Protocol):
    """A place that has the files of one agent, or gets them."""

    @property
    def name(self) -> str:
        """The name of the place in messages."""

    def read(self, file: str, max_bytes: int) -> bytes:
        """Return a file of at most `max_bytes` bytes; raises RlplugError if it cannot be read."""

    def write(self, files: Mapping[str, bytes]) -> str:
        """Write all files of an agent and return the word that pulls it; raises RlplugError if it cannot."""


@dataclass(frozen=True)
class Folder:
    """A folder on this machine."""

    path: Path

    @property
    def name(self) -> str:
        return plain(str(self.path))

    def read(self, file: str, max_bytes: int) -> bytes:
        try:
            return content(self.path / file, limit=max_bytes)
        except OSError as error:
            raise UsageError(
                f"{self.name} is not a shared agent: {file} cannot be read ({error.strerror}); "
                "'rlplug push RUN FOLDER' writes one"
            ) from error

    def write(self, files: Mapping[str, bytes]) -> str:
        with new_directory(self.path) as folder:
            folder.mkdir()
            for name, data in files.items():
                (folder / name).write_bytes(data)
        return str(self.path)


@dataclass(frozen=True)
class Address:
    """A folder of a web server."""

    url: str

    @property
    def name(self) -> str:
        return plain(self.url)

    def read(self, file: str, max_bytes: int) -> bytes:
        return download(f"{self.url.rstrip('/')}/{file}", max_bytes, "shared agent")

    def write(self, files: Mapping[str, bytes]) -> str:
        # The manifest is the last file, so an agent that can be pulled is complete.
        for file in sorted(files, key=lambda name: name == MANIFEST):
            upload(f"{self.url.rstrip('/')}/{file}", files[file], "shared agent")
        return self.url


@dataclass(frozen=True)
class HubRepository:
    """A model repository of the Hugging Face Hub. Only writing needs its library."""

    owner: str
    repository: str
    revision: str = "main"

    @property
    def name(self) -> str:
        return f"hub:{self.owner}/{self.repository}"

    def read(self, file: str, max_bytes: int) -> bytes:
        server = os.environ.get("HF_ENDPOINT") or HUB
        place = f"{server}/{self.owner}/{self.repository}/resolve/{quote(self.revision, safe='')}"
        return Address(place).read(file, max_bytes)

    def write(self, files: Mapping[str, bytes]) -> str:
        try:
            from huggingface_hub import CommitOperationAdd, HfApi
        except ImportError as error:
            raise MissingPackage(
                "the Hugging Face Hub needs its library: python -m pip install 'rlplug-core[hub]'"
            ) from error
        api = HfApi(endpoint=os.environ.get("HF_ENDPOINT") or HUB)
        repository = f"{self.owner}/{self.repository}"
        operations = [CommitOperationAdd(name, data) for name, data in files.items()]
        try:
            api.create_repo(repository, exist_ok=True)
            api.create_commit(repository, operations, commit_message="Share an agent of rlplug")
        # The library's version decides which HTTP library raises here.
        except Exception as error:
            raise UsageError(
                f"{self.name} cannot be written ({plain(str(error))}); 'hf auth login' signs in"
            ) from error
        return self.name


def place_of(word: str) -> Place:
    """Return the place of a source word, or of a folder's path.

    Raises:
        UsageError: the word has another form, or the agent does not exist. MissingPackage: a package is missing.
    """
    if not is_source(word):
        return Folder(Path(word))
    source = parse(word)
    if source.kind == "hub":
        owner, _, rest = source.name.partition("/")
        repository, _, revision = rest.partition("@")
        return HubRepository(owner, repository, revision or "main")
    if source.kind == "mlflow":
        from rlplug_core.sharing.mlflow_registry import RegisteredModel

        name, _, version = source.name.partition("/")
        return RegisteredModel(name, version)
    return zoo_folder(source.name) if source.kind == "zoo" else Address(source.word)


def zoo_folder(name: str) -> Folder:
    """Return the folder of an agent of the package rlplug-zoo, such as `ppo/CartPole-v1`; nothing is imported.

    Raises:
        MissingPackage: the package is not installed. UsageError: it does not have this agent.
    """
    known = zoo_agents()
    if name not in known:
        near = did_you_mean(name, known)
        raise UsageError(f"rlplug-zoo has no agent '{name}'{near} ('rlplug pull zoo:' lists all)")
    return Folder(_zoo() / name)


def zoo_agents() -> list[str]:
    """Return the names of the agents of rlplug-zoo, such as `ppo/CartPole-v1`.

    Raises:
        MissingPackage: the package is not installed.
    """
    agents = _zoo()
    return sorted(path.parent.relative_to(agents).as_posix() for path in agents.rglob(MANIFEST))


def _zoo() -> Path:
    spec = find_spec("rlplug_zoo")
    if spec is None or not spec.submodule_search_locations:
        raise MissingPackage(
            "sources that start with zoo: need the package rlplug-zoo: python -m pip install rlplug-zoo"
        )
    return Path(spec.submodule_search_locations[0], "agents")
