"""Do SAC and TD3 learn HalfCheetah as well as Stable-Baselines3's, with the same settings and seeds?

    python bench/halfcheetah.py                              # both, seeds 1 to 5 on both sides: many hours
    python bench/halfcheetah.py --only sac --seeds 1 2       # some of it; two at once share the file of results
    python bench/halfcheetah.py --report --write             # train nothing; the table, into RESULTS.md too

Every finished run is one line of `halfcheetah.jsonl`; with the same settings it is not trained again.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import ours
from peers import HERE, measured, peer_python
from results import ROOT, interquartile_mean, machine, revision, table, write_section

from rlplug_core.loop.plan import Plan
from rlplug_core.plugins.presets import resolve
from rlplug_core.runs.api import train
from rlplug_core.runs.journal import read

ENV = "HalfCheetah-v5"
ALGORITHMS = ("sac", "td3")
#: With the options that each side of ours has beside the presets.
OURS: dict[str, dict[str, Any]] = {"rlplug": {}, "rlplug-bfloat16": {"net.precision": "bfloat16"}}
SIDES = ("stable-baselines3", *OURS)
RECORDS = Path(__file__).with_name("halfcheetah.jsonl")
#: The options that the comparison is about; the rest of `ours.options` only keeps a stopwatch undisturbed.
COMPARED = (
    "action_noise",
    "batch_size",
    "buffer_size",
    "critic_learning_rate",
    "gamma",
    "gradient_steps",
    "learning_rate",
    "learning_starts",
    "n_critics",
    "n_step",
    "net.activation",
    "net.hidden",
    "noise_sigma",
    "policy_delay",
    "random_steps",
    "tau",
    "train_freq",
)
DRAWS = 20_000


def rlplug(algorithm: str, side: str, seed: int, given: argparse.Namespace) -> dict[str, Any]:
    """Train with the presets and what `side` has of its own; the final evaluation is of the best weights."""
    run = {"seed": seed, "total_timesteps": given.steps, "threads": given.threads}
    judging = {"eval_episodes": given.episodes, "final_eval_episodes": given.final}
    values, _ = resolve(algorithm, ENV, {**run, **judging, **OURS[side]})
    check(algorithm, Plan.make(algorithm, ENV, values).flat)
    with tempfile.TemporaryDirectory() as directory:
        records = list(read(train(algorithm, ENV, values, out=directory, hooks=False).journal))
    means = [record.data["eval/return_mean"] for record in records if record.kind == "evaluation"]
    (found,) = [record.data["return_mean"] for record in records if record.kind == "final_eval"]
    return {"final_return": found, "evaluations": means}


def check(algorithm: str, mine: dict[str, Any]) -> None:
    """Raise SystemExit where a preset says something else than the settings that the other side gets."""
    setting = ours.measure.stored(algorithm)
    theirs = ours.options(algorithm, setting | {"seed": 0})
    for name in COMPARED:
        if name in theirs and mine[name] != theirs[name]:
            raise SystemExit(
                f"{algorithm}: the preset has {name} {mine[name]}, settings.json {theirs[name]}"
            )


def peer(algorithm: str, seed: int, given: argparse.Namespace) -> dict[str, Any]:
    """The other side, in an environment of its own."""
    script = [
        peer_python("sb3", given.cache),
        str(HERE / "peers" / "sb3_learn.py"),
        "--pair",
        algorithm,
    ]
    numbers = {"seed": seed, "steps": given.steps, "episodes": given.episodes, "final": given.final}
    words = [word for name, value in numbers.items() for word in (f"--{name}", str(value))]
    return measured(script + words, given.threads)


def resampled(scores: npt.NDArray[np.float64], seed: int) -> npt.NDArray[np.float64]:
    """The interquartile means of bootstrap samples of the seeds' `scores` (Agarwal et al., 2021, arXiv:2108.13264).

    There is one task for each table row, so that its seeds are the only stratum.
    """
    picks = np.random.default_rng(seed).integers(len(scores), size=(DRAWS, len(scores)))
    return interquartile_mean(scores[picks])


def interval(samples: npt.NDArray[np.float64]) -> str:
    low, high = np.percentile(samples, [2.5, 97.5])
    return f"{low:,.0f} to {high:,.0f}"


def section(records: Sequence[dict[str, Any]], settings: dict[str, int]) -> str:
    """The text for RESULTS.md from finished runs with these settings."""
    rows = []
    revisions = ", ".join(sorted({record["revision"] for record in records}))
    for algorithm in ALGORITHMS:
        found = {
            side: [r for r in records if (r["algorithm"], r["side"]) == (algorithm, side)]
            for side in SIDES
        }
        runs = {side: ones for side, ones in found.items() if ones}
        scores = {
            side: np.array([run["final_return"] for run in ones]) for side, ones in runs.items()
        }
        samples = {side: resampled(scores[side], number) for number, side in enumerate(runs)}
        for side in runs:
            ordered = sorted(runs[side], key=itemgetter("seed"))
            returns = ", ".join(f"{run['seed']}: {run['final_return']:,.0f}" for run in ordered)
            hours = np.median([run["seconds"] for run in runs[side]]) / 3600
            middle = f"**{interquartile_mean(scores[side]):,.0f}** ({interval(samples[side])})"
            more = (
                interval(samples[side] - samples[SIDES[0]])
                if side in OURS and SIDES[0] in runs
                else ""
            )
            rows.append([algorithm, side, returns, middle, more, f"{hours:.2f}"])
    header = [
        "algorithm",
        "side",
        "final return by seed",
        "IQM (95 %)",
        "rlplug's less the other's (95 %)",
        "hours a run",
    ]
    return f"""## HalfCheetah-v5 beside Stable-Baselines3

