"""The page of `rlplug list envs`: families of environments, as plain data and as tables."""

from __future__ import annotations

from collections.abc import Sequence

from rlplug_cli.render.tables import table
from rlplug_core.errors import UsageError, did_you_mean
from rlplug_core.plugins import Family, env_families


def select_families(names: Sequence[str]) -> list[Family]:
    """Return the families with these names; all families without a name.

    Raises:
        UsageError: no family has this name.
    """
    all_families = env_families()
    known = [family.name for family in all_families]
    for name in names:
        if name not in known:
            raise UsageError(
                f"no family '{name}'{did_you_mean(name, known)} (there is {', '.join(known)})"
            )
    return [family for family in all_families if not names or family.name in names]


def plain(family: Family) -> dict[str, object]:
    """Return a family as JSON."""
    return {
        "family": family.name,
        "provider": family.provider,
        "summary": family.summary,
        "installed": family.installed,
        "install": family.install_line,
        "resumes": family.resumes,
        "ids": list(family.ids),
    }


def overview(families: Sequence[Family]) -> str:
    """Return one line for each family."""
    lines = [
        (
            family.name,
            str(len(family.ids)),
            _state(family),
            family.resumes or "tried out",
            family.summary,
        )
        for family in families
    ]
    return table(("FAMILY", "IDS", "INSTALLED", "RESUMES EXACTLY", "ABOUT"), lines)


def members(families: Sequence[Family]) -> str:
    """Return every id of these families, below a line about the family."""
    return "\n\n".join(
        f"{family.name}: {family.summary}\n{_state(family)}\n  " + "\n  ".join(family.ids)
        for family in families
    )


def _state(family: Family) -> str:
    return "installed" if family.installed else family.install_line
