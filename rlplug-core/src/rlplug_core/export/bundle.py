"""An exported policy as files: `policy.json` and `policy.safetensors`; and the agent that acts by them.

`policy.json` says what the policy sees (`observation_space`, after the wrappers named in `wrap`), what it answers
(`action_space`, canonical), what that means in the environment (`env_action_space`), and what it computes (`program`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save

from rlplug_core.errors import RlplugError, UsageError
from rlplug_core.export.agent import Absent, ProgramAgent
from rlplug_core.export.flat import Flat
from rlplug_core.export.greedy import greedy
from rlplug_core.export.program import Program, traced
from rlplug_core.export.spaces import built, described
from rlplug_core.plugins.env_base import complete
from rlplug_core.protocols import Agent, Env
from rlplug_core.types import Spec

#: Raised when the files change so that older ones cannot be read.
FORMAT = 1
JSON = "policy.json"
TENSORS = "policy.safetensors"


@contextmanager
def whole(directory: Path) -> Iterator[Path]:
    """A place for files that are to lie in a new or empty directory; they lie there once all are written, or never.

    Raises:
        UsageError: something lies there already.
    """
    there = directory.exists()
    if there and (not directory.is_dir() or any(directory.iterdir())):
        raise UsageError(f"{directory} exists already; name another place with --out")
    own = directory.absolute()
    own.parent.mkdir(parents=True, exist_ok=True)
    # One that is there may be the only place where this account may write, or a disk of its own.
    with TemporaryDirectory(prefix=f".{own.name}-", dir=own if there else own.parent) as hidden:
        place = Path(hidden, own.name)
        yield place
        if not there:
            place.rename(own)
            return
        for part in place.iterdir():
            part.rename(own / part.name)


def write(
    directory: Path,
    agent: Agent,
    env: Env,
    about: Mapping[str, object],
    card: str = "",
    onnx: bool = False,
    torchscript: bool = False,
) -> Path:
    """Write the policy that `agent` has in `env` into a new or empty directory; `about` goes into the JSON.

    Args:
        card: what `README.md` says; there is none without it.
        onnx: also as `policy.onnx`.
        torchscript: also as `policy.pt`.

    Raises:
        UsageError: something lies there already, or the agent or a space cannot be exported.
        MissingPackage: what writes ONNX is not installed.
    """
    with whole(directory) as place:
        place.mkdir()
        _write_into(place, agent, env, about, onnx=onnx, torchscript=torchscript)
        if card:
            (place / "README.md").write_text(card, encoding="utf-8")
    return directory


def _write_into(
    directory: Path,
    agent: Agent,
    env: Env,
    about: Mapping[str, object],
    onnx: bool,
    torchscript: bool,
) -> None:
    module = greedy(agent)
    spec = env.spec
    own = complete(env).action_space
    source = complete(env).source
    flat = Flat(module, spec)
    graph, tensors = traced(flat, flat.example(), flat.names)
    content = save(tensors)
    said = {
        "format": FORMAT,
        **about,
        "env_id": spec.id,
        "observation_space": described(spec.obs),
        "env_observation_space": described(source.obs),
        "action_space": described(spec.action),
        "env_action_space": described(own),
        "memory": flat.memory,
        "program": graph,
        "sha256": {TENSORS: hashlib.sha256(content).hexdigest()},
    }
    if onnx:
        from rlplug_core.export.onnx import write_onnx

        write_onnx(directory / "policy.onnx", flat)
    if torchscript:
        from rlplug_core.export.torchscript import write_torchscript

        write_torchscript(directory / "policy.pt", flat)
    (directory / TENSORS).write_bytes(content)
    (directory / JSON).write_text(json.dumps(said, indent=1), encoding="utf-8")


@dataclass(frozen=True)
class Exported:
    """An exported policy that was read: what its JSON says, and what it computes."""

    about: dict[str, Any]
    program: Program

    @property
    def agent(self) -> Agent:
        return ProgramAgent(self.program, self.about["memory"])

    @property
    def env(self) -> Env:
        """Return what a policy needs to know of the environment, without the environment."""
        obs = built(self.about["env_observation_space"])
        action = built(self.about["action_space"])
        return Absent(
            Spec(obs, action, 1, self.about["env_id"]), built(self.about["env_action_space"])
        )


def read(directory: Path) -> Exported:
    """The exported policy in a directory; its files are checked, and nothing in them can run code.

    Raises:
        RlplugError: they are damaged, or of another version.
    """
    try:
        about = json.loads((directory / JSON).read_bytes())
        content = (directory / TENSORS).read_bytes()
        if about["format"] != FORMAT:
            raise RlplugError(
                f"{directory} is of format {about['format']}, and this version reads {FORMAT}"
            )
        if hashlib.sha256(content).hexdigest() != about["sha256"][TENSORS]:
            raise RlplugError(
                f"{directory / TENSORS} has changed since it was written; export the policy again"
            )
        return Exported(about, Program(about["program"], load(content)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        raise RlplugError(
            f"{directory} holds no readable policy: {type(error).__name__}: {error}"
        ) from error
