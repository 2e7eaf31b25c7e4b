"""Carries out a command: settles what comes before every import, and turns every error into one sentence."""

from __future__ import annotations

import errno
import os
import signal
import sys
from contextlib import nullcontext
from typing import TextIO

from rlplug_core.errors import LONGEST, RlplugError, Stopped, plain


def called(arguments: list[str], whole: bool) -> int:
    """Carry out a command and return its exit code; `whole` where it is all that this process does."""
    words, traceback = settle(arguments)
    import click

    from rlplug_cli.app import TRAINING, app
    from rlplug_cli.output import Asked, aside

    trains = not TRAINING.isdisjoint(words[:1])
    if whole:
        _outlast(trains)
    stderr = sys.stderr
    try:
        with (
            aside(to_the_end=whole, to_nobody=trains) if "--json" in words else nullcontext() as out
        ):
            code = app.main(
                words, prog_name="rlplug", standalone_mode=False, obj=Asked(out, traceback)
            )
        return code if isinstance(code, int) else 0  # what a command gave to ctx.exit()
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 2
    except click.ClickException as error:
        return _say(_sentence(error), error.exit_code)
    except Stopped as error:
        return _say(str(error), error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        return _say("stopped", 130)
    except BrokenPipeError:
        return _unread()
    except RlplugError as error:
        if traceback:
            raise
        return _say(str(error), error.exit_code)
    except (
        Exception
    ) as error:  # the last resort: environments, plugins and what they import may raise anything
        if traceback:
            raise
        return _failed(words, error)
    except SystemExit as error:
        if "_RLPLUG_COMPLETE" in os.environ:
            raise  # so click ends when it has completed a word
        if sys.stderr is not stderr:
            return (
                _unread()
            )  # click has found that nobody reads on, for which it changes the streams
        return _say(
            f"{_ended(words)}: an environment or a plugin called sys.exit({error.code!r})", 1
        )


def _outlast(trains: bool) -> None:
    """Let nothing that is said on stderr fail, and where a command trains, nothing on stdout either."""
    from rlplug_core.loop.safe_streams import lasting

    def there(stream: TextIO | None) -> TextIO:  # none as behind `>&-`
        return stream or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")

    sys.stderr = lasting(there(sys.stderr))
    if trains:
        sys.stdout = lasting(there(sys.stdout))


def _unread() -> int:
    """Nobody reads on: return the code of a command that this has ended, and let the flush at exit go somewhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 128 + signal.SIGPIPE


def _ended(words: list[str]) -> str:
    """Return what an error ended: a run, or a command that trains nothing."""
    from rlplug_cli.app import TRAINING

    command = " ".join(["rlplug", *words[:1]])
    return f"'{command}' failed" if TRAINING.isdisjoint(words[:1]) else "the run failed"


def _failed(words: list[str], error: Exception) -> int:
    """Say in one sentence what nobody foresaw."""
    from rlplug_core.config.import_string import place_of

    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return _say(
            f"'{str(error.filename)[:40]}…' is too long for a path; name a file or a run that there is",
            2,
        )
    said = plain(f"{type(error).__name__}: {error}{place_of(error)}{_remedy(error)}", 1000)
    return _say(f"{_ended(words)}: {said} (--traceback shows where)", 1)


def settle(words: list[str]) -> tuple[list[str], bool]:
    """Take `-P no:name` and `--traceback` out of raw arguments, before anything looks for plugins.

    Returns:
        The other arguments, and whether a traceback was asked for.
    """
    rest: list[str] = []
    disabled = (
        [os.environ["RLPLUG_DISABLED_PLUGINS"]] if os.environ.get("RLPLUG_DISABLED_PLUGINS") else []
    )
    traceback = False
    position = 0
    while position < len(words):
        word = words[position]
        if word == "--":
            rest += words[position:]
            break
        if word == "--traceback":
            traceback = True
        elif word.startswith("-Pno:"):
            disabled.append(word.removeprefix("-Pno:"))
        elif (
            word == "-P"
            and words[position + 1 : position + 2]
            and words[position + 1].startswith("no:")
        ):
            position += 1
            disabled.append(words[position].removeprefix("no:"))
        else:
            rest.append(word)
        position += 1
    if disabled:
        os.environ["RLPLUG_DISABLED_PLUGINS"] = ",".join(disabled)
    return rest, traceback


def _remedy(error: Exception) -> str:
    """Return what helps where the system refused to read or to write a file."""
    from rlplug_core.runs.files import REMEDIES

    remedy = REMEDIES.get(error.errno or 0) if isinstance(error, OSError) else None
    return f"; {remedy}, then try again" if remedy else ""


def _sentence(error: object) -> str:
    """A click error as one sentence with the command whose help says more."""
    import click

    assert isinstance(error, click.ClickException)
    said = " ".join(error.format_message().split()).rstrip(".")
    context = getattr(error, "ctx", None)
    return (
        f"{said[:1].lower()}{said[1:]} ('{context.command_path} --help' shows what there is)"
        if context
        else said
    )


def _say(sentence: str, code: int) -> int:
    print(f"rlplug: {plain(sentence, LONGEST)}", file=sys.stderr)
    return code
