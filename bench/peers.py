"""Compare env steps per second with Stable-Baselines3, PFRL and RLlib: same machine, same settings, alternating.

    python bench/peers.py                       # all pairs, five times each: about an hour on two cores
    python bench/peers.py --only a2c,ppo        # some pairs; the other rows come from peers/rows.json
    python bench/peers.py --pairs 0             # only the table

Measures the rlplug that is installed for the Python interpreter of this script. Each peer gets its own virtual
environment.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from results import ROOT, machine, revision, table, write_section

HERE = Path(__file__).resolve().parent
#: The latest measurement of each table row in RESULTS.md, with its commit.
ROWS = HERE / "peers" / "rows.json"
#: Seconds between two samples of a process tree; reading its memory stops the processes for a few milliseconds.
SAMPLE_SECONDS = 2.0
#: Settings of OpenBLAS that a machine may have for other programs. With `OPENBLAS_CORETYPE=Haswell` products in NumPy
#: take 1.3 to 1.8 times as long on AMD's family 26; those in torch, which uses MKL, do not change.
KERNELS = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")


@dataclass(frozen=True)
class Pair:
    """One comparison: the virtual environment and script of the peer, the required speed ratio, the training setup."""

    name: str
    peer: str
    title: str
    script: str
    bar: float
    what: str
    processes: int = 1
    threads: int = 1  # of torch, in each process


ACTORS = "2 actors x 8 environments x 20 steps, a step of Adam for each 160, 64-64 tanh"
REPLAYING = "HalfCheetah-v5, a gradient step per env step, batch 256, 256-256 ReLU, 2 threads"
PAIRS = [
    Pair(
        "a3c",
        "pfrl",
        "PFRL A3C",
        "pfrl_a3c.py",
        bar=9.0,
        what="2 processes x 1 environment, t_max 20, 64-64 tanh, shared RMSProp",
        processes=2,
    ),
    Pair(
        "a2c",
        "sb3",
        "SB3 A2C",
        "sb3_a2c.py",
        bar=6.0,
        what="8 environments x 5 steps, 64-64 tanh, RMSProp",
    ),
    Pair(
        "ppo",
        "sb3",
        "SB3 PPO",
        "sb3_ppo.py",
        bar=6.0,
        what="8 environments x 32 steps, batch 256, 20 epochs, 64-64 tanh",
    ),
    Pair(
        "dqn",
        "sb3",
        "SB3 DQN",
        "sb3_dqn.py",
        bar=3.5,
        what="128 gradient steps per 256 env steps, batch 64, 256-256 ReLU",
    ),
    Pair(
        "qrdqn",
        "sb3_contrib",
        "sb3-contrib QR-DQN",
        "sb3_qrdqn.py",
        bar=1.5,
        what="128 gradient steps per 256 env steps, batch 64, 256-256 ReLU, 200 quantiles",
    ),
    Pair(
        "ppo-halfcheetah",
        "sb3",
        "SB3 PPO",
        "sb3_ppo.py",
        bar=6.0,
        what="HalfCheetah-v5, 1 environment x 2048 steps, batch 64, 10 epochs, 64-64 tanh",
    ),
    Pair(
        "ppo-recurrent",
        "sb3_contrib",
        "sb3-contrib RecurrentPPO",
        "sb3_recurrent.py",
        bar=1.5,
        what="8 environments x 128 steps, batch 256, 10 epochs, two layers of 64 and an LSTM of 64",
    ),
    Pair(
        "ppo-pong",
        "sb3",
        "SB3 PPO",
        "sb3_ppo.py",
        bar=1.5,
        what="Pong in 84 x 84 with four frames, 8 environments x 128 steps, batch 256, 4 epochs, three convolutions",
    ),
    Pair("impala", "rllib", "RLlib IMPALA", "rllib_impala.py", bar=3.0, what=ACTORS),
    Pair("appo", "rllib", "RLlib APPO", "rllib_impala.py", bar=3.0, what=ACTORS),
    Pair("sac", "sb3", "SB3 SAC", "sb3_sac.py", bar=1.8, what=REPLAYING, threads=2),
    Pair("td3", "sb3", "SB3 TD3", "sb3_td3.py", bar=1.8, what=REPLAYING, threads=2),
]


def peer_python(peer: str, cache: Path) -> str:
    """Return the interpreter of a peer's environment; create it with one pip command if its requirements changed."""
    requirements = HERE / "peers" / f"{peer}.txt"
    directory = cache / peer
    wanted = requirements.read_text() + (ROOT / "constraints.txt").read_text() + sys.version
    stamp = directory / "made-for.txt"
    python = directory / "bin" / "python"
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"creating the environment of {peer} in {directory}", file=sys.stderr)
        venv.create(directory, clear=True, with_pip=True)
        install = [
            "install",
            "--quiet",
            "-c",
            str(ROOT / "constraints.txt"),
            "-r",
            str(requirements),
        ]
        subprocess.run([python, "-m", "pip", *install], check=True)
        stamp.write_text(wanted)
    return str(python)


