"""Notes with the Python form of options, for errors that name options as typed in a shell."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from rlplug_core.errors import RlplugError

#: An option as typed in a shell, and a whole command, which stays unchanged.
TYPED = re.compile(r"(?<![\w-])--(?:no-)?([a-z][a-z0-9.-]*)")
COMMAND = re.compile(r"'rlplug [^']*'")
#: Options that are separate arguments in Python, and those that Python does not need.
ARGUMENTS = {
    "out",
    "name",
    "checkpoint",
    "episodes",
    "stochastic",
    "epsilon",
    "video",
    "frames",
    "fps",
    "torchscript",
}
SHELL_ONLY = {"traceback", "trust", "set"}
#: Python's error for an option that is passed as an argument, as in other libraries.
UNEXPECTED_ARGUMENT = re.compile(r"train\(\) got an unexpected keyword argument '(\w+)'")


@contextmanager
def add_python_notes(*function_arguments: str) -> Iterator[None]:
    """Add a note to an error that names options; the command line prints no notes, Python and notebooks do.

    Args:
        function_arguments: options that are arguments of this function; other functions take them in `options`.
    """
    try:
        yield
    except RlplugError as error:
        if (note := in_python(str(error), function_arguments)) and note not in getattr(
            error, "__notes__", ()
        ):
            error.add_note(note)
        raise
    except TypeError as error:
        if match := UNEXPECTED_ARGUMENT.fullmatch(str(error)):
            error.add_note(f"Options go into a dictionary: train(..., {{'{match[1]}': ...}})")
        raise


def in_python(sentence: str, function_arguments: Collection[str] = ()) -> str:
    """Return the Python form of the options that an error names; "" if it names no option."""
    typed = dict.fromkeys(name.rstrip(".-") for name in TYPED.findall(COMMAND.sub("", sentence)))
    names = [name.replace("-", "_") for name in typed if name not in SHELL_ONLY]
    arguments = ARGUMENTS.union(function_arguments)
    options = ", ".join(f"'{name}': ..." for name in names if name not in arguments)
    arguments_text = [f"{name}=..." for name in names if name in arguments] + [
        f"options={{{options}}}"
    ] * bool(options)
    return f"In Python: {', '.join(arguments_text)}" if arguments_text else ""
