"""Measure env steps per second with several processes: the cost of the process link and the gain from more actors.

    python bench/scale.py --write
    python bench/scale.py slow --seconds 2

`slow` also draws `docs/pictures/scale.svg`; look at it before you commit it.
"""

# ruff: noqa: E402  # threads are set before numpy is imported
from __future__ import annotations

import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = "1"  # like the command line

import argparse
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil
import torch
from results import machine, revision, table, write_section

from rlplug_core.clock import Clock
from rlplug_core.loop.async_processes import WorkerProcesses
from rlplug_core.loop.build import build
from rlplug_core.loop.decoupled import Decoupled
from rlplug_core.loop.decoupled_processes import ActorProcesses
from rlplug_core.loop.plan import Plan
from rlplug_core.loop.plan_words import PlanWords
from rlplug_core.loop.remote_actor import RemoteActor
from rlplug_core.loop.shared_memory import SharedWeights
from rlplug_core.loop.torch_settings import set_torch
from rlplug_core.plugins.presets import preset

HERE = Path(__file__).parent
PICTURE = HERE.parent / "docs" / "pictures" / "scale.svg"
ENDLESS = 10**9
#: Seconds between the first steps of all actors and the start of the clock.
WARM = 1.0
#: Runs with one and two actors: environment, options, and the option for the number of actors.
RUNS: dict[str, tuple[str, dict[str, Any], str]] = {
    "a3c": ("CartPole-v1", {}, "workers"),
    "impala": ("CartPole-v1", {}, "actors"),
    "sac": ("Pendulum-v1", {"runner": "decoupled", "learning_starts": 500}, "actors"),
}
SLOW = {
    "1 ms": (f"{HERE}/slow.py:Millisecond", 1000),
    "10 ms": (f"{HERE}/slow.py:TenMilliseconds", 100),
}
ACTORS = (1, 2, 4, 8, 16, 32)


def plan_of(algorithm: str, env: str, **values: Any) -> Plan:
    return Plan.make(
        algorithm, env, {**preset(algorithm, env), "total_timesteps": ENDLESS, **values}
    )


def speed(plan: Plan, seconds: float) -> float:
    """Return env steps per second of a whole run with its learner."""
    runner = build(plan, Clock(ENDLESS))
    marks: list[tuple[float, int]] = []

    def poll() -> None:
        now = time.perf_counter()
        if not marks and runner.clock.updates and all_have_started(runner):
            marks.append((now + WARM, 0))
        elif len(marks) == 1 and now >= marks[0][0]:
            marks.append((now, runner.clock.steps))
        elif len(marks) == 2 and now >= marks[1][0] + seconds:
            marks.append((now, runner.clock.steps))
            runner.clock.stop = True

    try:
        runner.run(poll)
    finally:
        runner.close()
    (_, _), (start, before), (stop, after) = marks
    return (after - before) / (stop - start)


def all_have_started(runner: object) -> bool:
    """Return whether all actors or workers have delivered their first steps."""
    if isinstance(runner, Decoupled) and isinstance(runner.fleet, ActorProcesses):
        return all(seat.delivered for seat in runner.fleet.seats)
    assert isinstance(runner, WorkerProcesses)
    return bool((runner.slots > 0).all())


def speed_over_link(plan: Plan, seconds: float) -> tuple[float, float]:
    """Return env steps per second over the process link to a learner that only publishes weights, and the processor
    time of an actor per step."""
    runner = build(plan, Clock(ENDLESS))
    assert isinstance(runner, Decoupled)
    fleet = runner.fleet
    weights = runner.agent.weights()
    seen = set[int]()
    assert isinstance(fleet, ActorProcesses)
    try:
        while len(seen) < plan.options.actors:
            seen |= {chunk.source for chunk in receive_and_publish(runner, weights)}
        until(time.perf_counter() + WARM, lambda: receive_and_publish(runner, weights))
        before = runner.clock.steps
        busy = processor(fleet)
        start = time.perf_counter()
        until(start + seconds, lambda: receive_and_publish(runner, weights))
        steps = runner.clock.steps - before
        stop = time.perf_counter()
        return steps / (stop - start), (processor(fleet) - busy) / steps
    finally:
        fleet.close()


def processor(fleet: ActorProcesses) -> float:
    """Return the seconds of processor time of all actors."""
    spent = [psutil.Process(seat.child.process.pid).cpu_times() for seat in fleet.seats]
    return sum(each.user + each.system for each in spent)


