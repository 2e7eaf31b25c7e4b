"""Option names of other libraries get a suggestion, and one page lists them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import click
import pytest

import rlplug_core
from rlplug_cli import sections
from rlplug_cli.app import app
from rlplug_cli.commands.run import command as run
from rlplug_cli.commands.run import options_of
from rlplug_cli.scaffold import KINDS
from rlplug_core import plugins
from rlplug_core.config.run_options import RunOptions
from rlplug_core.config.schema import schema
from rlplug_core.config.synonyms import INSTEAD, instead, nearest, table
from rlplug_core.errors import BadConfig
from rlplug_core.plugins.known import KNOWN
from tests.cli.conftest import Result

PAGE = Path(__file__).parents[2] / "docs" / "words.md"
SHOWN = ("stable-baselines3", "cleanrl", "rllib", "tianshou")


def test_foreign_name_gets_a_suggestion(rlplug: Callable[..., Result], place: Path) -> None:
    (place / "mine.toml").write_text("n_envs = 8\n", encoding="utf-8")
    for words in (("--n-envs", "8"), ("--set", "n_envs=8"), ("--config", "mine.toml")):
        result = rlplug("run", "ppo", "CartPole-v1", *words)
        suggestion = "--num-envs" if words[0] == "--n-envs" else "num_envs"
        assert result.code == 2
        assert f"; did you mean '{suggestion}'? (" in result.err, words
    with pytest.raises(BadConfig, match=r"no option 'n_envs'; did you mean 'num_envs'\?"):
        rlplug_core.train("ppo", "CartPole-v1", {"n_envs": 8})


@pytest.mark.parametrize(
    ("word", "known", "answer"),
    [
        ("--clip", ("max_grad_norm", "gamma"), "'max_grad_norm'"),
        ("clip", ("clip_range", "max_grad_norm"), "'clip_range' or 'max_grad_norm'"),
        ("nb-steps", ("n_steps", "n_epochs"), "'n_steps'"),
        ("polyak", ("tau", "gamma"), "'tau'"),
        ("learning_rat", ("learning_rate", "gamma"), "'learning_rate'"),
        ("rwos", ("num_envs", "gamma"), "'num_envs'"),
    ],
)
def test_suggestion_depends_on_the_known_options(word: str, known: tuple[str, ...], answer: str) -> None:
    assert nearest(word, known) == f"; did you mean {answer}?"
    assert nearest(word, ()) == ""


def test_table_has_existing_options() -> None:
    ours = {option.name for option in schema(RunOptions)}
    ours |= {option.name for name in KNOWN["algorithms"] for option in options_of("algorithms", name)}
    assert set(table()) - ours == set()


def test_table_does_not_repeat_option_names() -> None:
    for option, names in table().items():
        assert option not in names["others"]


def row(option: str, *cells: list[str]) -> str:
    """Return a row of the page's table."""
    return f"| `{option}` | {' | '.join(' '.join(f'`{name}`' for name in names) for names in cells)} |"


def test_page_shows_the_names_of_four_libraries() -> None:
    shown = {option: [names[library] for library in SHOWN] for option, names in table().items()}
    rows = [row(option, *cells) for option, cells in shown.items() if any(cells)]
    text = PAGE.read_text(encoding="utf-8")
    assert "\n".join([*rows, ""]) in text, "\n".join(rows)


# Words that are not options.

#: Options of Stable-Baselines3 and CleanRL that rlplug does not have.
FOREIGN_OPTIONS = (
    "--frame-stack", "--tensorboard-log", "--track", "--capture-video", "--callback", "--verbose", "--policy",
    "--use-sde", "--env-kwargs", "--env-id", "--save-model", "--torch-deterministic", "--cuda",
)  # fmt: skip


def test_foreign_option_names_the_command_to_use(rlplug: Callable[..., Result], place: Path) -> None:
    for word in FOREIGN_OPTIONS:
        result = rlplug("run", "ppo", "CartPole-v1", word, "4")
        assert result.code == 2
        assert f"no such option '{word}'; {instead()[word[2:].replace('-', '_')]} ('rlplug run ppo" in result.err
    for command in ("sweep", "tune"):
        assert f"no option '--track'; {instead()['track']}\n" in rlplug(command, "ppo", "CartPole-v1", "--track").err
    (place / "mine.toml").write_text("verbose = 1\n", encoding="utf-8")
    assert "no option 'verbose'; leave it out" in rlplug("run", "ppo", "CartPole-v1", "--config", "mine.toml").err
    with pytest.raises(BadConfig, match=r"no option 'cuda'; write --device cuda"):
        rlplug_core.train("ppo", "CartPole-v1", {"cuda": True})


def test_foreign_options_are_not_options() -> None:
    ours = {option.name for option in schema(RunOptions)}
    ours |= {option.name for name in KNOWN["algorithms"] for option in options_of("algorithms", name)}
    assert not ours & set(instead())


def flags(command: click.Command) -> set[str]:
    return {
        flag for each in command.params if isinstance(each, click.Option) for flag in (*each.opts, *each.secondary_opts)
    }


def test_suggested_commands_exist() -> None:
    for clause in dict.fromkeys(instead().values()):
        assert_commands_exist(clause)


def assert_commands_exist(clause: str) -> None:
    with click.Context(run) as context:
        known = flags(run.get_command(context, "ppo"))
    for quoted in re.findall(r"'rlplug ([^']+)'", clause):
        name, *words = quoted.split()
        command = app.get_command(click.Context(app), name)
        assert command is not None, name
        assert {word for word in words if word.startswith("--")} <= flags(command)
        assert name != "new" or words[0] in KINDS
    assert set(re.findall(r"--[\w.-]+", re.sub(r"'rlplug [^']+'", "", clause))) <= known
    for name, option in re.findall(r"--wrap ([\w-]+):(\w+)=", clause):
        assert option in {each.name for each in options_of("wrappers", name)}
    assert set(re.findall(r"--log (\w+)", clause)) <= set(plugins.ids("loggers"))


def test_page_shows_foreign_options() -> None:
    lines = [line.partition(",") for line in INSTEAD.read_text(encoding="utf-8").splitlines()[1:]]
    rows = [f"| {' '.join(f'`{word}`' for word in words.split())} | {clause} |" for words, _, clause in lines]
    assert "\n".join([*rows, ""]) in PAGE.read_text(encoding="utf-8")


def test_help_orders_its_sections(rlplug: Callable[..., Result]) -> None:
    text = rlplug("run", "ppo", "--help").out
    titles = [line.rstrip(":") for line in text.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert titles == [title for title in sections.titles("ppo") if title != "Options of ppo"]
    order = "total-timesteps num-envs n-steps clip-range net.hidden learning-rate seed"
    places = [text.index(f"  --{name} ") for name in order.split()]
    assert places == sorted(places)
