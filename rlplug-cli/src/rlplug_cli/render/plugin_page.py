"""A page in Markdown that lists plugins by kind, and says which of them this rlplug-core supports."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

import rlplug_core
from rlplug_core.errors import plain
from rlplug_core.plugins import CONTRACT, OLDEST_CONTRACT, Offer

_HEAD = """# Plugins

`rlplug search --page` wrote this page from a registry. The last column says whether rlplug-core {version} supports the
contract for which the plugin was indexed.
"""
_TABLE = """
## {group}

| plugin | install | about | contract | rlplug-core {version} |
|---|---|---|---|---|
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
    about = " ".join(text for text in (offer.summary, offer.paper) if text)
    cells = (
        f"`{offer.id}`",
        f"`python -m pip install {offer.distribution}` {_escape(offer.version)}",
        _escape(about),
        str(offer.contract or "unknown"),
        "yes" if supported else "unknown" if not offer.contract else "no",
    )
    return f"| {' | '.join(cells)} |\n"


def _escape(text: str) -> str:
    """Return a text of a stranger without effect in Markdown and HTML."""
    return re.sub(r"[^\w\s.,;:()'+=/%-]", lambda found: f"&#{ord(found[0])};", plain(text, 300))
