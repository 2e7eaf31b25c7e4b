"""`rlplug check NAME`: checks a plugin, installed or in a file, against the contract."""

from __future__ import annotations

import shlex
import sys
import traceback
from collections import Counter
from collections.abc import Iterator

import click

from rlplug_cli.commands.run import options_of
from rlplug_cli.completion import algorithms_and_environments
from rlplug_cli.notes import short_path
from rlplug_cli.output import echo, echo_json, global_options
from rlplug_cli.parameters import from_pairs
from rlplug_cli.threads import one_thread
from rlplug_core.errors import UsageError, clean
from rlplug_core.plugins import (
    Group,
    Record,
    is_target,
    provider_in,
    record_check,
    required_index,
    split_word,
    usable,
)
from rlplug_core.testing import (
    Check,
    Outcome,
    checks,
    controller_checks,
    env_checks,
    hook_checks,
    memory_checks,
    network_checks,
    population_checks,
    wrapper_checks,
)

#: The color of each status.
COLORS = {
    "passed": "green",
    "failed": "red",
    "warned": "yellow",
    "expected": "yellow",
    "skipped": "bright_black",
}
#: The functions that return the checks of a kind, for kinds that only need the name of the plugin.
CHECKS = {
    "env": env_checks,
    "controller": controller_checks,
    "memory": memory_checks,
    "network": network_checks,
    "population": population_checks,
    "hooks": hook_checks,
}
#: The group of each kind with results that `--record` can write.
GROUPS: dict[str, Group] = {
    "algorithm": "algorithms",
    "env": "envs",
    "wrapper": "wrappers",
    "controller": "controllers",
    "memory": "memories",
    "network": "networks",
    "population": "populations",
}


@click.command("check")
@click.argument(
    "words",
    nargs=-1,
    required=True,
    metavar="[env|wrapper|controller|memory|network|population|hooks] NAME",
    shell_complete=algorithms_and_environments,
)
@click.option(
    "--set",
    "pairs",
    multiple=True,
    metavar="NAME=VALUE",
    help="Check an algorithm with this option value.",
)
@click.option(
    "--env",
    help="Check it on this environment if none of the kit's environments suits it.",
)
@click.option(
    "--wrap",
    multiple=True,
    metavar="NAME",
    help="Check an algorithm inside this wrapper, NAME or NAME:option=value.",
)
@click.option(
    "--expect",
    "expected",
    multiple=True,
    metavar="NAME=REASON",
    help="Expect this check to fail, for this reason.",
)
@click.option(
    "--learn",
    is_flag=True,
    help="Also train: it must beat chance on small environments (a minute).",
)
@click.option(
    "--strict/--no-strict",
    default=True,
    help="With --no-strict, checks that are newer than the plugin's contract only warn.",
)
@click.option(
    "--record",
    is_flag=True,
    help="Write the result into the plugin's package (checks.json), for registries and 'rlplug search'.",
)
@click.option(
    "--json",
    is_flag=True,
    help="Write all outcomes as JSON.",
)
@click.pass_context
def command(
    ctx: click.Context,
    words: tuple[str, ...],
    pairs: tuple[str, ...],
    env: str | None,
    wrap: tuple[str, ...],
    expected: tuple[str, ...],
    learn: bool,
    strict: bool,
    record: bool,
    json: bool,
) -> None:
    """Check a plugin against the contract: an algorithm by its id or ./file.py:Class, or another kind named before it.

    The other kinds are `env NS/ID`, `wrapper NAME:option=value`, `controller NAME:option=value`, `memory
    NAME:option=value`, `network NAME`, `population NAME:option=value` and `hooks DISTRIBUTION`. The exit code is 1 if a
    check fails.
    """
    one_thread()
    kind, name = _kind_and_name(words, wrap)
    plugin = _plugin_to_record(kind, name) if record else None
    expectations = _expectations(expected)
    if kind == "algorithm":
        options = from_pairs(pairs, options_of("algorithms", name), name) if pairs else {}
        plugin_checks = checks(
            name, options=options, env=env, wrap=wrap, expected_failures=expectations, learn=learn
        )
    elif kind == "wrapper":
        plugin_checks = wrapper_checks(name, env=env, expected_failures=expectations)
    else:
        plugin_checks = CHECKS[kind](name, expected_failures=expectations)
    outcomes = _with_tracebacks((check, check.outcome()) for check in plugin_checks)
    results = list(outcomes) if json else list(_print_outcomes(outcomes))
    if json:
        echo_json(_report(kind, name, results))
    if plugin is not None:
        statuses = {check.name: outcome.status for check, outcome in results}
        path = record_check(plugin, _command_line(ctx), statuses)
        echo(f"wrote the result into {short_path(path)}", err=json)
    failing = {"failed", "warned"} if strict else {"failed"}
    ctx.exit(int(any(outcome.status in failing for _, outcome in results)))


