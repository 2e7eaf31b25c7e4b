"""What the last cell of every chapter does: train the chapter's learner and print what came out."""

from __future__ import annotations

import argparse

from rlplug_core import train
from rlplug_core.journal import read

#: The most that CartPole-v1 gives, and how wide it is drawn.
HIGHEST, WIDTH = 500, 40


def lesson(algorithm: str) -> None:
    """Train `module:Class` on CartPole-v1 for `--steps` env steps, and draw its evaluations as bars."""
    parser = argparse.ArgumentParser(description=f"Train {algorithm} on CartPole-v1.")
    parser.add_argument("--steps", type=int, default=20_000, help="env steps to train for")
    parser.add_argument("--seed", type=int, default=1, help="the root of all randomness")
    args = parser.parse_args()
    options = {"total_steps": args.steps, "seed": args.seed, "eval_episodes": 20}
    run = train(algorithm, "CartPole-v1", options)
    print(f"{'env steps':>10} {'return':>7}  of 20 greedy episodes")
    for record in read(run.journal):
        if record.kind == "evaluation":
            mean = record.data["eval/return_mean"]
            print(f"{record.step:10,} {mean:7.1f}  {'#' * round(WIDTH * mean / HIGHEST)}")
        if record.kind == "verdict":
            mean = record.data["return_mean"]
            print(f"{run.name}: its best weights return {mean:.1f} on average over 100 fresh episodes.")