class Tree(threading.Thread):
    """Samples a process and its descendants: peak memory and busy cores."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.root = psutil.Process(pid)
        self.over = threading.Event()
        self.memory: list[float] = [0.0]
        self.cores: list[float] = [0.0]

    def run(self) -> None:
        before = (time.perf_counter(), 0.0)
        while not self.over.wait(SAMPLE_SECONDS):
            tree = self.tree()
            self.memory.append(sum(map(memory_mib, tree)))
            now = (time.perf_counter(), sum(map(processor_time, tree)))
            self.cores.append((now[1] - before[1]) / (now[0] - before[0]))
            before = now

    def usage(self) -> dict[str, float]:
        """Return the peak memory of the whole tree in MiB and the median number of busy cores."""
        return {
            "tree_mb": round(max(self.memory)),
            "cores": round(statistics.median(self.cores), 2),
        }

    def tree(self) -> list[psutil.Process]:
        try:
            return [self.root, *self.root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []


def memory_mib(process: psutil.Process) -> float:
    """Return the memory of one process in MiB: PSS (shared pages are divided) if the system reports it, else RSS."""
    try:
        full = process.memory_full_info()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return 0.0
    return float(getattr(full, "pss", full.rss)) / 2**20


def processor_time(process: psutil.Process) -> float:
    """Return the seconds of processor time of one process."""
    try:
        times = process.cpu_times()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return 0.0
    return float(times.user + times.system)


def run_script(command: Sequence[str], threads: int) -> dict[str, Any]:
    """Run one script to its end; return its JSON line with the memory and cores of its process tree.

    Raises:
        SystemExit: the script failed; the message has its stderr.
    """
    with tempfile.TemporaryFile("w+") as errors:
        limited = {name: value for name, value in os.environ.items() if name not in KERNELS}
        limited |= {
            "OMP_NUM_THREADS": str(threads),
            "OPENBLAS_NUM_THREADS": "1",
        }  # like `rlplug` sets it
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=limited
        )
        tree = Tree(process.pid)
        tree.start()
        try:
            output, _ = process.communicate()
        finally:
            tree.over.set()
            tree.join()
            process.kill()
        if process.returncode:
            errors.seek(0)
            raise SystemExit(
                f"{' '.join(command)} failed with {process.returncode}:\n{errors.read()}"
            )
    line: dict[str, Any] = json.loads(output.splitlines()[-1])
    return line | tree.usage()


def run_pair(pair: Pair, index: int, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Run the peer, then rlplug, with the same seed; return both JSON lines."""
    extra = ["--seed", str(index + 1)] + (
        ["--steps", str(arguments.steps)] if arguments.steps else []
    )
    peer = [
        peer_python(pair.peer, arguments.cache),
        str(HERE / "peers" / pair.script),
        "--pair",
        pair.name,
        *extra,
    ]
    ours = [sys.executable, str(HERE / "ours.py"), pair.name, *extra]
    lines = [
        run_script(peer + (["--tuned"] if arguments.tuned else []), pair.threads),
        run_script(ours, pair.threads),
    ]
    for line in lines:
        speed = f"{line['steps_per_s']} steps/s on {line['cores']} cores"
        print(f"{pair.name} {index + 1}: {line['side']} {speed}", file=sys.stderr)
    return lines


def row(pair: Pair, runs: Sequence[Sequence[dict[str, Any]]]) -> list[str]:
    """Return the table row of a pair."""
    theirs, ours = ([run[side] for run in runs] for side in (0, 1))
    ratios = [b["steps_per_s"] / a["steps_per_s"] for a, b in zip(theirs, ours, strict=True)]
    ratio = statistics.median(ratios)
    disturbed = min(line["cores"] for line in theirs + ours) < 0.85 * pair.processes
    return [
        pair.name,
        f"{pair.title}: {pair.what}",
        spread([line["steps_per_s"] for line in theirs]),
        spread([line["steps_per_s"] for line in ours]),
        f"**{ratio:.2f}** ({min(ratios):.2f} to {max(ratios):.2f})",
        f"≥ {pair.bar:g} {'✓' if ratio >= pair.bar else '✗ missed'}",
        f"{middle(theirs, 'tree_mb')} / {middle(ours, 'tree_mb')}",
        f"{middle(theirs, 'cores', 2)} / {middle(ours, 'cores', 2)}{' (disturbed)' if disturbed else ''}",
        f"{middle(theirs, 'return_after')} / {middle(ours, 'return_after')}",
        str(len(runs)),
    ]


