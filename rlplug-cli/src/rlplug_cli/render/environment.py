"""The page of `rlplug info ENV`: an environment, and which algorithms and presets apply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from rlplug_cli.notes import short_path
from rlplug_cli.output import echo, echo_json
from rlplug_cli.render.tables import facts, rows, table
from rlplug_cli.threads import one_thread
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
EnvFacts: TypeAlias = dict[str, Any]
#: Headings of the lists of algorithms, by the preset that applies.
_PRESETS = {
    "id": "algorithms with its own preset",
    "kind": "with the preset for {kind}",
    "default": "with their defaults",
}


def show_environment(
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
    env_facts = describe(env, arguments)
    if frame is not None:
        from rlplug_core.runs import first_frame

        first_frame(env, arguments, frame)
        env_facts["frame"] = short_path(frame)
    echo_json(env_facts) if as_json else echo(text(env_facts) + results_table(env_facts["results"]))


def describe(env: str, arguments: Mapping[str, object]) -> EnvFacts:
    """Return everything about an environment, as JSON."""
    from rlplug_core.runs import inspect  # imports torch and gymnasium

    family = family_of(env)
    inspection = inspect(env, arguments)
    low, high = inspection.rewards
    return {
        "env": inspection.env,
        "family": family.name if family else None,
        "install": family.install_line if family else None,
        "observation": inspection.observation,
        "action": inspection.action,
        "limit": inspection.limit,
        "kind": inspection.kind,
        "rewards": {"low": low, "high": high, "steps": inspection.steps},
        "steps_per_second": inspection.steps_per_second,
        "exact": not inspection.inexact,
        "inexact": inspection.inexact,
        "wrap": list(inspection.wrap),
        "agents": list(inspection.agents),
        "algorithms": algorithms(env, inspection),
        "results": results_of(inspection.env, inspection.kind),
        "frame": None,
    }


def results_of(env: str, kind: str) -> list[dict[str, object]]:
    """Return the final returns of presets in an environment, each with the env steps that the preset sets."""
    results = []
    for result in preset_results(env):
        options = preset_values(result.algorithm, env, kind)
        steps = options.get("total_timesteps", RunOptions.total_timesteps)
        results.append({**asdict(result), "preset_steps": steps})
    return results


def algorithms(env: str, inspection: Inspection) -> list[dict[str, str]]:
    """Return the algorithms that suit it, each with the preset that applies: by id, by kind or default."""
    usable = [
        row
        for row in rows("algorithms")
        if row["status"] == "ok" and inspection.takes in row["actions"]
    ]
    suitable = [row["id"] for row in usable if _suits(row["id"], inspection)]
    return [{"algorithm": name, "preset": _preset(name, env, inspection.kind)} for name in suitable]


def _suits(algorithm: str, inspection: Inspection) -> bool:
    """Return whether an algorithm suits the agents of an environment."""
    ability_names = abilities(find("algorithms", algorithm))
    return (inspection.alike or DIFFERENT_SPACES in ability_names) and not (
        inspection.turns and AT_ONCE in ability_names
    )


def _preset(algorithm: str, env: str, kind: str) -> str:
    if has_preset(algorithm, env):
        return "id"
    return (
        "kind"
        if any(kind in presets.kinds for presets in preset_chain(find("algorithms", algorithm)))
        else "default"
    )


def text(env_facts: EnvFacts) -> str:
    """Return the facts for people, without the results of presets."""
    rewards = env_facts["rewards"]
    by_preset = {
        preset: [row["algorithm"] for row in env_facts["algorithms"] if row["preset"] == preset]
        for preset in _PRESETS
    }
    lines = {
        "env": env_facts["env"],
        "family": f"{env_facts['family']}: {env_facts['install']}"
        if env_facts["family"]
        else "none that is known here",
        "agents": ", ".join(env_facts["agents"]),
        "observation space": env_facts["observation"],
        "action space": env_facts["action"],
        "time limit": time_limit(env_facts["env"], env_facts["limit"]),
        "rewards": f"from {rewards['low']:g} to {rewards['high']:g} in {rewards['steps']:,} random steps",
        "speed": f"{env_facts['steps_per_second']:,.0f} steps/s here, one environment by itself",
        "resumes": _resumes(env_facts),
        "wrappers": " ".join(env_facts["wrap"]),
        "frame": env_facts["frame"] or "",
        **{
            _PRESETS[preset].format(kind=env_facts["kind"]): ", ".join(names)
            for preset, names in by_preset.items()
        },
    }
    return facts(((title, line) for title, line in lines.items() if line), 32)


def results_table(results: list[dict[str, Any]]) -> str:
    """Return the table of the final returns of presets, or ""."""
    lines = []
    for row in results:
        steps = f"{row['steps']:,}"
        if row["steps"] != row["preset_steps"]:
            steps += f" (preset: {row['preset_steps']:,})"
        result = f"{figures(row['result'])} ({_of_seeds(row['of'], row['seeds'])})"
        last = "-" if row["last"] is None else figures(row["last"])
        lines.append((row["algorithm"], steps, result, last))
    if not lines:
        return ""
    results_text = table(("PRESET OF", "ENV STEPS", "FINAL RETURN", "OF LAST WEIGHTS"), lines)
    single = any(row["seeds"] == 1 for row in results)
    note = "\n\none seed: other seeds may reach less or more" if single else ""
    return f"\n\n{results_text}{note}"


def _of_seeds(how: str, seeds: int) -> str:
    """Return how the seeds became one number; a single seed has no worst one and no mean."""
    if seeds > 1:
        return f"{how} of {seeds}"
    statistic = how.rpartition(", ")[0]
    return f"{statistic}, one seed" if statistic else "one seed"


def _resumes(env_facts: EnvFacts) -> str:
    """Return how exactly a run can resume; a family can declare that its environments are not deterministic."""
    family = family_of(env_facts["env"])
    if family is not None and family.resumes.startswith("no"):
        return family.resumes
    return (
        "exactly"
        if env_facts["exact"]
        else f"exactly, but only with --resume-exact: {env_facts['inexact']}"
    )
