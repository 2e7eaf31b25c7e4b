"""A page in Markdown that lists plugins by kind, and says which of them this rlplug-core supports."""

from __future__ import annotations

import re
from collections.abc import Sequence
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


def plugin_page(found: Sequence[Offer]) -> str:
    """Return the page of these plugins."""
    version = rlplug_core.__version__
    parts = [_HEAD.format(version=version)]
    for group, offers in groupby(
        sorted(found, key=lambda one: (one.group, one.id)), lambda one: one.group
    ):
        parts.append(_TABLE.format(group=group, version=version))
        parts += [_row(one) for one in offers]
    return "".join(parts)


def _row(offer: Offer) -> str:
    supported = OLDEST_CONTRACT <= offer.contract <= CONTRACT
    paper = offer.paper if offer.paper not in offer.summary else ""
    about = " ".join(text for text in (offer.summary, paper) if text)
    cells = (
        f"`{offer.id}`",
        f"`python -m pip install {offer.distribution}` {_escape(offer.version)}",
        _escape(about),
        _learned(offer),
        str(offer.contract or "unknown"),
        "yes" if supported else "unknown" if not offer.contract else "no",
    )
    return f"| {' | '.join(cells)} |\n"


def _learned(offer: Offer) -> str:
    """Return the first results of presets, and how many more there are."""
    rest = len(offer.learned) - SHOWN
    more = f"; {rest} more" if rest > 0 else ""
    return _escape("; ".join(offer.learned[:SHOWN]), 400) + more


def _escape(text: str, most: int = 300) -> str:
    """Return a text of a stranger without effect in Markdown and HTML."""
    return re.sub(r"[^\w\s.,;:()'+=/%-]", lambda found: f"&#{ord(found[0])};", plain(text, most))