def middle(lines: Sequence[dict[str, Any]], key: str, digits: int = 0) -> str:
    return f"{statistics.median(line[key] for line in lines):.{digits}f}"


def spread(values: Sequence[int]) -> str:
    return f"{statistics.median(values):,.0f} ({min(values):,} to {max(values):,})"


HEADER = [
    "pair",
    "peer and settings",
    "peer, steps/s",
    "rlplug, steps/s",
    "ratio per pair",
    "bar",
    "peak memory, MiB (peer / rlplug)",
    "cores busy (peer / rlplug)",
    "return after (peer / rlplug)",
    "pairs",
    "rlplug at",
]
NOTE = """Medians with the smallest and largest value in brackets. The ratio is computed within each pair of runs; the
table has the median of these. Unless the row says otherwise: CartPole-v1 and one thread per process. Peer and rlplug
alternate; the clock starts after the first steps of all workers; logs, evaluations and checkpoints are off during the
timed part. Settings of both sides: `bench/peers/settings.json`. Memory is the peak over the whole process tree
(parent, workers, helpers) with shared pages counted once. A row is *disturbed* if a run had less than 85 % of a core
per working process. The return is the mean of 20 greedy episodes after training; it shows that both sides learn.
{remarks}{tuned}
{about}."""


def section(run_script: dict[str, dict[str, Any]], tuned: bool) -> str:
    """Return the section of RESULTS.md from the newest row of each pair."""
    known = [run_script[pair.name] for pair in PAIRS if pair.name in run_script]
    if not known:
        return "Nothing measured yet."
    heading = "## Compared with other libraries" + (", tuned" if tuned else "")
    by_hand = "The peers run with fused Adam, without checks in distributions and with denormals set to zero.\n"
    about = sorted({each["machine"] for each in known}) + sorted(
        {name for each in known for name in each["versions"]}
    )
    remarks = "".join(
        f"{each['remark']}\n" for each in known if "remark" in each
    )  # added to a row by hand
    note = NOTE.format(about=", ".join(about), remarks=remarks, tuned=by_hand if tuned else "")
    command = "python bench/peers.py" + (" --tuned" if tuned else "")
    rows = [[*each["cells"], each["revision"]] for each in known]
    return f"{heading}\n\n`{command}`\n\n{table(HEADER, rows)}\n\n{note}"


def newest(records: list[dict[str, Any]], now: str) -> dict[str, dict[str, Any]]:
    """Return the `ROWS` entry of each pair that was measured at this revision."""
    found = {}
    for pair in PAIRS:
        runs = [record["runs"] for record in records if record["pair"] == pair.name]
        if runs:
            versions = {
                name: number
                for run in runs
                for line in run
                for name, number in line["versions"].items()
            }
            named = sorted(
                f"{name} {number}" for name, number in versions.items() if name != "python"
            )
            found[pair.name] = {
                "cells": row(pair, runs),
                "revision": now,
                "machine": machine(),
                "versions": named,
            }
    return found


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=5, help="number of runs of each pair")
    parser.add_argument(
        "--only",
        default=",".join(pair.name for pair in PAIRS),
        help="pairs, separated by commas",
    )
    parser.add_argument(
        "--steps",
        type=int,
        help="timed env steps instead of those in settings.json, for quick tests",
    )
    parser.add_argument(
        "--tuned", action="store_true", help="peers with every speed setting that their users have"
    )
    parser.add_argument(
        "--cache",
        type=Path,
        default=ROOT / ".nox" / "peers",
        help="folder for virtual environments and raw results",
    )
    parser.add_argument(
        "--write", action="store_true", help="also write the table into bench/RESULTS.md"
    )
    return parser.parse_args()


def main() -> None:
    given = arguments()
    given.cache.mkdir(parents=True, exist_ok=True)
    raw = given.cache / "measurements.jsonl"
    now = revision()
    for pair in (pair for pair in PAIRS if pair.name in given.only.split(",")):
        for index in range(given.pairs):
            record = {
                "revision": now,
                "steps": given.steps,
                "tuned": given.tuned,
                "pair": pair.name,
            }
            record["runs"] = run_pair(pair, index, given)
            with raw.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
    lines = [json.loads(line) for line in raw.read_text().splitlines()] if raw.exists() else []
    asked = {"revision": now, "steps": given.steps, "tuned": given.tuned}
    name = "peers-tuned" if given.tuned else "peers"
    kept = json.loads(ROWS.read_text(encoding="utf-8"))
    kept[name] = kept.get(name, {}) | newest(
        [line for line in lines if asked.items() <= line.items()], now
    )
    text = section(kept[name], given.tuned)
    print(text)
    if given.write:
        ROWS.write_text(json.dumps(kept, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        write_section(name, text)


if __name__ == "__main__":
    main()
