"""Check that captured environments continue equally in this process and in another."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlplug_core.plugins.spec import WrapperSpec, wrap_env
from rlplug_core.protocols import Env
from rlplug_core.runs import checkpoint
from rlplug_envs.families.classic import Gymnasium
from tests.cli.warm import Fork

ROOT = Path(__file__).parents[2]


def build(words: str, rows: int) -> Env:
    """The environment of an id, inside the wrappers named after it."""
    id, *wrappers = words.split()
    return wrap_env(Gymnasium().make(id, rows), map(WrapperSpec.parse, wrappers))


def run(env: Env, steps: int) -> list[Any]:
    """A digest of the next steps' results, and the number of episodes that ended in them."""
    digest = hashlib.sha256()
    ended = 0
    rng = np.random.default_rng(9)
    space: Any = env.spec.action
    for _ in range(steps):
        shape = (env.spec.num_envs, *(space.shape or ()))
        action = rng.uniform(-1, 1, shape).astype(np.float32) if shape[1:] else rng.integers(0, space.n, shape)
        now = env.step(action)
        ended += len(now.episodes)
        trees: list[Any] = [now.obs, now.final_obs, now.reward, now.terminated, now.truncated, now.is_first, now.valid]
        while trees:
            tree = trees.pop()
            if isinstance(tree, dict):
                trees += [tree[name] for name in sorted(tree)]
            else:
                digest.update(np.ascontiguousarray(tree).tobytes())
        digest.update(repr([(e.row, e.total, e.length) for e in now.episodes]).encode())
    return [digest.hexdigest(), ended]


#: Run in another process to continue the environments of a checkpoint.
CODE = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tests.envs.continuing import main; main(*sys.argv[1:])"


def continue_in_new_process(
    fork: Callable[..., Fork], cases: Sequence[tuple[str, int]], directory: Path
) -> dict[str, list[Any]]:
    """Capture each (id, rows) after 77 steps, continue it here and in another process, and return the equal results."""
    states, expected = {}, {}
    for number, (id, rows) in enumerate(cases):
        env = build(id, rows)
        assert env.spec.inexact == "", id
        env.reset(3)
        run(env, 77)
        states[f"case{number}"] = env.state_dict()
        expected[f"{id}_{rows}"] = run(env, 300)
    saved = checkpoint.Checkpoints(directory).save("step", 77, states, {})
    process = fork("-c", CODE, saved.path, json.dumps(cases), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    output, error = process.communicate()
    assert process.returncode == 0, error
    assert json.loads(output) == expected
    return expected


def main(path: str, cases: str) -> None:
    states, _ = checkpoint.read(Path(path))
    results = {}
    for number, (id, rows) in enumerate(json.loads(cases)):
        env = build(id, rows)
        env.load_state_dict(states[f"case{number}"])
        results[f"{id}_{rows}"] = run(env, 300)
    sys.stdout.write(json.dumps(results))
