"""Names of this room for front ends and plugins: the one list that type checkers, editors and `__init__.py` read."""

from rlplug_core.sharing.agent_files import read_manifest as read_manifest
from rlplug_core.sharing.places import zoo_agents as zoo_agents
from rlplug_core.sharing.pull import pull as pull_agent
from rlplug_core.sharing.words import is_source as is_source

__all__ = ["is_source", "pull_agent", "read_manifest", "zoo_agents"]
