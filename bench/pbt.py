"""Compare population based training with random search of the same budget: `python bench/pbt.py CartPole-v1`.

Both train the same members with the same seeds, first option values and env steps; random search never exchanges. Two
numbers are compared: the final return of the member with the best last evaluation during training, and the mean of the
final returns of all members. Final evaluations play new seeds. The last lines have the mean difference over the
repetitions, and its percentile bootstrap interval (95 %).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from rlplug_core.runs.journal import read

#: The options of a member by environment. A chunk has 50 updates on CartPole: with 20, all members are still as bad as
#: random actions at the first exchange, which then copies lucky members (331 against 484 of random search).
TASKS = {
    "CartPole-v1": ("a2c", ["--total-timesteps", "16000", "--num-envs", "8"]),
    "Acrobot-v1": ("a2c", ["--total-timesteps", "48000", "--num-envs", "8"]),
}
RANGES = ["--learning-rate", "1e-5..1e-1:log", "--ent-coef", "1e-5..1e-1:log"]
MEMBERS = 8
CHUNKS = 8
KEEP = '''"""No exchange: a random search."""


class Keep:
    def exchange(self, members, space, generator):
        return {}
'''


def returns(env: str, seed: int, rule: str, chunks: int, place: Path) -> dict[str, float]:
    """Return the final return of the member with the best last evaluation, and the mean of all members."""
    algorithm, own = TASKS[env]
    every = int(own[1]) // chunks
    words = ["evolve", algorithm, env, *RANGES, *own, "--every", str(every), "--rule", rule]
    words += ["--members", str(MEMBERS), "--seed", str(100 * seed), "--jobs", "1", "--json"]
    words += ["--eval-episodes", "20", "--final-eval-episodes", "100", "--out", str(place)]
    command = [sys.executable, "-m", "rlplug_cli", "-P", "no:mlflow", *words]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found = json.loads(done.stdout)
    finals = {member["name"]: member["final"] for member in found["members"]}
    place = Path(found["population"])
    lasts = {name: last_evaluation(place / name) for name in finals}
    best = max(lasts, key=lambda name: lasts[name])
    return {"best": float(finals[best]), "mean": float(np.mean(list(finals.values())))}


def last_evaluation(run: Path) -> float:
    """Return the mean return of a run's last evaluation during training."""
    journal = read(run / "journal.jsonl", kinds=("evaluation",))
    return float([record.data["eval/return_mean"] for record in journal][-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("env", choices=list(TASKS))
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--first", type=int, default=1, help="number of the first repetition")
    options = parser.parse_args()
    differences: dict[str, list[float]] = {"best": [], "mean": []}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "keep.py").write_text(KEEP, encoding="utf-8")
        # Random search has two chunks, because a population has at least two.
        rules = {
            "pbt": ("truncation:share=0.25", CHUNKS),
            "random": (f"{place / 'keep.py'}:Keep", 2),
        }
        for seed in range(options.first, options.first + options.repetitions):
            found = {
                name: returns(options.env, seed, rule, chunks, place / f"{name}-{seed}")
                for name, (rule, chunks) in rules.items()
            }
            for number, values in differences.items():
                values.append(found["pbt"][number] - found["random"][number])
            print(json.dumps({"env": options.env, "repetition": seed, **found}), flush=True)
    for number, values in differences.items():
        draws = np.random.default_rng(0).choice(values, (10_000, len(values)))
        low, high = np.percentile(draws.mean(1), (2.5, 97.5))
        print(f"{number}, pbt - random search: {np.mean(values):.1f} ({low:.1f} to {high:.1f})")


if __name__ == "__main__":
    main()