def receive_and_publish(runner: Decoupled, weights: Any) -> list[Any]:
    """Receive the next chunks and publish weights for each of them at once."""
    chunks = runner.fleet.receive()
    for _ in chunks:
        runner.fleet.publish(weights)
    return chunks


def until(end: float, work: Callable[[], object]) -> None:
    while time.perf_counter() < end:
        work()


def act_without_link(words: PlanWords, seconds: float, rank: int, pipe: Connection) -> None:
    """Run an actor process without a link."""
    actor = RemoteActor(words, rank)

    def chunk() -> int:
        count = actor.clock.steps
        for _ in actor.steps(count, ENDLESS):
            pass
        return actor.end_chunk(count)[1]

    chunk()
    pipe.send("ready")
    pipe.recv()
    until(time.perf_counter() + WARM, chunk)
    before = actor.clock.steps
    busy = time.process_time()
    start = time.perf_counter()
    until(start + seconds, chunk)
    steps = actor.clock.steps - before
    stop = time.perf_counter()
    pipe.send((steps / (stop - start), (time.process_time() - busy) / steps))


def independent_speed(plan: Plan, seconds: float) -> tuple[float, float]:
    """Return the summed env steps per second of independent actors, and their processor time per step."""
    context = multiprocessing.get_context("spawn")
    pipes = []
    processes = []
    words = PlanWords.of(plan)
    for rank in range(plan.options.actors):
        ours, theirs = context.Pipe()
        processes.append(
            context.Process(
                target=act_without_link, args=(words, seconds, rank, theirs), daemon=True
            )
        )
        processes[-1].start()
        pipes.append(ours)
    for pipe in pipes:
        pipe.recv()
    for pipe in pipes:
        pipe.send("go")
    speeds, costs = zip(*[pipe.recv() for pipe in pipes], strict=True)
    for process in processes:
        process.join()
    return sum(speeds), statistics.mean(costs)


def link(seconds: float, repeats: int) -> str:
    """Compare actors with and without the link, in turns."""
    rows = []
    for actors in (1, 2):
        plan = plan_of("impala", "CartPole-v1", actors=actors)
        pairs = [
            (independent_speed(plan, seconds), speed_over_link(plan, seconds))
            for _ in range(repeats)
        ]
        independent, linked = (
            statistics.median(speed for speed, _ in side) for side in zip(*pairs, strict=True)
        )
        share = statistics.median(linked[0] / independent[0] for independent, linked in pairs)
        costs = [
            1e6 * statistics.median(cost for _, cost in side) for side in zip(*pairs, strict=True)
        ]
        ideal = statistics.median(independent[1] / linked[1] for independent, linked in pairs)
        rows.append(
            (
                actors,
                f"{independent:,.0f}",
                f"{linked:,.0f}",
                f"{100 * share:.0f} %",
                "≥ 90 %",
                f"{costs[0]:.1f} and {costs[1]:.1f} µs",
                f"{100 * ideal:.0f} %",
            )
        )
    return table(
        (
            "actors",
            "independent, summed, steps/s",
            "over the link",
            "share (median of pairs)",
            "bar",
            "processor time of an actor per step, independent and linked",
            "share by processor time",
        ),
        rows,
    )


def runs(seconds: float, repeats: int) -> str:
    """Measure whole runs with one and with two actors."""
    rows = []
    for name, (env, values, counts) in RUNS.items():
        for several in (1, 2):
            plan = plan_of(name, env, **values, **{counts: several})
            found = [speed(plan, seconds) for _ in range(repeats)]
            rows.append(
                (
                    name,
                    env,
                    several,
                    f"{statistics.median(found):,.0f}",
                    f"{min(found):,.0f} to {max(found):,.0f}",
                )
            )
    return table(
        ("algorithm", "environment", "actors or workers", "env steps/s (median)", "range"), rows
    )


def slow(seconds: float, repeats: int) -> str:
    """Measure more actors for slow environments; draw the picture."""
    found: dict[str, list[float]] = {}
    for name, (env, _) in SLOW.items():
        for actors in ACTORS:
            plan = plan_of("impala", env, actors=actors, num_envs=1, n_steps=20, threads=1)
            found.setdefault(name, []).append(
                statistics.median(speed(plan, seconds) for _ in range(repeats))
            )
    draw(found)
    rows = [
        (
            actors,
            *(
                f"{speeds[at]:,.0f} ({100 * speeds[at] / (SLOW[name][1] * actors):.0f} %)"
                for name, speeds in found.items()
            ),
        )
        for at, actors in enumerate(ACTORS)
    ]
    return table(
        (
            "actors",
            *(f"a step of {name}: env steps/s (share of the ideal)" for name in found),
        ),
        rows,
    )


