"""Names of this room for front ends and plugins: the one list that type checkers, editors and `__init__.py` read."""

from rlplug_core.config.files import as_type as as_type
from rlplug_core.config.files import content as file_content
from rlplug_core.config.files import from_json as read_json
from rlplug_core.config.files import from_toml as read_toml
from rlplug_core.config.files import hold_directory as hold_directory
from rlplug_core.config.files import is_directory as is_directory
from rlplug_core.config.files import is_regular as is_regular
from rlplug_core.config.files import make_directory as make_directory
from rlplug_core.config.files import open_lock as open_lock
from rlplug_core.config.files import open_regular as open_regular
from rlplug_core.config.files import replace as replace_file
from rlplug_core.config.files import sync_directory as sync_directory
from rlplug_core.config.files import sync_file as sync_file
from rlplug_core.config.import_string import describe as describe
from rlplug_core.config.import_string import is_target as is_target
from rlplug_core.config.import_string import load_target as load_target
from rlplug_core.config.import_string import place_of as place_of
from rlplug_core.config.locks import acquire as acquire_lock
from rlplug_core.config.locks import inheritable as inheritable_locks
from rlplug_core.config.numbers import figures as figures
from rlplug_core.config.numbers import plain_number as plain_number
from rlplug_core.config.numbers import whole_number as whole_number
from rlplug_core.config.options import Config as Config
from rlplug_core.config.options import Range as Range
from rlplug_core.config.parse import number_of_word as number_of_word
from rlplug_core.config.parse import parse as parse_text
from rlplug_core.config.parse import values_in_range as values_in_range
from rlplug_core.config.run_options import RunOptions as RunOptions
from rlplug_core.config.schedules import parse_schedule as schedule_text
from rlplug_core.config.schema import Option as Option
from rlplug_core.config.schema import flat as flat
from rlplug_core.config.schema import schema as schema_of
from rlplug_core.config.synonyms import nearest as nearest
from rlplug_core.conflicts import explain_import as explain_import

__all__ = [
    "Config",
    "Option",
    "Range",
    "RunOptions",
    "acquire_lock",
    "as_type",
    "describe",
    "explain_import",
    "figures",
    "file_content",
    "flat",
    "hold_directory",
    "inheritable_locks",
    "is_directory",
    "is_regular",
    "is_target",
    "load_target",
    "make_directory",
    "nearest",
    "number_of_word",
    "open_lock",
    "open_regular",
    "parse_text",
    "place_of",
    "plain_number",
    "read_json",
    "read_toml",
    "replace_file",
    "schedule_text",
    "schema_of",
    "sync_directory",
    "sync_file",
    "values_in_range",
    "whole_number",
]
