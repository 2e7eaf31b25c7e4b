"""Compare returns per minute of training on a world of Brax: `python bench/brax_minutes.py halfcheetah`.

`ppo` and `fast-td3` of rlplug on `brax/NAME`, and Brax's own PPO, one after the other in one process, each for the same
minutes of training. Compilation and evaluations do not count as training; the report has the seconds of compilation.
Each minute the policy plays greedy episodes, the same number for all. Brax 0.14.2, jax 0.10.2 and flax have to be
importable: `python -m pip install --target DIRECTORY brax==0.14.2 'jax[cpu]'`, and `PYTHONPATH=DIRECTORY`.

Brax's PPO has the published options of the world, with fewer rows and smaller minibatches, because thousands of rows
pay off on a GPU only; those of rlplug were chosen for a CPU. Brax evaluates after whole training steps, so its returns
are those of the first evaluation after the minute.
"""

from __future__ import annotations

import argparse
import json
import time
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

import torch
from results import machine, revision, write_section

from rlplug_core.clock import Clock
from rlplug_core.loop.build import build
from rlplug_core.loop.evaluate import evaluate
from rlplug_core.loop.plan import Plan
from rlplug_core.loop.sync import step_and_train

#: Minutes of training, env steps and mean return of each evaluation.
Curve: TypeAlias = list[tuple[float, int, float]]
ROWS = 256
RLPLUG: dict[str, dict[str, Any]] = {
    "ppo": {
        "num_envs": ROWS,
        "n_steps": 24,
        "batch_size": 768,
        "n_epochs": 8,
        "gamma": 0.97,
        "normalize_reward": True,
        "learning_rate": 1e-3,
        "anneal_lr": False,
        "desired_kl": 0.01,
        "ent_coef": 0.001,
        "net.hidden": [256, 128],
        "net.activation": "elu",
        "net.normalize_obs": True,
    },
    "fast-td3": {
        "num_envs": ROWS,
        "train_freq": ROWS,
        "gradient_steps": 8,
        "learning_starts": 10 * ROWS,
        "batch_size": 256,
        "buffer_size": 1_000_000,
        "gamma": 0.97,
        "n_atoms": 51,
        "v_min": -100.0,
        "v_max": 400.0,
        "tau": 0.01,
        "noise_sigma": 0.001,
        "noise_sigma_max": 0.4,
        "target_policy_noise": 0.001,
        "learning_rate": 3e-4,
        "critic_learning_rate": 3e-4,
        "optimizer": "AdamW",
        "optimizer_kwargs.weight_decay": 0.1,
        "net.hidden": [256, 256],
        "net.normalize_obs": True,
    },
}
#: Options of Brax's PPO for all worlds and for each world, from the notebook `training.ipynb` of its repository.
BRAX: dict[str, Any] = {
    "num_envs": ROWS,
    "batch_size": 64,
    "num_minibatches": 32,
    "episode_length": 1_000,
    "normalize_observations": True,
    "learning_rate": 3e-4,
    "deterministic_eval": True,
}
PER_WORLD: dict[str, dict[str, Any]] = {
    "ant": {
        "unroll_length": 5,
        "num_updates_per_batch": 4,
        "discounting": 0.97,
        "entropy_cost": 1e-2,
        "reward_scaling": 10,
    },
    "halfcheetah": {
        "unroll_length": 20,
        "num_updates_per_batch": 8,
        "discounting": 0.95,
        "entropy_cost": 1e-3,
        "reward_scaling": 1,
    },
}


class Enough(Exception):
    """Stops Brax's PPO after its minutes; it has no option for a time."""


def rlplug_curve(
    algorithm: str, world: str, minutes: float, episodes: int, seed: int
) -> tuple[Curve, float]:
    """Return the evaluations of an algorithm of rlplug, about one per minute, and the seconds of the first steps."""
    options = {**RLPLUG[algorithm], "total_timesteps": 10**9, "seed": seed}
    plan = Plan.make(algorithm, f"brax/{world}", options)
    start = time.perf_counter()
    runner: Any = build(plan, Clock(10**9))
    for _ in range(2):  # JAX compiles a step twice: after a reset, and after a step
        step_and_train(runner.actor, runner.clock, runner.meter)
    compiling = time.perf_counter() - start
    test = plan.make_eval_env(episodes)
    curve: Curve = []
    trained = 0.0
    while trained < 60 * minutes:
        start = time.perf_counter()
        while time.perf_counter() - start < min(60, 60 * minutes):
            step_and_train(runner.actor, runner.clock, runner.meter)
        trained += time.perf_counter() - start
        runner.episodes()  # these and the metrics would be in the log of a run
        runner.metrics()
        result = evaluate(runner.learner.agent(), test, seed, runner.clock)
        curve.append((trained / 60, runner.clock.steps, result.mean))
        print(algorithm, curve[-1], flush=True)
    return curve, compiling


