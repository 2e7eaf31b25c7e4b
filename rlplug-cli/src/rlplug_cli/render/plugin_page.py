"""A page in Markdown that lists plugins with their results of `rlplug check`, and a badge with such a result."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from itertools import groupby

import rlplug_core
from rlplug_core.errors import plain
from rlplug_core.plugins import CONTRACT, OLDEST_CONTRACT, Offer

#: How many results of presets a row of the page has.
SHOWN = 3
_HEAD = """# Plugins

`rlplug search --page` wrote this page from a registry. The last column says whether rlplug-core {version} supports the
contract for which the plugin was indexed.
"""
_TABLE = """
## {group}

| plugin | install | about | presets reached | contract | rlplug-core {version} |
|---|---|---|---|---|---|
"""
_CHECKS = """
## Checks

Results of `rlplug check` for each version of a plugin with each rlplug-core, and the day of the check.

| plugin | {cores} |
|---|{lines}
"""
#: Width of a character of 11 pixels, and the colors of a badge.
_CHARACTER = 6.6
_GREEN = "#3a7d1e"
_RED = "#b3261e"
_BADGE = """<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img">
<title>{label}: {message}</title>
<rect width="{left}" height="20" fill="#555"/>
<rect x="{left}" width="{right}" height="20" fill="{color}"/>
<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">
<text x="{left_middle}" y="14">{label}</text>
<text x="{right_middle}" y="14">{message}</text>
</g>
</svg>
"""


def plugin_page(all_offers: Sequence[Offer]) -> str:
    """Return the page of these plugins."""
    version = rlplug_core.__version__
    parts = [_HEAD.format(version=version)]
    for group, offers in groupby(
        sorted(all_offers, key=lambda offer: (offer.group, offer.id)), lambda offer: offer.group
    ):
        parts.append(_TABLE.format(group=group, version=version))
        parts += [_row(offer) for offer in offers]
    return "".join(parts) + _matrix([offer for offer in all_offers if offer.checks])


def badge(offers: Sequence[Offer]) -> str:
    """Return an SVG picture that says with which versions of rlplug-core the plugins of a distribution pass.

    It is about the version of the newest check. A core counts as passed if each plugin that was checked with it passes.
    """
    checks = [check for offer in offers for check in offer.checks]
    newest = max(checks, key=lambda check: (check.date, check.version)).version
    failed = {check.core for check in checks if check.version == newest and check.failed}
    passed = {check.core for check in checks if check.version == newest} - failed
    label = f"rlplug check {newest}"
    message = "; ".join(
        f"{word} with core {', '.join(sorted(cores))}"
        for word, cores in (("passes", passed), ("fails", failed))
        if cores
    )
    left, right = (round(_CHARACTER * len(text)) + 12 for text in (label, message))
    return _BADGE.format(
        label=escape(label),
        message=escape(message),
        color=_RED if failed else _GREEN,
        width=left + right,
        left=left,
        right=right,
        left_middle=left / 2,
        right_middle=left + right / 2,
    )


def _matrix(offers: Sequence[Offer]) -> str:
    """Return the table of results, with a row for each version of a plugin and a column for each rlplug-core."""
    cores = sorted({check.core for offer in offers for check in offer.checks})
    if not cores:
        return ""
    titles = " | ".join(f"rlplug-core {_escape(core)}" for core in cores)
    parts = [_CHECKS.format(cores=titles, lines="---|" * len(cores))]
    for offer in sorted(offers, key=lambda entry: (entry.distribution, entry.group, entry.id)):
        for version in sorted({check.version for check in offer.checks}):
            results = {check.core: str(check) for check in offer.checks if check.version == version}
            cells = " | ".join(_escape(results.get(core, "")) for core in cores)
            plugin = f"`{offer.id}` of {offer.distribution} {_escape(version)}"
            parts.append(f"| {plugin} | {cells} |\n")
    return "".join(parts)


def _row(offer: Offer) -> str:
    paper = offer.paper if offer.paper not in offer.summary else ""
    summary_text = " ".join(text for text in (offer.summary, paper) if text)
    if not offer.contract:
        supported = "unknown"
    else:
        supported = "yes" if OLDEST_CONTRACT <= offer.contract <= CONTRACT else "no"
    cells = (
        f"`{offer.id}`",
        f"`python -m pip install {offer.distribution}` {_escape(offer.version)}",
        _escape(summary_text),
        _preset_results(offer),
        str(offer.contract or "unknown"),
        supported,
    )
    return f"| {' | '.join(cells)} |\n"


def _preset_results(offer: Offer) -> str:
    """Return the first results of presets, and how many more there are."""
    hidden = len(offer.learned) - SHOWN
    more = f"; {hidden} more" if hidden > 0 else ""
    return _escape("; ".join(offer.learned[:SHOWN]), 400) + more


def _escape(text: str, most: int = 300) -> str:
    """Escape an untrusted string for Markdown and HTML."""
    return re.sub(r"[^\w\s.,;:()'+=/%-]", lambda match: f"&#{ord(match[0])};", plain(text, most))
