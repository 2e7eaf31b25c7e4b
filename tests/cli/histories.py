"""Run directories with given returns, made without training."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlplug_core.runs.directory import group_of
from rlplug_core.runs.journal import Journal


def write_run(
    path: Path,
    returns: Sequence[float],
    *,
    algorithm: str = "ppo",
    env: str = "CartPole-v1",
    seed: int = 1,
    every: int = 100,
    best: float | None = None,
    status: str = "finished",
    content: str = "",
    created: float = 1.0,
    files: Mapping[str, tuple[str, str]] = {},
    extensions: Sequence[tuple[int, bool]] = (),
    **options: Any,
) -> Path:
    """Write a run that evaluated each `every` env steps; an evaluation took a second and ten updates.

    `content` is the content of the environment's file. `files` gives the file and the content of other roles.
    `extensions` are the totals that later processes gave it, and whether its schedules were stretched to them.
    """
    path.mkdir(parents=True)
    all_options = {"seed": seed, "total_timesteps": every * len(returns), "learning_rate": 1e-3, **options}
    origins = dict.fromkeys(all_options, "default") | dict.fromkeys(options, "option")
    env_file = {"env": (env, content)} if content else {}
    sources = {role: _source(*file) for role, file in {**files, **env_file}.items()}
    config = {"name": path.name, "uid": path.name, "group": group_of(algorithm, content or env, all_options),
              "algorithm": algorithm, "env": env, "options": all_options, "origins": origins,
              "environment": {"versions": {}}, "created": created, "sources": sources}  # fmt: skip
    (path / "config.json").write_text(json.dumps(config))
    journal = Journal(path / "journal.jsonl")
    journal.write("start", 0, {"resumed": False})
    for limit, rescale in extensions:
        journal.write("start", 0, {"resumed": True, "limit": limit, "rescale": rescale})
    for number, value in enumerate(returns, 1):
        step = every * number
        journal.write(
            "metrics", step, {"perf/wall_s": float(number), "perf/updates": 10 * number, "loss/policy": -value}
        )
        journal.write("evaluation", step, {"eval/return_mean": value, "best": False})
    if best is not None:
        journal.write("final_eval", step, {"checkpoint": f"best-{step:012d}", "episodes": 3, "return_mean": best})
    if status:
        journal.write("end", step, {"status": status})
    journal.close()
    return path


def _source(name: str, content: str) -> dict[str, str]:
    file = Path(name.rpartition(":")[0])
    digest = hashlib.sha256(content.encode()).hexdigest()
    return {"file": str(file), "copy": f"sources/{file.stem}-{digest[:8]}.py", "sha256": digest}


def journals(directory: Path) -> dict[str, bytes]:
    """Return the journals of the runs in a directory, by name."""
    return {path.parent.name: path.read_bytes() for path in directory.glob("*/journal.jsonl")}
