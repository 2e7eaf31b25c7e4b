"""Sources of shared agents: `https://host/agents/ppo`, `hub:owner/name`, `mlflow:name/version`, `zoo:ppo/CartPole-v1`.

`#sha256=HASH` at the end of a source is the hash of `agent.json`, which has the hashes of all other files.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rlplug_core.errors import UsageError, plain

#: The prefixes of sources.
KINDS = ("http", "https", "hub", "mlflow", "zoo")
_WORD = re.compile(rf"(?:{'|'.join(KINDS)}):")
#: A part of a name; it cannot be `.` or `..`, or look like an option of a command.
_PART = r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,127}"
_FORMS = {
    "hub": (rf"{_PART}/{_PART}(?:@{_PART})?", "hub:owner/name or hub:owner/name@revision"),
    "mlflow": (rf"{_PART}(?:/[1-9][0-9]{{0,9}})?", "mlflow:name/version"),
    "zoo": (rf"{_PART}(?:/{_PART}){{1,3}}", "zoo:algorithm/environment"),
    "http": (r"//[^\s#]+", "http://host/folder"),
    "https": (r"//[^\s#]+", "https://host/folder"),
}


@dataclass(frozen=True)
class Source:
    """The parts of a source.

    Attributes:
        kind: one of `KINDS`.
        name: the text after `kind:`, without `#sha256=HASH`.
        pin: the SHA-256 of `agent.json`, or "" if any content is accepted.
    """

    kind: str
    name: str
    pin: str = ""

    @property
    def word(self) -> str:
        return f"{self.kind}:{self.name}"


def is_source(word: object) -> bool:
    """Return whether a word is a source, and not a path or the name of a run."""
    return isinstance(word, str) and _WORD.match(word) is not None


def parse(word: str) -> Source:
    """Return the parts of a source.

    Raises:
        UsageError: it has another form.
    """
    kind, _, rest = word.partition(":")
    name, mark, pin = rest.partition("#sha256=")
    form, example = _FORMS[kind]
    if not re.fullmatch(form, name):
        raise UsageError(f"'{plain(word)}' is not a source of this kind; write {example}")
    if mark and not re.fullmatch("[0-9a-fA-F]{64}", pin):
        raise UsageError(f"'{plain(word)}': a SHA-256 has 64 hexadecimal digits after #sha256=")
    return Source(kind, name, pin.lower())
