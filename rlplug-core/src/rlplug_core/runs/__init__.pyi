"""Names of this room for front ends and plugins: the one list that type checkers, editors and `__init__.py` read."""

from rlplug_core.runs.api import resume as resume
from rlplug_core.runs.api import start as start
from rlplug_core.runs.api import train as train
from rlplug_core.runs.checkpoint import Checkpoints as Checkpoints
from rlplug_core.runs.curves import KINDS as CURVE_KINDS
from rlplug_core.runs.curves import Curve as Curve
from rlplug_core.runs.curves import curves as read_curves
from rlplug_core.runs.curves import curves_of as curves_of
from rlplug_core.runs.directory import PLACES as PLACES
from rlplug_core.runs.directory import SWEEP as SWEEP
from rlplug_core.runs.directory import RunDirectory as RunDirectory
from rlplug_core.runs.evaluation import seed_of as evaluation_seed
from rlplug_core.runs.exchange import Taken as Taken
from rlplug_core.runs.exchange import take_checkpoint as take_checkpoint
from rlplug_core.runs.files import REMEDIES as REMEDIES
from rlplug_core.runs.files import shell_word as shell_word
from rlplug_core.runs.files import writing as writing
from rlplug_core.runs.importing import import_sb3 as import_sb3
from rlplug_core.runs.inspection import Inspection as Inspection
from rlplug_core.runs.inspection import first_frame as first_frame
from rlplug_core.runs.inspection import inspect as inspect
from rlplug_core.runs.journal import Record as JournalRecord
from rlplug_core.runs.journal import locate as locate_record
from rlplug_core.runs.journal import read as read_journal
from rlplug_core.runs.journal import tail as tail_journal
from rlplug_core.runs.journal import valid_records as valid_records
from rlplug_core.runs.listing import OUT as OUT
from rlplug_core.runs.listing import Summary as Summary
from rlplug_core.runs.listing import directories as run_directories
from rlplug_core.runs.listing import extensions as extensions
from rlplug_core.runs.listing import final_evaluation as final_evaluation
from rlplug_core.runs.listing import find as find_run
from rlplug_core.runs.listing import is_untrained as is_untrained
from rlplug_core.runs.listing import records as run_records
from rlplug_core.runs.listing import remove as remove_run
from rlplug_core.runs.listing import summary as summary
from rlplug_core.runs.network_text import networks_of as networks_of
from rlplug_core.runs.new_run import probe as probe
from rlplug_core.runs.pushing import PushedAgent as PushedAgent
from rlplug_core.runs.pushing import push as push
from rlplug_core.runs.reproduction import Reproduction as Reproduction
from rlplug_core.runs.reproduction import reproduce as reproduce
from rlplug_core.runs.run import Run as Run
from rlplug_core.runs.run import plan_of as plan_of
from rlplug_core.runs.sources import LISTS as LISTS
from rlplug_core.runs.trust import add_seal as add_seal
from rlplug_core.runs.trust import code_without_seal as code_without_seal
from rlplug_core.runs.trust import genuine as genuine
from rlplug_core.runs.watching import has_display as has_display
from rlplug_core.sharing.agent_files import read_manifest as read_manifest
from rlplug_core.sharing.places import zoo_agents as zoo_agents
from rlplug_core.sharing.pull import pull as pull_agent
from rlplug_core.sharing.words import is_source as is_source

__all__ = [
    "CURVE_KINDS",
    "LISTS",
    "OUT",
    "PLACES",
    "REMEDIES",
    "SWEEP",
    "Checkpoints",
    "Curve",
    "Inspection",
    "JournalRecord",
    "PushedAgent",
    "Reproduction",
    "Run",
    "RunDirectory",
    "Summary",
    "Taken",
    "add_seal",
    "code_without_seal",
    "curves_of",
    "evaluation_seed",
    "extensions",
    "final_evaluation",
    "find_run",
    "first_frame",
    "genuine",
    "has_display",
    "import_sb3",
    "inspect",
    "is_source",
    "is_untrained",
    "locate_record",
    "networks_of",
    "plan_of",
    "probe",
    "pull_agent",
    "push",
    "read_curves",
    "read_journal",
    "read_manifest",
    "remove_run",
    "reproduce",
    "resume",
    "run_directories",
    "run_records",
    "shell_word",
    "start",
    "summary",
    "tail_journal",
    "take_checkpoint",
    "train",
    "valid_records",
    "writing",
    "zoo_agents",
]
