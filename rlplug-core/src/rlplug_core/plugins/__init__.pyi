"""Names of this room for front ends and plugins: the one list that type checkers, editors and `__init__.py` read."""

from rlplug_core.config.import_string import absolute as absolute
from rlplug_core.config.import_string import is_target as is_target
from rlplug_core.config.import_string import source_file as source_file
from rlplug_core.plugins.discovery import records as records
from rlplug_core.plugins.discovery import refresh as refresh
from rlplug_core.plugins.discovery import scan as scan
from rlplug_core.plugins.envs import env_ids as env_ids
from rlplug_core.plugins.envs import make_env as make_env
from rlplug_core.plugins.envs import names_code as names_code
from rlplug_core.plugins.families import Family as Family
from rlplug_core.plugins.families import families as env_families
from rlplug_core.plugins.families import family_of as family_of
from rlplug_core.plugins.families import time_limit as time_limit
from rlplug_core.plugins.hook_specs import RunView as RunView
from rlplug_core.plugins.hook_specs import hookimpl as hookimpl
from rlplug_core.plugins.hooks import Hooks as Hooks
from rlplug_core.plugins.index import AT_ONCE as AT_ONCE
from rlplug_core.plugins.index import CONTRACT as CONTRACT
from rlplug_core.plugins.index import DIFFERENT_SPACES as DIFFERENT_SPACES
from rlplug_core.plugins.index import OLDEST_CONTRACT as OLDEST_CONTRACT
from rlplug_core.plugins.index import abilities as abilities
from rlplug_core.plugins.index import contract as contract
from rlplug_core.plugins.index import options as index_options
from rlplug_core.plugins.index import read as read_index
from rlplug_core.plugins.index import required as required_index
from rlplug_core.plugins.indexing import drift as index_drift
from rlplug_core.plugins.indexing import write as write_index
from rlplug_core.plugins.known import KNOWN as KNOWN
from rlplug_core.plugins.names import find as find
from rlplug_core.plugins.names import ids as ids
from rlplug_core.plugins.names import provider_in as provider_in
from rlplug_core.plugins.names import remedy as remedy
from rlplug_core.plugins.names import usable as usable
from rlplug_core.plugins.preset_files import chain as preset_chain
from rlplug_core.plugins.presets import is_known as has_preset
from rlplug_core.plugins.presets import merge as merge_layers
from rlplug_core.plugins.presets import preset as preset_values
from rlplug_core.plugins.presets import usual as usual_options
from rlplug_core.plugins.records import FIRST_PARTY as FIRST_PARTY
from rlplug_core.plugins.records import GROUPS as GROUPS
from rlplug_core.plugins.records import MODULES as MODULES
from rlplug_core.plugins.records import NOUNS as NOUNS
from rlplug_core.plugins.records import Group as Group
from rlplug_core.plugins.records import Record as Record
from rlplug_core.plugins.records import canonical as canonical
from rlplug_core.plugins.registry import Offer as Offer
from rlplug_core.plugins.registry import installed_offers as installed_offers
from rlplug_core.plugins.registry import offers as offers
from rlplug_core.plugins.registry import source as registry_source
from rlplug_core.plugins.registry import write as write_registry
from rlplug_core.plugins.request import RunRequest as RunRequest
from rlplug_core.plugins.reserved import check_options as check_options
from rlplug_core.plugins.resolve import LOADERS as LOADERS
from rlplug_core.plugins.resolve import algorithm as algorithm
from rlplug_core.plugins.resolve import controller as controller
from rlplug_core.plugins.resolve import hook as hook
from rlplug_core.plugins.resolve import logger as logger
from rlplug_core.plugins.resolve import memory as memory
from rlplug_core.plugins.resolve import network as network
from rlplug_core.plugins.resolve import population as population
from rlplug_core.plugins.resolve import wrapper as wrapper
from rlplug_core.plugins.result_files import CheckResult as CheckResult
from rlplug_core.plugins.result_files import PresetResult as PresetResult
from rlplug_core.plugins.result_files import preset_results as preset_results
from rlplug_core.plugins.result_files import record_check as record_check
from rlplug_core.plugins.spec import PartSpec as PartSpec
from rlplug_core.plugins.spec import join_words as join_words
from rlplug_core.plugins.spec import split as split_word
from rlplug_core.plugins.user_envs import is_environment as is_environment

__all__ = [
    "AT_ONCE",
    "CONTRACT",
    "DIFFERENT_SPACES",
    "FIRST_PARTY",
    "GROUPS",
    "KNOWN",
    "LOADERS",
    "MODULES",
    "NOUNS",
    "OLDEST_CONTRACT",
    "CheckResult",
    "Family",
    "Group",
    "Hooks",
    "Offer",
    "PartSpec",
    "PresetResult",
    "Record",
    "RunRequest",
    "RunView",
    "abilities",
    "absolute",
    "algorithm",
    "canonical",
    "check_options",
    "controller",
    "env_families",
    "env_ids",
    "family_of",
    "find",
    "has_preset",
    "hook",
    "hookimpl",
    "ids",
    "index_drift",
    "index_options",
    "installed_offers",
    "is_environment",
    "is_target",
    "join_words",
    "logger",
    "make_env",
    "memory",
    "merge_layers",
    "names_code",
    "network",
    "offers",
    "population",
    "preset_chain",
    "preset_results",
    "preset_values",
    "provider_in",
    "read_index",
    "record_check",
    "records",
    "refresh",
    "registry_source",
    "remedy",
    "required_index",
    "scan",
    "source_file",
    "split_word",
    "time_limit",
    "usable",
    "usual_options",
    "wrapper",
    "write_index",
    "write_registry",
]
