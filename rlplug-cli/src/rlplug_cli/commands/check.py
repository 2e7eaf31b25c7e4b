"""`rlplug check ALGO`: holds an algorithm, installed or in a file, to the contract."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

import click

from rlplug_cli.commands.run import declared
from rlplug_cli.output import echo, echo_json
from rlplug_cli.parameters import assigned
from rlplug_core.errors import UsageError
from rlplug_core.testing import CONTRACT, Check, checks
from rlplug_core.testing.kit.outcome import Outcome

#: How each status is shown.
COLORS = {"passed": "green", "failed": "red", "warned": "yellow", "expected": "yellow", "skipped": "bright_black"}


@click.command("check")
@click.argument("algorithm")
@click.option("--set", "pairs", multiple=True, metavar="NAME=VALUE", help="Examine it with this option value.")
@click.option("--env", help="Examine it on this environment, where none of the kit's own suits it.")
@click.option(
    "--expect", "expected", multiple=True, metavar="NAME=REASON", help="Expect this check to fail, for this reason."
)
@click.option("--learn", is_flag=True, help="Also train: it must beat chance on small environments (a minute).")
@click.option("--strict", is_flag=True, help="Let provisional checks fail instead of warn.")
@click.option("--json", is_flag=True, help="Write all outcomes as JSON.")
@click.pass_context
def command(
    ctx: click.Context, algorithm: str, pairs: tuple[str, ...], env: str | None, expected: tuple[str, ...],
    learn: bool, strict: bool, json: bool,
) -> None:  # fmt: skip
    """Hold ALGORITHM, an id or ./file.py:Class, to the contract.

    Ends with code 1 where a check fails.
    """
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(variable, "1")  # read once, when numpy is imported
    options = assigned(pairs, declared("algorithms", algorithm), algorithm) if pairs else {}
    found = checks(algorithm, options=options, env=env, expected_failures=_expectations(expected), learn=learn)
    outcomes = ((check, check.outcome()) for check in found)
    told = list(outcomes) if json else list(_tell(outcomes))
    if json:
        echo_json(_report(algorithm, told))
    wrong = {"failed", "warned"} if strict else {"failed"}
    ctx.exit(1 if any(outcome.status in wrong for _, outcome in told) else 0)


def _expectations(texts: tuple[str, ...]) -> dict[str, str]:
    """Return the reasons by the names of checks, from texts such as `termination=a reason`."""
    for text in texts:
        if "=" not in text:
            raise UsageError(f"--expect {text}: write NAME=REASON, as in --expect 'pauses=it has one environment'")
    return {name.strip(): reason.strip() for name, _, reason in (text.partition("=") for text in texts)}


def _tell(outcomes: Iterator[tuple[Check, Outcome]]) -> Iterator[tuple[Check, Outcome]]:
    """Passes the outcomes on, and writes a line for each as it comes, and a summary."""
    level, counts, seconds = "", Counter[str](), 0.0
    for check, outcome in outcomes:
        if check.level != level:
            level = check.level
            echo(level)
        status = click.style(f"{outcome.status:<8}", fg=COLORS[outcome.status])
        echo(f"  {status} {check.name:<16} {outcome.message}".rstrip())
        counts[outcome.status] += 1
        seconds += outcome.seconds
        yield check, outcome
    summary = ", ".join(f"{counts[status]} {status}" for status in COLORS if counts[status])
    echo(f"{summary} in {seconds:.1f} s; contract {CONTRACT}")


def _report(algorithm: str, told: list[tuple[Check, Outcome]]) -> dict[str, object]:
    rows = [
        {
            "name": check.name, "level": check.level, "status": outcome.status, "message": outcome.message,
            "asks": check.summary, "provisional": check.provisional, "seconds": round(outcome.seconds, 3),
        }
        for check, outcome in told
    ]  # fmt: skip
    return {"algorithm": algorithm, "contract": CONTRACT, "checks": rows}
