"""Compare two checkouts bit for bit: weights, optimizer and buffer of every algorithm after 20 updates.

    python bench/bits.py ../baseline            # this checkout against another one
    python bench/bits.py ../baseline -k sac     # only names that contain "sac"

Both checkouts run in the same job, in fresh processes: one for each kind of loops (numpy, numba). No hash is stored,
because bits depend on the machine. If the other checkout has this file, its own copy runs there.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from rlplug_core.clock import Clock
from rlplug_core.errors import UsageError
from rlplug_core.loop.build import build
from rlplug_core.loop.plan import Plan
from rlplug_core.plugins.presets import preset

HERE = Path(__file__).resolve().parent.parent
UPDATES = 20
LOOPS = {"numpy": "1", "numba": "0"}
RUNNERS: dict[str, dict[str, Any]] = {
    "sync": {"runner": "sync"},
    "async": {"runner": "async", "inline": True, "workers": 2},
    "decoupled": {"runner": "decoupled", "inline": True, "actors": 2},
}
COMMON = {"num_envs": 2, "net.hidden": [16, 16], "total_timesteps": 4000}
REPLAY = {"learning_starts": 40, "train_freq": 4, "batch_size": 16, "buffer_size": 1000}
#: Options that keep the updates small. An algorithm takes those that it has.
SMALL: dict[str, Any] = {**REPLAY, "n_steps": 16, "n_epochs": 2}
ENVS = ("CartPole-v1", "Pendulum-v1", "rlplug_core.testing.worlds:Dilemma")
#: Options of some algorithms; None drops one.
OWN: dict[str, dict[str, Any]] = {
    "independent": {"net.hidden": None},
    "self-play": {"net.hidden": None},
    "ppo-recurrent": {"recurrent_hidden_size": 8},
    "r2d2": {"recurrent_hidden_size": 8, "sequence_length": 6, "burn_in": 2, "learning_starts": 90},
}


def leaves(tree: Any) -> Iterator[Any]:
    """Yield the leaves of nested dictionaries and lists."""
    if isinstance(tree, dict):
        for part in tree.values():
            yield from leaves(part)
    elif isinstance(tree, list | tuple):
        for part in tree:
            yield from leaves(part)
    else:
        yield tree


def digest(tree: Any) -> str:
    """Return a hash of all arrays, tensors and numbers of a state."""
    found = hashlib.sha256()
    for leaf in leaves(tree):
        if hasattr(leaf, "detach"):
            leaf = leaf.detach().cpu().numpy()
        found.update(leaf.tobytes() if hasattr(leaf, "tobytes") else repr(leaf).encode())
    return found.hexdigest()[:16]


def names() -> list[str]:
    """Return the registered names of first-party algorithms."""
    return sorted(file.stem for file in HERE.glob("rlplug-algos/src/rlplug_algos/index/*.json"))


def runner_of(name: str, env: str, options: dict[str, Any]) -> Any:
    """Build the runner of an algorithm."""
    plan = Plan.make(name, env, {**preset(name, env), **options})
    return build(plan, Clock(plan.options.total_timesteps))


def measure(name: str, runner: str) -> dict[str, str]:
    """Return the hashes of learner and buffer after some updates, or the reason why there are none."""
    given = {**COMMON, **SMALL, **RUNNERS[runner], **OWN.get(name, {})}
    options = {option: value for option, value in given.items() if value is not None}
    errors: list[str] = []
    for env in ENVS:
        try:
            return hash_states(runner_with_known_options(name, env, dict(options)))
        except UsageError as error:  # the next environment may be suitable
            errors.append(str(error)[:90])
    return {"none": errors[0]}


def runner_with_known_options(name: str, env: str, options: dict[str, Any]) -> Any:
    """Build a runner without the options that its algorithm does not have."""
    while True:
        try:
            return runner_of(name, env, options)
        except UsageError as error:
            unknown = [option for option in options if f"'{option}'" in str(error)]
            if "no option" not in str(error) or not unknown:
                raise
            del options[unknown[0]]


def hash_states(runner: Any) -> dict[str, str]:
    """Run until enough updates, and hash the state."""
    clocks = [runner.clock] if hasattr(runner, "clock") else []

    def poll() -> None:
        for clock in clocks:
            if clock.updates >= UPDATES:
                clock.stop = True

    runner.run(poll)
    learner = runner.snapshot()
    found = {
        "updates": str(clocks[0].updates if clocks else -1),
        "weights": digest(learner.state_dict()),
    }
    state = runner.state_dict()
    state.pop("meter", None)
    found["state"] = digest(buffers(state))
    how = getattr(learner, "describe_gradients", str)()
    return {**found, "how": str(how)}


def buffers(state: Any) -> list[Any]:
    """Return the buffers in a state."""
    if isinstance(state, dict):
        here = [part for key, part in state.items() if str(key) == "buffer"]
        return here + [
            buffer
            for key, part in state.items()
            if str(key) != "buffer"
            for buffer in buffers(part)
        ]
    if isinstance(state, list | tuple):
        return [buffer for part in state for buffer in buffers(part)]
    return []


def child(pattern: str) -> None:
    """Measure all names, and print one line of JSON for each."""
    torch.set_num_threads(1)
    for name in names():
        for runner in RUNNERS:
            if pattern in name:
                print(json.dumps([name, runner, measure(name, runner)]), flush=True)


def run_checkout(checkout: Path, loops: str, pattern: str) -> dict[tuple[str, str], dict[str, str]]:
    """Run a checkout in a fresh process."""
    own = checkout / "bench/bits.py"
    script = own if own.exists() else Path(__file__)
    sources = [str(checkout / f"rlplug-{part}/src") for part in ("core", "algos", "envs", "cli")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sources),
        "NUMBA_DISABLE_JIT": LOOPS[loops],
        "OMP_NUM_THREADS": "1",
    }
    with tempfile.TemporaryDirectory() as directory:
        lines = subprocess.run(
            [sys.executable, str(script), "--child", "-k", pattern],
            env=environment,
            cwd=directory,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout.splitlines()
    rows = [json.loads(line) for line in lines if line.startswith("[")]
    return {(name, runner): found for name, runner, found in rows}


def main() -> int:
    """Print the cases with different bits; return 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("baseline", nargs="?", type=Path)
    parser.add_argument("-k", dest="pattern", default="", help="only names that contain this")
    parser.add_argument("--loops", choices=list(LOOPS), action="append")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(given.pattern)
        return 0
    different = 0
    for loops in given.loops or LOOPS:
        before = run_checkout(given.baseline.resolve(), loops, given.pattern)
        after = run_checkout(HERE, loops, given.pattern)
        for key in before | after:
            old, new = before.get(key, {}), after.get(key, {})
            same = all(
                old.get(part) == new.get(part) for part in ("updates", "weights", "state", "none")
            )
            different += not same
            verdict = "equal" if same else "DIFFERENT"
            how = new.get("none") or new.get("how", "")
            print(
                f"{loops:6} {key[0]:16} {key[1]:10} {verdict:9} {new.get('updates', ''):4} {how[:100]}",
                flush=True,
            )
            if not same:
                print("   before", old, "\n   after ", new, flush=True)
    print(f"{different} cases differ")
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
