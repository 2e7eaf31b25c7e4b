"""Option names that belong to every run or to the command line; no algorithm may use them."""

from __future__ import annotations

from dataclasses import fields

from rlplug_core.options import RunOptions

#: What `rlplug run` itself understands beside the run options.
COMMAND_LINE = frozenset({"config", "help", "json", "name", "out", "set", "traceback"})
RESERVED = frozenset(field.name for field in fields(RunOptions)) | COMMAND_LINE