`python bench/halfcheetah.py`

{table(header, rows)}

{settings["steps"]:,} env steps with the same settings (rlplug's presets, which are checked against
`bench/peers/settings.json`) and seeds on both sides; threads of torch: {settings["threads"]}. Twenty evaluations of
{settings["episodes"]} greedy episodes find the best weights; the final return is the mean of these over
{settings["final_episodes"]} greedy episodes on fresh seeds. Interquartile means over the seeds, with percentile
bootstrap intervals of {DRAWS:,} samples. {machine()}; rlplug at {revisions}."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=ALGORITHMS, default=ALGORITHMS)
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=SIDES)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3, 4, 5])
    parser.add_argument(
        "--steps", type=int, default=100_000, help="env steps, for trying things out"
    )
    # With a hundred episodes each, the twenty evaluations would take longer than the training.
    parser.add_argument("--episodes", type=int, default=10, help="of each evaluation on the way")
    parser.add_argument("--final", type=int, default=100, help="episodes of the final evaluation")
    parser.add_argument(
        "--threads", type=int, default=1, help="of torch; with one, two halves can run side by side"
    )
    parser.add_argument(
        "--cache", type=Path, default=ROOT / ".nox" / "peers", help="for the other side"
    )
    parser.add_argument("--report", action="store_true", help="train nothing")
    parser.add_argument(
        "--write", action="store_true", help="write the table into bench/RESULTS.md too"
    )
    given = parser.parse_args()
    settings = {
        "steps": given.steps,
        "episodes": given.episodes,
        "final_episodes": given.final,
        "threads": given.threads,
    }
    for what in (
        []
        if given.report
        else [(a, s, n) for n in given.seeds for a in given.only for s in given.sides]
    ):
        key = dict(zip(("algorithm", "side", "seed"), what, strict=True)) | settings
        if not any(key.items() <= record.items() for record in finished(RECORDS)):
            started = time.monotonic()
            result = rlplug(*what, given) if what[1] in OURS else peer(what[0], what[2], given)
            line = {
                **key,
                **result,
                "seconds": round(time.monotonic() - started),
                "revision": revision(),
            }
            with RECORDS.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            print(
                f"{what}: {result['final_return']:.0f} in {line['seconds']} s",
                file=sys.stderr,
                flush=True,
            )
    text = section(
        [record for record in finished(RECORDS) if settings.items() <= record.items()], settings
    )
    print(text)
    if given.write:
        write_section("halfcheetah", text)


def finished(path: Path) -> list[dict[str, Any]]:
    """The runs that are done, by whichever process."""
    return (
        [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        if path.exists()
        else []
    )


if __name__ == "__main__":
    main()
