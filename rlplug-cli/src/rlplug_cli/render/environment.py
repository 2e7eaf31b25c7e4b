"""The page of `rlplug info ENV`: an environment, and which algorithms and presets apply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from rlplug_cli.lookup import one_thread, short_path
from rlplug_cli.output import echo, echo_json
from rlplug_cli.render.tables import facts, rows, table
from rlplug_core.config import RunOptions, figures
from rlplug_core.plugins import (
    AT_ONCE,
    DIFFERENT_SPACES,
    abilities,
    family_of,
    find,
    has_preset,
    preset_chain,
    preset_results,
    preset_values,
    time_limit,
)

if TYPE_CHECKING:
    from rlplug_core.runs import Inspection

#: The facts about an environment, as JSON.
Found: TypeAlias = dict[str, Any]


def tell_environment(
    env: str,
    arguments: Mapping[str, object],
    as_json: bool,
    frame: Path | None,
) -> None:
    """Make an environment, step it, and print facts about it; the first frame is written to `frame`, if given.

    Raises:
        UnknownEnv, MissingPackage, PluginError, UsageError: it cannot be made, or not be drawn.
    """
    one_thread()
    found = describe(env, arguments)
    if frame is not None:
        from rlplug_core.runs import first_frame

        first_frame(env, arguments, frame)
        found["frame"] = short_path(frame)
    echo_json(found) if as_json else echo(text(found) + results_table(found["results"]))


def describe(env: str, arguments: Mapping[str, object]) -> Found:
    """Return everything about an environment, as JSON."""
    from rlplug_core.runs import inspect  # with torch and gymnasium, so only here

    family = family_of(env)
    about = inspect(env, arguments)
    low, high = about.rewards
    return {
        "env": about.env,
        "family": family.name if family else None,
        "install": family.install_line if family else None,
        "observation": about.observation,
        "action": about.action,
        "limit": about.limit,
        "kind": about.kind,
        "rewards": {"low": low, "high": high, "steps": about.steps},
        "steps_per_second": about.steps_per_second,
        "exact": not about.inexact,
        "inexact": about.inexact,
        "wrap": list(about.wrap),
        "agents": list(about.agents),
        "algorithms": algorithms(env, about),
        "results": results_of(about.env, about.kind),
        "frame": None,
    }


def results_of(env: str, kind: str) -> list[dict[str, object]]:
    """Return the final returns of presets in an environment, each with the env steps that the preset sets."""
    found = []
    for one in preset_results(env):
        options = preset_values(one.algorithm, env, kind)
        steps = options.get("total_timesteps", RunOptions.total_timesteps)
        found.append({**asdict(one), "preset_steps": steps})
    return found


def algorithms(env: str, about: Inspection) -> list[dict[str, str]]:
    """Return the algorithms that suit it, each with the preset that applies: by id, by kind or default."""
    usable = [
        row for row in rows("algorithms") if row["status"] == "ok" and about.takes in row["actions"]
    ]
    suiting = [row["id"] for row in usable if _suits(row["id"], about)]
    return [{"algorithm": name, "preset": _preset(name, env, about.kind)} for name in suiting]


def _suits(algorithm: str, about: Inspection) -> bool:
    """Return whether an algorithm suits the agents of a world."""
    able = abilities(find("algorithms", algorithm))
    return (about.alike or DIFFERENT_SPACES in able) and not (about.turns and AT_ONCE in able)


def _preset(algorithm: str, env: str, kind: str) -> str:
    if has_preset(algorithm, env):
        return "id"
    return (
        "kind"
        if any(kind in presets.kinds for presets in preset_chain(find("algorithms", algorithm)))
        else "default"
    )


def text(found: Found) -> str:
    """Return the facts for people, without the results of presets."""
    rewards = found["rewards"]
    by = {
        which: [one["algorithm"] for one in found["algorithms"] if one["preset"] == which]
        for which in _PRESETS
    }
    lines = {
        "env": found["env"],
        "family": f"{found['family']}: {found['install']}"
        if found["family"]
        else "none that is known here",
        "agents": ", ".join(found["agents"]),
        "observation space": found["observation"],
        "action space": found["action"],
        "time limit": time_limit(found["env"], found["limit"]),
        "rewards": f"from {rewards['low']:g} to {rewards['high']:g} in {rewards['steps']:,} random steps",
        "speed": f"{found['steps_per_second']:,.0f} steps/s here, one environment by itself",
        "resumes": _resumes(found),
        "wrappers": " ".join(found["wrap"]),
        "frame": found["frame"] or "",
        **{
            _PRESETS[which].format(kind=found["kind"]): ", ".join(names)
            for which, names in by.items()
        },
    }
    return facts(((title, line) for title, line in lines.items() if line), 32)


def results_table(results: list[dict[str, Any]]) -> str:
    """Return the table of the final returns of presets, or ""."""
    lines = []
    for one in results:
        steps = f"{one['steps']:,}"
        if one["steps"] != one["preset_steps"]:
            steps += f" (preset: {one['preset_steps']:,})"
        result = f"{figures(one['result'])} ({_of_seeds(one['of'], one['seeds'])})"
        last = "-" if one["last"] is None else figures(one["last"])
        lines.append((one["algorithm"], steps, result, last))
    if not lines:
        return ""
    shown = table(("PRESET OF", "ENV STEPS", "FINAL RETURN", "OF LAST WEIGHTS"), lines)
    single = any(one["seeds"] == 1 for one in results)
    note = "\n\none seed: other seeds may reach less or more" if single else ""
    return f"\n\n{shown}{note}"


def _of_seeds(how: str, seeds: int) -> str:
    """Return how the seeds became one number; a single seed has no worst one and no mean."""
    if seeds > 1:
        return f"{how} of {seeds}"
    what = how.rpartition(", ")[0]
    return f"{what}, one seed" if what else "one seed"


def _resumes(found: Found) -> str:
    """Return how exactly a run can resume; a family can declare that its environments are not deterministic."""
    family = family_of(found["env"])
    if family is not None and family.resumes.startswith("no"):
        return family.resumes
    return (
        "exactly"
        if found["exact"]
        else f"exactly, but only with --resume-exact: {found['inexact']}"
    )


#: Headings of the lists of algorithms, by the preset that applies.
_PRESETS = {
    "id": "algorithms with its own preset",
    "kind": "with the preset for {kind}",
    "default": "with their defaults",
}
