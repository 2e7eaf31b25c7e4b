"""Names of this room for front ends and plugins: the one list that type checkers, editors and `__init__.py` read."""

from rlplug_core.loop.actor_placement import before_import as before_import
from rlplug_core.loop.episode_stats import INFO as EPISODE_INFO
from rlplug_core.loop.evaluate import Evaluation as Evaluation
from rlplug_core.loop.events import Progress as Progress
from rlplug_core.loop.notices import notice as notice
from rlplug_core.loop.population import Exchange as Exchange
from rlplug_core.loop.population import Member as Member
from rlplug_core.loop.population import PopulationRule as PopulationRule
from rlplug_core.loop.population import decide as decide
from rlplug_core.loop.population import sample as sample_range
from rlplug_core.loop.ray_cluster import RayTask as RayTask
from rlplug_core.loop.ray_cluster import check_nodes as check_nodes
from rlplug_core.loop.ray_cluster import join as join_cluster
from rlplug_core.loop.ray_cluster import leave as leave_cluster
from rlplug_core.loop.ray_cluster import room as cluster_cpus
from rlplug_core.loop.safe_streams import safe_stream as safe_stream
from rlplug_core.loop.safe_streams import take_any_character as take_any_character
from rlplug_core.loop.signals import STOPPING as STOPPING
from rlplug_core.loop.signals import URGENT as URGENT
from rlplug_core.processor import cores as cores

__all__ = [
    "EPISODE_INFO",
    "STOPPING",
    "URGENT",
    "Evaluation",
    "Exchange",
    "Member",
    "PopulationRule",
    "Progress",
    "RayTask",
    "before_import",
    "check_nodes",
    "cluster_cpus",
    "cores",
    "decide",
    "join_cluster",
    "leave_cluster",
    "notice",
    "safe_stream",
    "sample_range",
    "take_any_character",
]
