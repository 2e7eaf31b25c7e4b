"""Train the learner of a chapter and print its evaluations. The last cell of every chapter calls `lesson`."""

from __future__ import annotations

import argparse

from rlplug_core import train
from rlplug_core.runs.journal import read

#: The highest return of CartPole-v1, and the width of a full bar.
HIGHEST = 500
WIDTH = 40


def lesson(algorithm: str) -> None:
    """Train `module:Class` on CartPole-v1 for `--total-timesteps` env steps, and draw its evaluations as bars."""
    parser = argparse.ArgumentParser(description=f"Train {algorithm} on CartPole-v1.")
    parser.add_argument(
        "--total-timesteps", type=int, default=20_000, help="env steps to train for"
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of all random numbers")
    args = parser.parse_args()
    options = {"total_timesteps": args.total_timesteps, "seed": args.seed, "eval_episodes": 20}
    run = train(algorithm, "CartPole-v1", options)
    print(f"{'env steps':>10} {'return':>7}  of 20 greedy episodes")
    for record in read(run.journal):
        if record.kind == "evaluation":
            mean = record.data["eval/return_mean"]
            print(f"{record.step:10,} {mean:7.1f}  {'#' * round(WIDTH * mean / HIGHEST)}")
        if record.kind == "final_eval":
            mean = record.data["return_mean"]
            print(
                f"{run.name}: its best weights return {mean:.1f} on average over 100 new episodes."
            )
