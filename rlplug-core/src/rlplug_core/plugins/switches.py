"""Find the disabled plugins, and the setting that disables each, before anything is imported.

- `RLPLUG_PLUGINS=a,b` allows only these (and first-party ones); empty allows only first-party ones.
- `RLPLUG_DISABLED_PLUGINS=x,y` disables these, first-party or not.
- `[plugins] disabled = ["x"]` in the user's configuration file does the same (`RLPLUG_CONFIG`, else
  `$XDG_CONFIG_HOME/rlplug/config.toml`, else `~/.config/rlplug/config.toml`).

A name is that of a distribution or of an entry point.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rlplug_core.config.files import from_toml
from rlplug_core.errors import UsageError
from rlplug_core.plugins.records import FIRST_PARTY, canonical

ALLOWED = "RLPLUG_PLUGINS"
DISABLED = "RLPLUG_DISABLED_PLUGINS"


@dataclass(frozen=True)
class Switches:
    """`disabled` maps canonical names to the settings that disable them; `allowed` None allows all."""

    allowed: frozenset[str] | None = None
    disabled: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> Switches:
        """Return the switches of the process environment and of the configuration file it points to.

        Raises:
            UsageError: the configuration file cannot be read, or has no list of names.
        """
        disabled = dict.fromkeys(_names(environ.get(DISABLED, "")), DISABLED)
        path = config_path(environ)
        names = plugins_table(path).get("disabled", [])
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise UsageError(f"{path}: plugins.disabled must be a list of names")
        for name in names:
            disabled.setdefault(canonical(name), str(path))
        allowed = frozenset(_names(environ[ALLOWED])) if ALLOWED in environ else None
        return cls(allowed, disabled)

    def reason(self, distribution: str, id: str) -> str:
        """Return the setting that disables a plugin, or an empty string."""
        for name in (distribution, canonical(id), f"{distribution}/{canonical(id)}"):
            if name in self.disabled:
                return f"'{name}' is disabled by {self.disabled[name]}"
        if self.allowed is None or distribution in FIRST_PARTY:
            return ""
        if {distribution, canonical(id)} & self.allowed:
            return ""
        return f"{ALLOWED} does not list it"


def config_path(environ: Mapping[str, str]) -> Path:
    """Return the path of the user's configuration file."""
    if "RLPLUG_CONFIG" in environ:
        return Path(environ["RLPLUG_CONFIG"])
    home = environ.get("XDG_CONFIG_HOME") or str(
        Path(environ.get("HOME", "~")).expanduser() / ".config"
    )
    return Path(home) / "rlplug" / "config.toml"


def _names(text: str) -> list[str]:
    return [canonical(name.strip()) for name in text.split(",") if name.strip()]


def plugins_table(path: Path) -> dict[str, object]:
    """Return the table `plugins` of the user's configuration file; empty without one.

    Raises:
        UsageError: the file cannot be read, or `plugins` is not a table.
    """
    if not path.is_file():
        return {}
    try:
        table = from_toml(path).get("plugins", {})
    except (OSError, ValueError) as error:
        raise UsageError(f"the configuration file {path} cannot be read: {error}") from error
    if not isinstance(table, dict):
        raise UsageError(f"{path}: 'plugins' is not a table; write [plugins] above its options")
    return table