def _kind_and_name(
    words: tuple[str, ...],
    wrap: tuple[str, ...],
) -> tuple[str, str]:
    """Return the kind and the name of a plugin; raise UsageError if it is unknown or takes no wrappers."""
    if len(words) == 1:
        return "algorithm", words[0]
    if len(words) != 2 or words[0] not in ("wrapper", *CHECKS):
        raise UsageError(
            f"'{' '.join(words)}': write rlplug check NAME, or one of {', '.join(('wrapper', *CHECKS))} and one NAME"
        )
    kind, name = words
    if wrap:
        raise UsageError(
            f"--wrap: only algorithms are checked in wrappers, and '{name}' is not one"
        )
    return kind, name


def _plugin_to_record(kind: str, name: str) -> Record:
    """Return the plugin whose package gets the result.

    Raises:
        UsageError: it is not an installed plugin, or its kind has no entry in a registry.
        PluginError: it cannot be used, or has no valid index.
    """
    if kind == "hooks":
        raise UsageError(
            "--record: registries do not list hooks, so there is no place for the result"
        )
    short = name if kind in ("algorithm", "env") else split_word(name)[0]
    if is_target(short):
        raise UsageError(
            f"--record: '{name}' is not an installed plugin, so no package can contain the result"
        )
    if kind == "env":
        short = provider_in(name) or "gymnasium"
    record = usable(GROUPS[kind], short)
    required_index(record)
    return record


def _command_line(ctx: click.Context) -> str:
    """Return the command line with all options that change the checks."""
    words = ["rlplug", "check", *ctx.params["words"]]
    for option in ctx.command.params:
        value = ctx.params.get(str(option.name))
        if option.name in ("words", "strict", "record", "json") or not value:
            continue
        values = value if isinstance(value, tuple) else (value,)
        for item in values:
            words += [option.opts[0]] if item is True else [option.opts[0], str(item)]
    if not ctx.params["strict"]:
        words.append("--no-strict")
    return shlex.join(words)


def _expectations(texts: tuple[str, ...]) -> dict[str, str]:
    """Return the reasons by the names of checks, from strings such as `termination=a reason`."""
    reasons = {}
    for text in texts:
        name, equals, reason = text.partition("=")
        if not equals:
            raise UsageError(
                f"--expect {text}: write NAME=REASON, as in --expect 'pauses=it has one environment'"
            )
        reasons[name.strip()] = reason.strip()
    return reasons


def _with_tracebacks(outcomes: Iterator[tuple[Check, Outcome]]) -> Iterator[tuple[Check, Outcome]]:
    """Yield the outcomes; with --traceback, print the traceback of each exception that ended a check."""
    for check, outcome in outcomes:
        if outcome.error is not None and global_options().traceback:
            echo(f"{check.name}: {''.join(traceback.format_exception(outcome.error))}", err=True)
        yield check, outcome


def _print_outcomes(outcomes: Iterator[tuple[Check, Outcome]]) -> Iterator[tuple[Check, Outcome]]:
    """Yield the outcomes, and print a line for each and a summary."""
    level = ""
    counts = Counter[str]()
    seconds = 0.0
    for check, outcome in outcomes:
        if check.level != level:
            level = check.level
            echo(level)
        status = click.style(f"{outcome.status:<8}", fg=COLORS[outcome.status])
        line = f"  {status} {check.name:<16} {clean(outcome.message)}".rstrip()
        click.echo(line, file=sys.stdout)  # `echo` drops the color of the status
        counts[outcome.status] += 1
        seconds += outcome.seconds
        yield check, outcome
    summary = ", ".join(f"{counts[status]} {status}" for status in COLORS if counts[status])
    echo(f"{summary} in {seconds:.1f} s; contract {check.examination.contract}")


def _report(
    kind: str,
    name: str,
    results: list[tuple[Check, Outcome]],
) -> dict[str, object]:
    rows = [
        {
            "name": check.name,
            "level": check.level,
            "status": outcome.status,
            "message": outcome.message,
            "asks": check.summary,
            "provisional": check.provisional,
            "seconds": round(outcome.seconds, 3),
        }
        for check, outcome in results
    ]
    return {kind: name, "contract": results[0][0].examination.contract, "checks": rows}
