"""The root command: has the names and summaries of all commands, and imports only the one that runs."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from rlplug_cli import __version__
from rlplug_core.errors import RlplugError, UsageError, did_you_mean

#: The module and the summary of each command, in the order of the help.
COMMANDS = {
    "run": ("run", "Train an algorithm on an environment."),
    "resume": ("resume", "Continue an interrupted run, bit for bit."),
    "evaluate": ("evaluate", "Play episodes with a run's checkpoints and report the returns."),
    "play": ("play", "Watch a run's policy in a window or as a video."),
    "record": ("record", "Record a run's policy as a data set."),
    "export": ("export", "Export a run's policy to files."),
    "push": ("push", "Share a run's agent as a folder, on the Hub or in MLflow."),
    "pull": ("pull", "Get a shared agent and check its files."),
    "import": ("import_model", "Import a policy that another library trained."),
    "reproduce": ("reproduce", "Train a run again and compare the bits."),
    "runs": ("runs", "List and delete runs, and clean up after killed ones."),
    "show": ("show", "Show one run: options, scores, curve, checkpoints, how to resume."),
    "sweep": ("sweep", "Train algorithms on environments over seeds and options."),
    "compare": ("compare", "Compare runs over seeds, with confidence intervals."),
    "plot": ("plot", "Draw learning curves of runs."),
    "tune": ("tune", "Search for an algorithm's best options."),
    "evolve": ("evolve", "Train a population that exchanges weights and options."),
    "ui": ("ui", "Open the MLflow UI on the runs."),
    "sync": ("sync", "Send the missing records of a run to MLflow."),
    "list": ("list", "List algorithms, wrappers, controllers, and environments by family."),
    "search": ("search", "Find plugins, including those that are not installed."),
    "info": ("info", "Show an algorithm, a wrapper, a controller or an environment."),
    "plugins": ("plugins", "List plugins, and the reason if one cannot be used."),
    "new": ("new", "Write a new plugin that works, for you to change."),
    "check": ("check", "Check that a plugin follows the contract (for authors)."),
    "index": ("index", "Write the index of a plugin (for authors)."),
    "doctor": ("doctor", "Check this installation."),
}
#: Commands of other libraries, and their names here.
ELSEWHERE = {"train": "run", "learn": "run", "fit": "run", "enjoy": "play", "test": "evaluate"}
#: Commands that train; they continue if the reader of their output is gone.
TRAINING = frozenset({"run", "resume", "reproduce", "sweep", "tune", "evolve"})


class Root(click.Group):
    """The group of all commands; its help uses only `COMMANDS`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(
        self,
        ctx: click.Context,
        cmd_name: str,
    ) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"rlplug_cli.commands.{COMMANDS[cmd_name][0]}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self,
        ctx: click.Context,
        args: list[str],
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if not ctx.resilient_parsing and args[0] not in COMMANDS and not args[0].startswith("-"):
            word = args[0]
            hint = did_you_mean(ELSEWHERE.get(word, word), COMMANDS)
            raise UsageError(f"no command '{word}'{hint} ('rlplug --help' shows all)")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:  # click thinks that the reader of stdout is gone
            if ctx.invoked_subcommand not in TRAINING:
                raise
            raise RlplugError(
                f"the run failed: {type(error).__name__}: {error} (--traceback shows where)"
            ) from error

    def format_commands(
        self,
        ctx: click.Context,
        formatter: click.HelpFormatter,
    ) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])

    def shell_complete(
        self,
        ctx: click.Context,
        incomplete: str,
    ) -> list[click.shell_completion.CompletionItem]:
        from click.shell_completion import CompletionItem

        if incomplete.startswith("-"):
            return click.Command.shell_complete(self, ctx, incomplete)
        names = [name for name in COMMANDS if name.startswith(incomplete)]
        return [CompletionItem(name, help=COMMANDS[name][1]) for name in names]


EPILOG = """\b
All commands: -P no:NAME switches a plugin off, --traceback shows the traceback
of an error. For completion in bash: eval "$(_RLPLUG_COMPLETE=bash_source rlplug)";
the same for zsh and fish."""

app = Root(
    name="rlplug",
    help="Reinforcement learning algorithms as plugins: run them, compare them, resume them bit for bit.",
    epilog=EPILOG,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
app = click.version_option(__version__, "-V", "--version", prog_name="rlplug")(app)