def brax_curve(world: str, minutes: float, episodes: int, seed: int) -> tuple[Curve, float]:
    """Return the evaluations of Brax's PPO, and the seconds of compilation."""
    import jax
    from brax.envs import get_environment
    from brax.training.agents.ppo.train import train

    if not hasattr(jax, "device_put_replicated"):  # Brax 0.14.2 calls it, jax 0.10 does not have it
        jax.device_put_replicated = replicate

    options = BRAX | PER_WORLD.get(world, PER_WORLD["halfcheetah"])
    epoch = options["batch_size"] * options["num_minibatches"] * options["unroll_length"]
    evaluations: Curve = []

    def progress(steps: int, metrics: dict[str, Any]) -> None:
        seconds = float(metrics.get("training/walltime", 0.0))
        evaluations.append((seconds, int(steps), float(metrics["eval/episode_reward"])))
        print("brax", evaluations[-1], flush=True)
        if len(evaluations) > 3 and seconds - _compile_seconds(evaluations) > 60 * minutes:
            raise Enough

    with suppress(Enough):
        train(
            get_environment(world),
            num_timesteps=1_000_000 * epoch,
            num_evals=1_000_001,
            num_eval_envs=episodes,
            progress_fn=progress,
            seed=seed,
            **options,
        )
    compiling = _compile_seconds(evaluations)
    return [((at - compiling) / 60, steps, mean) for at, steps, mean in evaluations[2:]], compiling


def replicate(tree: Any, devices: list[Any]) -> Any:
    """Return the arrays of a tree once for each device, along a new first axis."""
    import jax

    return jax.tree.map(lambda each: jax.numpy.stack([each] * len(devices)), tree)


def _compile_seconds(evaluations: Curve) -> float:
    """Return by how much the first two epochs took longer than the third; `evaluations` has the times of their ends.

    Brax compiles an epoch twice.
    """
    times = [each[0] for each in evaluations]
    return max(0.0, times[2] - 2 * (times[3] - times[2]))


def table(curves: dict[str, Curve], minutes: float) -> str:
    """Return a table of the first evaluation after each minute."""
    lines = ["| minute | " + " | ".join(curves) + " |", "|---:|" + "---:|" * len(curves)]
    for minute in range(1, int(max(1, minutes)) + 1):
        cells = [str(minute)]
        for curve in curves.values():
            later = [f"{mean:,.0f} ({steps:,})" for at, steps, mean in curve if at >= minute]
            cells.append(later[0] if later else "-")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def section(
    world: str, minutes: float, episodes: int, curves: dict[str, Curve], compiling: dict[str, float]
) -> str:
    """Return the section of RESULTS.md."""
    seconds = ", ".join(f"{name} {each:.0f} s" for name, each in compiling.items())
    return f"""## Return per minute of training on a world of Brax

`python bench/brax_minutes.py {world}`

Mean returns of {episodes} greedy episodes on `brax/{world}` after each minute of training on one core, and env steps in
brackets; one seed, {ROWS} rows. Not counted: evaluations and compilation ({seconds}). Brax's PPO has its published
options with fewer rows and smaller minibatches.

{table(curves, minutes)}

{machine()}; Brax 0.14.2, jax 0.10.2; rlplug at {revision()}."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("world", nargs="?", default="halfcheetah")
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--episodes", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=[*RLPLUG, "brax"], default=[*RLPLUG, "brax"])
    parser.add_argument("--write", action="store_true", help="also write the table into RESULTS.md")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    curves: dict[str, Curve] = {}
    compiling: dict[str, float] = {}
    shared = (chosen.world, chosen.minutes, chosen.episodes, chosen.seed)
    for name in chosen.only:
        run = brax_curve if name == "brax" else partial(rlplug_curve, name)
        curves[name], compiling[name] = run(*shared)
    print(json.dumps({"seconds of compilation": compiling, "curves": curves}))
    print(table(curves, chosen.minutes))
    if chosen.write:
        text = section(chosen.world, chosen.minutes, chosen.episodes, curves, compiling)
        write_section("brax-minutes", text)


if __name__ == "__main__":
    main()
