"""Compare population based training with random search of the same budget: `python bench/pbt.py CartPole-v1`.

Both train the same members with the same seeds, first option values and env steps; random search never exchanges. A
member is chosen by its last evaluation during training, and its final evaluation on new seeds counts. The last line has
the mean difference over the repetitions, and its percentile bootstrap interval (95 %).
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


def best_return(env: str, seed: int, rule: str, chunks: int, place: Path) -> float:
    """Return the final return of the member with the best last evaluation."""
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
    return float(finals[max(lasts, key=lambda name: lasts[name])])


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
    differences = []
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
                name: best_return(options.env, seed, rule, chunks, place / f"{name}-{seed}")
                for name, (rule, chunks) in rules.items()
            }
            differences.append(found["pbt"] - found["random"])
            print(json.dumps({"env": options.env, "repetition": seed, **found}), flush=True)
    draws = np.random.default_rng(0).choice(differences, (10_000, len(differences)))
    low, high = np.percentile(draws.mean(1), (2.5, 97.5))
    print(f"pbt - random search: {np.mean(differences):.1f} ({low:.1f} to {high:.1f})")


if __name__ == "__main__":
    main()
