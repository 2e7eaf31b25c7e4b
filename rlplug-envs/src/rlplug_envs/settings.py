"""Attributes that are set in single environments between their episodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlplug_core.errors import BadEnv, UsageError, did_you_mean
from rlplug_core.types import GymEnv, State


class Settings:
    """The attributes that each environment gets at its next reset, and its current ones."""

    def __init__(self, num_envs: int) -> None:
        self.wanted: dict[str, object] = {}
        self.rows = [self.wanted] * num_envs

    def set_later(
        self,
        settings: Mapping[str, object],
        env: GymEnv,
        id: str,
    ) -> None:
        """Store attributes to set; `env` is one of the environments with the name `id`.

        Raises:
            UsageError: they have no such attribute.
        """
        for name in settings:
            if name.startswith("_") or not env.has_wrapper_attr(name):
                known = [
                    attribute for attribute in vars(env.unwrapped) if not attribute.startswith("_")
                ]
                hint = did_you_mean(name, known)
                raise UsageError(
                    f"{id} has no attribute '{name}' to set{hint} (it has {', '.join(known) or 'none'})"
                )
        self.wanted = dict(settings)

    def apply(self, row: int, env: GymEnv) -> None:
        """Set the stored attributes of an environment before its reset."""
        if self.rows[row] is not self.wanted:
            _set(env, self.wanted)
            self.rows[row] = self.wanted

    def state_dict(self) -> State:
        """Return the stored attributes and those of each environment; empty if none was ever set."""
        if not self.wanted:
            return {}
        return {
            "settings": {
                "wanted": dict(self.wanted),
                "rows": [dict(settings) for settings in self.rows],
            }
        }

    def load_state_dict(self, state: State, envs: Sequence[GymEnv]) -> None:
        """Set the saved attributes of every environment; without any, it keeps those of its constructor."""
        if "settings" not in state:
            return
        self.wanted = dict(state["settings"]["wanted"])
        for row, (env, saved) in enumerate(zip(envs, state["settings"]["rows"], strict=True)):
            _set(env, saved)
            self.rows[row] = self.wanted if saved == self.wanted else dict(saved)


def _set(env: GymEnv, settings: Mapping[str, object]) -> None:
    for name, value in settings.items():
        try:
            env.set_wrapper_attr(name, value)
        except Exception as error:  # a foreign property may raise anything
            raise BadEnv(
                f"{type(env.unwrapped).__name__} refuses to set '{name}' to {value!r}: {error}"
            ) from error
