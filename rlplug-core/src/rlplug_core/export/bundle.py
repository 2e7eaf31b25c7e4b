"""Writes and reads an exported policy: `policy.json` and `policy.safetensors`.

`policy.json` has the observation space after the wrappers in `wrap` (`observation_space`), the space of the policy's
actions, for example [-1, 1] (`action_space`), the action space of the environment (`env_action_space`), and the
operations of the network (`program`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import gymnasium.spaces as spaces
import msgspec
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from rlplug_core.config.files import (
    STATE,
    as_type,
    content,
    from_json,
    hold_directory,
    sync_directory,
    sync_file,
    temporary_directory,
)
from rlplug_core.errors import BadFile, RlplugError, UsageError, plain
from rlplug_core.export.agent import DetachedEnv, ProgramAgent
from rlplug_core.export.flat import Flat, example_inputs, leaves, valid_rows
from rlplug_core.export.greedy import Greedy, GreedyRecurrent, greedy
from rlplug_core.export.program import Graph, Program, trace
from rlplug_core.export.spaces import space_from_json, space_to_json
from rlplug_core.plugins.env_base import complete
from rlplug_core.protocols import Agent, Env, SupportsExport
from rlplug_core.types import Space, Spec

#: Increase it if older files can no longer be read.
FORMAT = 1
JSON = "policy.json"
TENSORS = "policy.safetensors"
#: The maximum size of `policy.json` in bytes.
MOST_JSON = 2**24
_Width = Annotated[int, msgspec.Meta(ge=0, le=2**20)]


@contextmanager
def new_directory(directory: Path, follow: bool = True) -> Iterator[Path]:
    """Yield a temporary directory; its files move to a new or empty `directory` if the block ends without an error.

    Args:
        directory: the directory to make or to fill.
        follow: whether `directory` may be a link.

    Raises:
        UsageError: the directory is not empty. BadFile: it is a link.
    """
    target = directory.absolute()
    exists = target.exists()
    # An existing directory may be the only writable one, or on another disk, so the temporary one is inside it.
    name = f".{target.name}.tmp"
    if exists and (not target.is_dir() or any(path.name != name for path in target.iterdir())):
        raise UsageError(f"{directory} exists already; name another place with --out")
    target.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        base = target.parent
        if exists:
            base = stack.enter_context(hold_directory(target.resolve() if follow else target))
        temporary = stack.enter_context(temporary_directory(base / name))
        folder = temporary / target.name
        yield folder
        for part in folder.rglob("*"):
            sync_directory(part) if part.is_dir() else sync_file(part)
        parent = temporary / ".."  # the name of `base` may lead to another directory by now
        if exists:
            for part in folder.iterdir():
                part.rename(parent / part.name)
        else:
            folder.rename(parent / target.name)
        with suppress(OSError):  # all files are there; this only protects them from a power loss
            sync_directory(target)
            sync_directory(target.parent)


def write(
    directory: Path,
    agent: Agent | SupportsExport,
    env: Env,
    description: Mapping[str, object],
    card: str = "",
    onnx: bool = False,
    torchscript: bool = False,
) -> Path:
    """Write the policy of `agent` in `env` into a new or empty directory; `description` goes into the JSON.

    Args:
        card: text of `README.md`; without it the file is not written.
        onnx: also write `policy.onnx`.
        torchscript: also write `policy.pt`.

    Raises:
        UsageError: the directory is not empty, or the agent or a space cannot be exported.
        MissingPackage: a package for ONNX is not installed.
    """
    with new_directory(directory) as folder:
        folder.mkdir()
        flat = _write_policy(folder, agent, env, description)
        if onnx:
            from rlplug_core.export.formats import write_onnx

            write_onnx(folder / "policy.onnx", flat)
        if torchscript:
            from rlplug_core.export.formats import write_torchscript

            write_torchscript(folder / "policy.pt", flat)
        if card:
            (folder / "README.md").write_bytes(card.encode(errors="surrogateescape"))
    return directory


def _write_policy(
    directory: Path,
    agent: Agent | SupportsExport,
    env: Env,
    description: Mapping[str, object],
) -> Flat:
    """Write `policy.json` and `policy.safetensors`; return the policy as a module with flat inputs."""
    spec = env.spec
    env_action = complete(env).action_space
    source = complete(env).source
    flat, graph, tensors = trace_policy(greedy(agent), spec.obs)
    data = save(tensors)
    record = {
        "format": FORMAT,
        **description,
        "env_id": spec.id,
        "observation_space": space_to_json(flat.space),
        "env_observation_space": space_to_json(
            flat.space if source.obs == spec.obs else source.obs
        ),
        "action_space": space_to_json(spec.action),
        "env_action_space": space_to_json(env_action),
        "memory": flat.memory,
        "agents": flat.agents,
        "program": graph,
        "sha256": {TENSORS: hashlib.sha256(data).hexdigest()},
    }
    (directory / TENSORS).write_bytes(data)
    (directory / JSON).write_text(json.dumps(record, indent=1), encoding="utf-8")
    return flat


def trace_policy(
    module: Greedy | GreedyRecurrent,
    space: Space,
) -> tuple[Flat, Graph, dict[str, Tensor]]:
    """Return a policy's module with flat inputs, its graph and its tensors, without the observation keys it ignores."""
    flat = Flat(module, space)
    graph, tensors = trace(flat, flat.example(), flat.names)
    read_space = without_unread_keys(space, graph)
    if read_space is not space:
        # Without a key, tracing fails if the module looks it up but does not compute with it.
        with suppress(UsageError):
            return trace_policy(module, read_space)
    return flat, graph, tensors


