"""Runs a command: switches plugins off before they are looked for, and turns every error into one sentence."""

from __future__ import annotations

import errno
import os
import signal
import sys
from contextlib import nullcontext
from typing import TextIO

import click

from rlplug_cli.app import TRAINING, app
from rlplug_cli.output import GlobalOptions, stdout_to_stderr
from rlplug_core.errors import LONGEST, RlplugError, Stopped, plain


def run_command(arguments: list[str], whole_process: bool) -> int:
    """Run a command and return its exit code; `whole_process` if this process does nothing else."""
    words, traceback = take_global_options(arguments)
    trains = not TRAINING.isdisjoint(words[:1])
    if whole_process:
        _make_streams_safe(trains)
    stderr = sys.stderr
    try:
        return _call(words, traceback, whole_process, trains)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), file=sys.stdout)
        return 2
    except SystemExit as error:
        if "_RLPLUG_COMPLETE" in os.environ:
            raise  # click ends this way after completing a word
        if sys.stderr is not stderr:
            return _close_stdout()  # click changes the streams if the reader is gone
        cause = f"an environment or a plugin called sys.exit({error.code!r})"
        return _print_error(f"{_subject(words)}: {cause}", 1)
    except BaseException as error:  # noqa: BLE001 - plugins may raise anything
        return _report(error, words, traceback)


def _call(
    words: list[str],
    traceback: bool,
    whole_process: bool,
    trains: bool,
) -> int:
    """Parse the words and call their command; with `--json` only its result goes to stdout."""
    with (
        stdout_to_stderr(until_exit=whole_process, ignore_broken_pipe=trains)
        if "--json" in words
        else nullcontext() as out
    ):
        options = GlobalOptions(out, traceback)
        code = app.main(words, prog_name="rlplug", standalone_mode=False, obj=options)
    return code if isinstance(code, int) else 0  # the code of ctx.exit()


def _report(error: BaseException, words: list[str], traceback: bool) -> int:
    """Report the error of a command in one sentence and return the exit code; raise it if a traceback is wanted."""
    if isinstance(error, click.ClickException):
        return _print_error(_sentence(error), error.exit_code)
    if isinstance(error, Stopped):
        return _print_error(str(error), error.exit_code)
    if isinstance(error, KeyboardInterrupt | click.Abort):
        if isinstance(error.__cause__, Stopped):  # click turns every KeyboardInterrupt into its own
            return _print_error(str(error.__cause__), error.__cause__.exit_code)
        return _print_error("stopped", 130)
    if isinstance(error, BrokenPipeError):
        return _close_stdout()
    if traceback:
        raise error
    if isinstance(error, RlplugError):
        return _print_error(str(error), error.exit_code)
    return _report_unexpected(words, error)


def _make_streams_safe(trains: bool) -> None:
    """Let both streams write every character, stderr never fail, nor stdout if it is closed or the command trains."""
    from rlplug_core.loop import safe_stream, take_any_character

    def stream_or_devnull(stream: TextIO | None) -> TextIO:  # None after `>&-`
        return stream or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")

    for stream in (sys.stdout, sys.stderr):
        take_any_character(stream)
    sys.stderr = safe_stream(stream_or_devnull(sys.stderr))
    sys.stdout = (
        safe_stream(stream_or_devnull(sys.stdout)) if trains else stream_or_devnull(sys.stdout)
    )


def _close_stdout() -> int:
    """Return the exit code if the reader of stdout is gone, and let the flush at exit go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 128 + getattr(signal, "SIGPIPE", 13)


def _subject(words: list[str]) -> str:
    """Return the start of an error's sentence: that the run failed, or the command."""
    command = " ".join(["rlplug", *words[:1]])
    return f"'{command}' failed" if TRAINING.isdisjoint(words[:1]) else "the run failed"


def _report_unexpected(words: list[str], error: BaseException) -> int:
    """Report an unexpected exception in one sentence."""
    from rlplug_core.config import describe, explain_import, place_of

    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return _print_error(
            f"'{str(error.filename)[:40]}…' is too long for a path; name an existing file or run",
            2,
        )
    message = f"{describe(error)}{place_of(error)}{_remedy(error)}{explain_import(error)}"
    return _print_error(f"{_subject(words)}: {plain(message, 1000)} (--traceback shows where)", 1)


def take_global_options(words: list[str]) -> tuple[list[str], bool]:
    """Take `-P no:name` and `--traceback` out of raw arguments, before anything looks for plugins.

    Returns:
        The other arguments, and whether `--traceback` was typed.
    """
    other_words: list[str] = []
    disabled = [os.environ.get("RLPLUG_DISABLED_PLUGINS", "")]
    traceback = False
    remaining = list(words)
    while remaining:
        word = remaining.pop(0)
        if word == "--":
            other_words += [word, *remaining]
            break
        if word == "-P" and remaining and remaining[0].startswith("no:"):
            word += remaining.pop(0)
        if word == "--traceback":
            traceback = True
        elif word.startswith("-Pno:"):
            disabled.append(word.removeprefix("-Pno:"))
        else:
            other_words.append(word)
    if disabled != [""]:
        os.environ["RLPLUG_DISABLED_PLUGINS"] = ",".join(filter(None, disabled))
    return other_words, traceback


def _remedy(error: BaseException) -> str:
    """Return the remedy for an error of reading or writing a file; a run adds the command that continues it."""
    from rlplug_core.runs import REMEDIES

    remedy = REMEDIES.get(error.errno or 0) if isinstance(error, OSError) else None
    notes = getattr(error, "__notes__", [])
    next_step = next((note for note in notes if note.startswith("continue with '")), "try again")
    return f"; {remedy}, then {next_step}" if remedy else ""


def _sentence(error: click.ClickException) -> str:
    """Return a click error as one sentence that names the command with more help."""
    message = " ".join(error.format_message().split()).rstrip(".")
    context = getattr(error, "ctx", None)
    return (
        f"{message[:1].lower()}{message[1:]} ('{context.command_path} --help' shows all)"
        if context
        else message
    )


def _print_error(sentence: str, code: int) -> int:
    print(f"rlplug: {plain(sentence, LONGEST)}", file=sys.stderr)
    return code
