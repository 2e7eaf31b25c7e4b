"""`rlplug search WORD…`: plugins that are installed or that a registry knows, without importing or installing one."""

from __future__ import annotations

from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import click

from rlplug_cli.output import echo, echo_json, write_text
from rlplug_cli.render.tables import table
from rlplug_cli.shared_options import FILE, FOLDER, plugins_json_option
from rlplug_core import plugins
from rlplug_core.errors import UsageError
from rlplug_core.plugins import Offer, installed_offers, offers, registry_source


@click.command("search")
@click.argument(
    "words",
    nargs=-1,
    metavar="[WORD]...",
)
@click.option(
    "--registry",
    metavar="PLACE",
    help="Read this registry: a file, a folder or an https address.",
)
@click.option(
    "--refresh",
    is_flag=True,
    help="Read an address again instead of its copy in the cache.",
)
@click.option(
    "--page",
    type=FILE,
    metavar="FILE",
    help="Also write the list as a page in Markdown, with contracts and results of checks.",
)
@click.option(
    "--badges",
    type=FOLDER,
    metavar="FOLDER",
    help="Also write a badge of each distribution with results of checks: FOLDER/DISTRIBUTION.svg.",
)
@plugins_json_option
def command(
    words: tuple[str, ...],
    registry: str | None,
    refresh: bool,
    page: Path | None,
    badges: Path | None,
    as_json: bool,
) -> None:
    """List plugins that have every WORD in their name, summary or paper; without a WORD, list all.

    The registry is --registry, else RLPLUG_REGISTRY, else plugins.registry in the configuration file, else the one
    that rlplug-core contains.
    """
    place = registry or registry_source()
    matches = [offer for offer in available(place, refresh) if offer.matches(words)]
    _write_files(matches, page, badges)
    if as_json:
        echo_json([{**asdict(offer), "installed": is_installed(offer)} for offer in matches])
        return
    if not matches:
        raise UsageError(
            f"no plugin has '{' '.join(words)}' in its name, summary or paper (the registry is {place})"
        )
    echo(offer_table(matches))
    missing = sorted({offer.distribution for offer in matches if not is_installed(offer)})
    if missing:
        echo(f"\ninstall with: python -m pip install {missing[0]}")


def _write_files(
    matches: list[Offer],
    page: Path | None,
    badges: Path | None,
) -> None:
    """Write the page of these plugins, and a badge of each distribution with results of checks."""
    if page is None and badges is None:
        return
    from rlplug_cli.render.plugin_page import badge, plugin_page

    if page is not None:
        write_text(page, plugin_page(matches))
    if badges is not None:
        badges.mkdir(parents=True, exist_ok=True)
        for name in sorted({offer.distribution for offer in matches if offer.checks}):
            write_text(
                badges / f"{name}.svg",
                badge([offer for offer in matches if offer.distribution == name]),
            )


def available(place: str, refresh: bool = False) -> list[Offer]:
    """Return the installed plugins and those of a registry.

    If both have an entry, the installed one counts, with the results of checks of both.
    """
    by_key = {_key(offer): offer for offer in installed_offers(plugins.records())}
    for offer in offers(place, refresh):
        installed = by_key.get(_key(offer))
        by_key[_key(offer)] = offer if installed is None else installed.with_checks(offer.checks)
    return list(by_key.values())


def _key(offer: Offer) -> tuple[str, str, str]:
    return offer.group, offer.id, offer.distribution


def offer_table(matches: list[Offer]) -> str:
    """Return a table with one line for each plugin."""
    lines = [
        (
            offer.id,
            offer.group,
            f"{offer.distribution} {offer.version}",
            "yes" if is_installed(offer) else "no",
            str(offer.last_check or ""),
            offer.summary,
        )
        for offer in matches
    ]
    return table(("NAME", "GROUP", "PLUGIN", "INSTALLED", "CHECKED", "ABOUT"), lines)


def is_installed(offer: Offer) -> bool:
    """Return whether the distribution of a plugin is installed."""
    try:
        version(offer.distribution)
    except PackageNotFoundError:
        return False
    return True