def without_unread_keys(space: Space, graph: Graph) -> Space:
    """Return the space of observations without the keys of a Dict that a program does not read.

    Args:
        space: the observation space.
        graph: the program with all of them as inputs.
    """
    if not isinstance(space, spaces.Dict):
        return space
    # Tracing takes the number of rows from the first key.
    steps = [step for step in graph["steps"] if not step[1].startswith("aten.sym_size")]
    program_text = json.dumps([steps, graph["outputs"]])
    read_spaces = {}
    for key, part in space.spaces.items():
        names = leaves(valid_rows(part), f"obs.{key}")
        if any(json.dumps(name) in program_text for name in names):
            read_spaces[key] = part
    return spaces.Dict(read_spaces) if 0 < len(read_spaces) < len(space.spaces) else space


class Evaluation(msgspec.Struct):
    """The environment of a run's evaluations: its name, its arguments, and the wrappers in their order."""

    env: str
    arguments: dict[str, Any] = {}
    wrap: list[str] = []


class About(msgspec.Struct):
    """The parts of `policy.json` that are read by name, besides its spaces and its program."""

    env_id: str
    env: str = ""
    run: str = ""
    algorithm: str = ""
    step: Annotated[int, msgspec.Meta(ge=0)] = 0
    wrap: list[str] = []
    wrap_each: list[str] = []
    memory: dict[str, _Width | list[_Width]] = {}
    agents: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    evaluation: Evaluation | None = None


@dataclass(frozen=True)
class ExportedPolicy:
    """An exported policy in memory: the contents of its JSON and its program."""

    about: dict[str, Any]
    program: Program

    @property
    def agent(self) -> Agent:
        return ProgramAgent(self.program, self.about["memory"], self.about.get("agents", 1))

    def example_inputs(self) -> dict[str, Tensor]:
        """Return example rows of each input, as `flat.example_inputs`."""
        space = space_from_json(self.about["observation_space"])
        return example_inputs(space, self.about["memory"], self.about.get("agents", 1))

    @property
    def env(self) -> Env:
        """Return a substitute for the environment with its spaces."""
        obs = space_from_json(self.about["env_observation_space"])
        action = space_from_json(self.about["action_space"])
        return DetachedEnv(
            Spec(obs, action, 1, self.about["env_id"]),
            space_from_json(self.about["env_action_space"]),
        )


#: The exceptions that can occur if a file is damaged, malicious or of another kind.
UNREADABLE = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    BadFile,
    IndexError,
    KeyError,
    MemoryError,
    OSError,
    RecursionError,
    SafetensorError,
    TypeError,
    ValueError,
)


def read(directory: Path) -> ExportedPolicy:
    """Read the exported policy in a directory. Its files are checked; they cannot run code.

    Raises:
        RlplugError: the files are damaged or have another format.
    """
    try:
        description = from_json(directory / JSON, MOST_JSON, follow=True)
        data = content(directory / TENSORS, STATE, follow=True)
        if description["format"] != FORMAT:
            raise RlplugError(
                f"{directory} has format {description['format']}; this version of rlplug reads format {FORMAT}"
            )
        if hashlib.sha256(data).hexdigest() != description["sha256"][TENSORS]:
            raise RlplugError(
                f"{directory / TENSORS} has changed since it was written; export the policy again"
            )
        as_type(description, About, directory / JSON)
        policy = ExportedPolicy(description, Program(description["program"], load(data)))
        # Wrong spaces raise errors here, and not at the first use.
        policy.env.close()
        policy.example_inputs()
        if len(policy.program.outputs) != 1 + len(description["memory"]):
            raise ValueError("its program must give the action and the memory")
        return policy
    except UNREADABLE as error:
        raise RlplugError(
            f"{directory} does not contain a readable policy: {type(error).__name__}: {plain(str(error))}"
        ) from error
