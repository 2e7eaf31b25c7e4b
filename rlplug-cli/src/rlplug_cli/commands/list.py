"""`rlplug list`: the installed algorithms and environments, without importing them."""

from __future__ import annotations

import click

from rlplug_cli.output import echo, echo_json
from rlplug_cli.render.families import members, overview, plain, select_families
from rlplug_cli.render.tables import rows, table
from rlplug_cli.shared_options import plugins_json_option
from rlplug_core.errors import UsageError, did_you_mean
from rlplug_core.plugins import GROUPS, Group

#: The kinds of plugins that the list shows, with the title of their table.
TITLES: dict[Group, str] = {
    "algorithms": "ALGORITHM",
    "envs": "ENVIRONMENTS",
    "wrappers": "WRAPPER",
    "controllers": "CONTROLLER",
    "memories": "MEMORY",
    "networks": "NETWORK",
    "populations": "POPULATION RULE",
}


@click.command("list")
@click.argument(
    "what",
    type=click.Choice(["all", "envs"]),
    default="all",
    metavar="[envs]",
)
@plugins_json_option
@click.option(
    "--actions",
    metavar="SPACE",
    help="Only algorithms that support these actions: Discrete, Box, Tuple, …",
)
@click.option(
    "--available",
    is_flag=True,
    help="Also the plugins of the registry that are not installed, as in 'rlplug search'.",
)
@click.option(
    "--registry",
    metavar="PLACE",
    help="The registry for --available: a file, a folder or an https address.",
)
@click.option(
    "--family", "names", multiple=True, metavar="NAME", help="With envs: the ids of this family."
)
def command(
    what: str,
    as_json: bool,
    actions: str | None,
    available: bool,
    registry: str | None,
    names: tuple[str, ...],
) -> None:
    """List all plugins except hooks and loggers; with envs, list environments by family."""
    if available or registry:
        if as_json:
            raise UsageError("--available writes no JSON; use 'rlplug search --json'")
        from rlplug_cli.commands import search

        ctx = click.get_current_context()
        ctx.invoke(search.command, words=(), registry=registry)
        return
    if what == "envs" or names:
        _environments(names, as_json, actions)
        return
    if actions is not None:
        # Agents get a Tuple as a Dict, so algorithms declare only Dict.
        _print_algorithms_for("Dict" if actions.lower() == "tuple" else actions, as_json)
        return
    if as_json:
        echo_json({group: rows(group) for group in GROUPS})
        return
    _print_plugins()


def _print_plugins() -> None:
    """Print a table for each kind of plugin."""
    for group, title in TITLES.items():
        lines = [
            (row["id"], f"{row['distribution']} {row['version']}", _about(row))
            for row in rows(group)
        ]
        if lines:
            echo(table((title, "PLUGIN", "ABOUT"), lines) + "\n")
    echo(
        "'rlplug info NAME' shows options, 'rlplug run ALGORITHM ENV --wrap WRAPPER' trains, "
        "--controller NAME controls the run, --memory NAME gives the policy a memory."
    )


def _environments(
    names: tuple[str, ...],
    as_json: bool,
    actions: str | None,
) -> None:
    """Print the families of environments, or the ids of the families `names`, without importing their packages."""
    if actions is not None:
        raise UsageError("--actions chooses among algorithms; leave it out, or leave out envs")
    families = select_families(names)
    if as_json:
        echo_json({"families": [plain(family) for family in families]})
    elif names:
        echo(members(families))
    else:
        echo(overview(families))
        echo(
            "\n'rlplug list envs --family NAME' lists its ids, 'rlplug info ENV' shows an environment."
        )


def _print_algorithms_for(actions: str, as_json: bool) -> None:
    """Print the algorithms that declare these actions; upper and lower case do not matter.

    Raises:
        UsageError: no algorithm does.
    """
    algorithms = rows("algorithms")
    known = {space.lower(): space for row in algorithms for space in row["actions"]}
    if actions.lower() not in known:
        hint = did_you_mean(actions, known.values())
        spaces = ", ".join(sorted(known.values())) or "none"
        raise UsageError(
            f"--actions {actions}: no algorithm declares these{hint} (declared are {spaces})"
        )
    matching = [row for row in algorithms if known[actions.lower()] in row["actions"]]
    if as_json:
        echo_json({"algorithms": matching})
        return
    lines = [(row["id"], ", ".join(row["actions"]), _about(row)) for row in matching]
    echo(table(("ALGORITHM", "ACTIONS", "ABOUT"), lines))


def _about(row: dict[str, object]) -> str:
    if row["status"] != "ok":
        return f"{row['status']}: {row['reason']}"
    return str(row["summary"]) if row["indexed"] else f"{row['summary']} (not indexed)"