def draw(found: dict[str, list[float]]) -> None:
    """Draw env steps per second over actors, with the ideal speed as a dotted line."""
    import matplotlib
    from matplotlib import pyplot

    matplotlib.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "rlplug", "font.size": 9}
    matplotlib.rcParams["font.sans-serif"] = ["DejaVu Sans"]
    figure, axes = pyplot.subplots(figsize=(4.8, 3.0), layout="constrained")
    for (name, speeds), color in zip(found.items(), ("C0", "C1"), strict=True):
        axes.plot(ACTORS, speeds, "o-", color=color, label=f"a step of {name}")
        axes.plot(ACTORS, [SLOW[name][1] * actors for actors in ACTORS], ":", color=color)
    axes.set(xscale="log", yscale="log", xlabel="actors", ylabel="env steps/s", xticks=ACTORS)
    axes.set_xticks(ACTORS, [str(actors) for actors in ACTORS])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(PICTURE, metadata={"Date": None})
    pyplot.close(figure)


def latency(seconds: float, repeats: int) -> str:
    """Measure the time of weights into another process, and bytes and copies per env step."""
    plan = plan_of("impala", "CartPole-v1", actors=1)
    runner = build(plan, Clock(ENDLESS))
    assert isinstance(runner, Decoupled)
    try:
        while not (chunks := receive_and_publish(runner, runner.agent.weights())):
            pass
        size = sum(array.nbytes for array in leaves(chunks[0].data))
    finally:
        runner.close()
    weights = runner.agent.weights()
    shared = SharedWeights.like(weights)
    seen = torch.zeros(1, dtype=torch.int64).share_memory_()
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=follow, args=(shared, dict(weights), seen), daemon=True)
    process.start()
    found = [one_way(shared, weights, seen, version) for version in range(1, 201)]
    process.kill()
    process.join()
    steps = plan.chunk_steps * plan.options.num_envs
    return table(
        ("quantity", "measured"),
        [
            (
                "weights from the learner to a waiting process",
                f"{1e6 * statistics.median(found[20:]):,.0f} µs",
            ),
            ("weights", f"{shared.memory.numel():,} bytes"),
            ("a chunk", f"{steps} env steps, {size:,} bytes"),
            ("bytes per env step in shared memory", f"{size / steps:.0f}"),
            (
                "copies of an env step between the environment and the loss",
                "2: into the slot, into the rollout",
            ),
        ],
    )


def leaves(tree: Any) -> Iterable[Any]:
    if isinstance(tree, dict):
        return (leaf for part in tree.values() for leaf in leaves(part))
    return [] if tree is None else [tree]


def follow(shared: SharedWeights, weights: dict[str, Any], seen: torch.Tensor) -> None:
    """Read each version of the weights as soon as it arrives, and acknowledge it."""
    mark = seen.numpy()
    versions = shared.versions.numpy()
    while True:
        if versions[1] != mark[0]:
            mark[0] = shared.get(weights)


def one_way(shared: SharedWeights, weights: Any, seen: torch.Tensor, version: int) -> float:
    mark = seen.numpy()
    time.sleep(0.001)
    start = time.perf_counter()
    shared.put(weights, version)
    while mark[0] != version:
        if time.perf_counter() > start + 60:
            raise TimeoutError("the other process does not read the weights")
    return time.perf_counter() - start


PARTS: dict[str, tuple[str, Callable[[float, int], str]]] = {
    "link": ("The process link compared with independent actors", link),
    "latency": ("Traffic of the process link", latency),
    "runs": ("One and two actors", runs),
    "slow": ("More actors for slow environments", slow),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "parts", nargs="*", choices=[*PARTS, []], help="parts to measure; default: all"
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="seconds of each measurement")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--note", default="", help="a sentence about the state of the machine")
    parser.add_argument(
        "--write", action="store_true", help="also write the tables into RESULTS.md"
    )
    chosen = parser.parse_args()
    set_torch(1)
    for name in chosen.parts or PARTS:
        title, measure = PARTS[name]
        command = f"`python bench/scale.py {name} --seconds {chosen.seconds:g} --repeats {chosen.repeats}`"
        about = f"{machine()}; rlplug at {revision()}. {chosen.note}".strip()
        text = f"## {title}\n\n{command}\n\n{measure(chosen.seconds, chosen.repeats)}\n\n{about}"
        print(text, "\n", flush=True)
        if chosen.write:
            write_section(f"scale-{name}", text)


if __name__ == "__main__":
    main()
