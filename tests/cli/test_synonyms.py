"""Names that other libraries give to options are understood wherever an option is named, and stand on one page."""

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
from tests.cli.conftest import Done

PAGE = Path(__file__).parents[2] / "docs" / "words.md"
SHOWN = ("stable-baselines3", "cleanrl", "rllib", "tianshou")


def test_a_foreign_name_is_answered_with_ours_wherever_it_is_given(rlplug: Callable[..., Done], place: Path) -> None:
    (place / "mine.toml").write_text("n_envs = 8\n", encoding="utf-8")
    for words in (("--n-envs", "8"), ("--set", "n_envs=8"), ("--config", "mine.toml")):
        done = rlplug("run", "ppo", "CartPole-v1", *words)
        wanted = "--num-envs" if words[0] == "--n-envs" else "num_envs"
        assert done.code == 2
        assert f"; did you mean '{wanted}'? (" in done.err, words
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
def test_the_meaning_of_a_name_depends_on_the_options_there_are(word: str, known: tuple[str, ...], answer: str) -> None:
    assert nearest(word, known) == f"; did you mean {answer}?"
    assert nearest(word, ()) == ""


def test_every_line_is_of_an_option_that_exists() -> None:
    ours = {option.name for option in schema(RunOptions)}
    ours |= {option.name for name in KNOWN["algorithms"] for option in options_of("algorithms", name)}
    assert set(table()) - ours == set()


def test_no_name_means_an_option_that_has_it() -> None:
    for option, names in table().items():
        assert option not in names["others"]


def row(option: str, *cells: list[str]) -> str:
    """A line of the page's table."""
    return f"| `{option}` | {' | '.join(' '.join(f'`{name}`' for name in names) for names in cells)} |"


def test_the_page_shows_the_names_of_the_four_libraries() -> None:
    shown = {option: [names[library] for library in SHOWN] for option, names in table().items()}
    rows = [row(option, *cells) for option, cells in shown.items() if any(cells)]
    text = PAGE.read_text(encoding="utf-8")
    assert "\n".join([*rows, ""]) in text, "\n".join(rows)


# Words for what is not an option here.

#: What people who come from Stable-Baselines3 and CleanRL type.
TYPED = (
    "--frame-stack", "--tensorboard-log", "--track", "--capture-video", "--callback", "--verbose", "--policy",
    "--use-sde", "--env-kwargs", "--env-id", "--save-model", "--torch-deterministic", "--cuda",
)  # fmt: skip


def test_a_word_for_what_is_no_option_is_answered_with_what_to_type(rlplug: Callable[..., Done], place: Path) -> None:
    for word in TYPED:
        done = rlplug("run", "ppo", "CartPole-v1", word, "4")
        assert done.code == 2
        assert f"no such option '{word}'; {instead()[word[2:].replace('-', '_')]} ('rlplug run ppo" in done.err
    for command in ("sweep", "tune"):
        assert f"no option '--track'; {instead()['track']}\n" in rlplug(command, "ppo", "CartPole-v1", "--track").err
    (place / "mine.toml").write_text("verbose = 1\n", encoding="utf-8")
    assert "no option 'verbose'; leave it out" in rlplug("run", "ppo", "CartPole-v1", "--config", "mine.toml").err
    with pytest.raises(BadConfig, match=r"no option 'cuda'; write --device cuda"):
        rlplug_core.train("ppo", "CartPole-v1", {"cuda": True})


def test_no_such_word_is_an_option() -> None:
    ours = {option.name for option in schema(RunOptions)}
    ours |= {option.name for name in KNOWN["algorithms"] for option in options_of("algorithms", name)}
    assert not ours & set(instead())


def flags(command: click.Command) -> set[str]:
    return {
        flag for one in command.params if isinstance(one, click.Option) for flag in (*one.opts, *one.secondary_opts)
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
        assert option in {one.name for one in options_of("wrappers", name)}
    assert set(re.findall(r"--log (\w+)", clause)) <= set(plugins.ids("loggers"))


def test_the_page_shows_these_words_too() -> None:
    lines = [line.partition(",") for line in INSTEAD.read_text(encoding="utf-8").splitlines()[1:]]
    rows = [f"| {' '.join(f'`{word}`' for word in words.split())} | {clause} |" for words, _, clause in lines]
    assert "\n".join([*rows, ""]) in PAGE.read_text(encoding="utf-8")


def test_the_help_begins_with_how_long_and_ends_with_every_run(rlplug: Callable[..., Done]) -> None:
    said = rlplug("run", "ppo", "--help").out
    titles = [line.rstrip(":") for line in said.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert titles == [title for title in sections.titles("ppo") if title != "Options of ppo"]
    order = [
        "--total-timesteps",
        "--num-envs",
        "--n-steps",
        "--clip-range",
        "--net.hidden",
        "--learning-rate",
        "--seed",
    ]
    places = [said.index(f"  {flag} ") for flag in order]
    assert places == sorted(places)
