"""Everyday commands: abbreviated totals, quiet runs, printed configurations, tables of runs, exports."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlplug_cli.commands.runs import KEYS, sort_runs
from rlplug_cli.render import tables
from rlplug_cli.render.tables import facts, fit, shorten, table
from rlplug_core import load, open_run, preset
from rlplug_core.config.numbers import figures, plain_number, whole_number
from rlplug_core.config.parse import convert
from rlplug_core.config.run_options import RunOptions
from rlplug_core.errors import BadConfig, UsageError
from rlplug_core.runs.api import train
from rlplug_core.runs.listing import Summary
from tests.cli.conftest import Result, RunWithJournal
from tests.tables import for_each

CHAIN = "rlplug_core.testing.envs:Chain"
SHORT = ("--total-timesteps", "60", "--eval-every", "30", "--eval-episodes", "2", "--final-eval-episodes", "2")


pytestmark = pytest.mark.usefixtures("no_mlflow")


@pytest.fixture(scope="module")
def runs_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs, one of them killed, and a directory that cannot be read."""
    out = tmp_path_factory.mktemp("made")
    options = {"total_timesteps": 60, "eval_every": 30, "eval_episodes": 2, "final_eval_episodes": 2}
    for name, algorithm, seed in (("one", "a2c", 1), ("two", "a2c", 2), ("three", "ppo", 1)):
        train(algorithm, CHAIN, {**options, "seed": seed}, out=out, name=name, hooks=False)
    journal = out / "two" / "journal.jsonl"
    lines = journal.read_text().splitlines()
    journal.write_text("\n".join(line for line in lines if '"kind":"end"' not in line) + "\n")
    (out / "two" / "checkpoints" / ".tmp-step-000000000045").mkdir()
    (out / "bad").mkdir()
    (out / "bad" / "config.json").write_text("{")
    return out


@pytest.fixture
def runs(runs_directory: Path, place: Path) -> Path:
    """Copy these runs into `runs/`."""
    return Path(shutil.copytree(runs_directory, place / "runs"))


@for_each(
    "text, number",
    [
        ("7", 7),
        ("1e6", 10**6),
        ("1M", 10**6),
        ("50k", 50_000),
        ("1_000", 1000),
        ("1.5k", 1500),
        ("2e3", 2000),
        ("4.1M", 4_100_000),
        ("16.1k", 16_100),
    ],
)
def test_integers_can_be_abbreviated(text: str, number: int) -> None:
    assert whole_number(text) == number


@for_each("text", ["1.5", "1e-3", "M", "many", "", "1e400", "1e999999999", "0x10", "1mk"])
def test_invalid_integers_are_refused(text: str) -> None:
    with pytest.raises((ValueError, OverflowError)):
        whole_number(text)


@for_each("value, shown", [
        (500, "500.0"), (-1234.56, "-1,234.6"), (9.31, "9.31"), (0.9553, "0.955"), (-0.6, "-0.6"), (0.0, "0.0"),
        (10.04, "10.0"), (1.0, "1.0"), (3e-5, "3e-05"), (float("nan"), "nan"),
    ])  # fmt: skip
def test_small_returns_have_three_figures(value: float, shown: str) -> None:
    assert figures(value) == shown


def test_decimals_of_returns_can_be_set(
    monkeypatch: pytest.MonkeyPatch, rlplug: Callable[..., Result], runs: Path
) -> None:
    monkeypatch.setenv("RLPLUG_DECIMALS", "4")
    assert [figures(value) for value in (1234.56789, 0.5, -3.0)] == ["1,234.5679", "0.5000", "-3.0000"]
    monkeypatch.setenv("RLPLUG_DECIMALS", "many")
    result = rlplug("runs")
    assert (result.code, "RLPLUG_DECIMALS is 'many'; give a number of decimals from 0 to 9" in result.err) == (2, True)


def test_numbers_of_other_libraries_are_converted() -> None:
    values = {"total_timesteps": 1e3, "seed": np.int64(3), "max_seconds": np.float32(0.5)}
    converted = convert(RunOptions, values, "run")
    assert (converted.total_timesteps, converted.seed, converted.max_seconds) == (1000, 3, 0.5)
    assert {type(converted.total_timesteps), type(converted.seed)} == {int}
    assert plain_number(True, "int") is True  # the check refuses it later
    for wrong in (float("inf"), float("nan")):
        with pytest.raises(BadConfig, match="expected a finite number"):
            convert(RunOptions, {"max_seconds": wrong}, "run")
    with pytest.raises(BadConfig, match="total_timesteps"):
        convert(RunOptions, {"total_timesteps": 1.5}, "run")


def test_run_without_updates_reports_it(rlplug: Callable[..., Result]) -> None:
    result = rlplug("run", "dqn", CHAIN, *SHORT, "--learning-starts", "1000", "--quiet", "--name", "one")
    assert result.out.startswith("no update was made: the run ended before its first batch")


def test_quiet_run_prints_only_its_result(rlplug: Callable[..., Result]) -> None:
    result = rlplug(
        "run", "a2c", CHAIN, *SHORT, "--total-timesteps", "0.06k", "--num-envs", "1", "--quiet", "--name", "one"
    )
    assert (result.code, result.err) == (0, "")
    assert [line.split()[0] for line in result.out.splitlines()] == ["final", "best", "run"]
    result = rlplug("resume", "one", "--total-timesteps", "1e2", "-q")
    assert result.code == 0
    assert "steps/s" not in result.out
    assert open_run("one").summary().steps == 100


def test_printed_configuration_has_origins_and_can_be_read(rlplug: Callable[..., Result]) -> None:
    result = rlplug("run", "ppo", "CartPole-v1", "--total-timesteps", "1M", "--set", "gamma=0.9", "--print-config")
    assert result.code == 0
    assert not Path("runs").exists()
    lines = {line.split(" = ")[0]: line.split("  # ")[1] for line in result.out.splitlines()}
    assert (lines["total_timesteps"], lines["gamma"], lines["num_envs"]) == ("typed", "--set", "preset")
    assert lines["threads"] == "default"
    values = tomllib.loads(result.out)
    assert (values["total_timesteps"], values["gamma"]) == (10**6, 0.9)
    Path("all.toml").write_text(result.out)
    again = rlplug("run", "ppo", "CartPole-v1", "--config", "all.toml", "--print-config")
    assert tomllib.loads(again.out) == values


def test_runs_are_listed_sorted_and_filtered(runs: Path, rlplug: Callable[..., Result]) -> None:
    result = rlplug("runs")
    assert result.code == 0
    assert {line.split()[0]: line.split()[1] for line in result.out.splitlines()[1:]} == {
        "one": "finished", "two": "killed", "three": "finished", "bad": "unreadable",
    }  # fmt: skip
    assert "runs/bad/config.json cannot be used: it is not JSON (Expecting property" in result.err
    names = lambda *words: [run["name"] for run in json.loads(rlplug("runs", "--json", *words).out)]  # noqa: E731
    assert names("--sort", "name") == ["bad", "one", "three", "two"]
    assert names("--sort", "name", "--reverse", "--limit", "1") == ["two"]
    assert names("--algorithm", "a*", "--status", "finished") == ["one"]
    assert names("--env", "*Chain", "--sort", "seed")[-1] == "two"
    group = open_run("one").config["group"]
    assert names("--group", group) == names("--group", group[:4]) == ["two", "one"]
    assert {*names("--sort", "final", "--algorithm", "*2*")} == {"one", "two"}
    assert "no such runs" in rlplug("runs", "--env", "Pong").out


@for_each("key", KEYS)
def test_runs_without_the_sort_key_come_last(key: str) -> None:
    runs = [
        Summary(
            name=f"{number}",
            path="",
            status="fkr"[number],
            created=number,
            algorithm=f"a{number}",
            env=f"e{number}",
            seed=number,
            steps=number,
            last=number,
            best=number,
            final_eval={"return_mean": number},
            seconds=number,
        )
        for number in (2, 0, 1)
    ]
    unread = replace(runs[0], **{"final_eval" if key == "final" else key: None})
    names = [KEYS[key](run) for run in sort_runs([unread, *runs], key, reverse=False)]
    assert names == [*sorted(KEYS[key](run) for run in runs), None]
    reverse_names = [KEYS[key](run) for run in sort_runs([unread, *runs], key, reverse=True)]
    assert reverse_names == [*sorted((KEYS[key](run) for run in runs), reverse=True), None]


def test_remove_and_reap_runs(runs: Path, rlplug: Callable[..., Result]) -> None:
    result = rlplug("runs", "reap")
    assert result.out.splitlines() == ["two: 1 half-written checkpoints deleted", "1 killed runs in runs/"]
    assert not (runs / "two" / "checkpoints" / ".tmp-step-000000000045").exists()
    assert rlplug("runs", "rm", "two", "--yes").out == "deleted runs/two\n"
    assert not (runs / "two").exists()
    assert "did you mean 'three'" in rlplug("runs", "rm", "thre", "--yes").err
    (runs / "link").symlink_to(runs / "one", target_is_directory=True)
    assert rlplug("runs", "rm", "link", "three", "three", "--yes").out == "deleted runs/link\ndeleted runs/three\n"
    assert (runs / "one" / "config.json").exists()


def test_evaluate_prints_json_and_all_checkpoints(runs: Path, rlplug: Callable[..., Result]) -> None:
    report: dict[str, Any] = json.loads(rlplug("evaluate", "one", "--episodes", "4", "--epsilon", "0.5", "--json").out)
    assert {"return_mean", "return_sem", "return_median", "return_iqm", "success_rate", "returns"} <= {*report}
    assert (len(report["returns"]), report["epsilon"]) == (4, 0.5)
    result = rlplug("evaluate", "one", "--episodes", "2", "--all-checkpoints")
    assert [line.split()[0] for line in result.out.splitlines()] == ["CHECKPOINT", *open_run("one").checkpoints]


def test_single_episode_has_no_standard_error(runs: Path, rlplug: Callable[..., Result]) -> None:
    report = json.loads(rlplug("evaluate", "one", "--episodes", "1", "--json").out)
    assert report["return_sem"] is None
    assert "standard error of the mean -" in rlplug("evaluate", "one", "--episodes", "1").out
    header, *lines = rlplug("evaluate", "one", "--episodes", "1", "--all-checkpoints").out.splitlines()
    column = header.split().index("SEM")
    assert lines
    assert {line.split()[column] for line in lines} == {"-"}


def test_export_command(runs: Path, rlplug: Callable[..., Result]) -> None:
    result = rlplug("export", "one", "--out", "policy", "--onnx", "--torchscript")
    assert result.code == 0
    plain = {"README.md", "policy.json", "policy.safetensors"}
    assert {path.name for path in Path("policy").iterdir()} == {*plain, "policy.onnx", "policy.pt"}
    assert rlplug("export", "one").code == 0
    assert {path.name for path in (runs / "one" / "export").iterdir()} == plain
    assert load("policy")(np.eye(5, dtype=np.float32)).shape == (5,)
    assert "policy exists already; name another place with --out" in rlplug("export", "one", "--out", "policy").err


def test_onnx_gives_the_same_actions(runs: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    for name in ("one", "three"):
        export = open_run(name).export(Path("x", name), onnx=True)
        session = onnxruntime.InferenceSession(str(export / "policy.onnx"))
        obs = np.random.default_rng(1).normal(size=(1000, 5)).astype(np.float32)
        np.testing.assert_array_equal(session.run(None, {"obs": obs})[0], load(name)(obs))


def test_reproduce_command(runs: Path, rlplug: Callable[..., Result]) -> None:
    result = rlplug("reproduce", "one", "--json")
    assert result.code == 0
    assert json.loads(result.out) == {"run": str(runs / "one-again"), "same": True, "differs": [], "surroundings": []}
    refused = rlplug("reproduce", "two")
    assert refused.code == 2
    assert "run two is killed; only a finished one" in refused.err


def test_tables_fit_the_width() -> None:
    lines = [("a-rather-long-name-of-a-run", "finished", "words " * 20), ("b", "killed", "few")]
    text = table(("RUN", "STATUS", "ABOUT"), lines, 60)
    assert max(map(len, text.splitlines())) <= 60
    assert text.count("words") == 20  # the last column is complete
    assert max(map(len, table(("RUN", "STATUS", "ABOUT"), lines, 40).splitlines())) <= 40
    assert max(map(len, table(("RUN", "STATUS", "ABOUT"), lines, 0).splitlines())) > 120  # in a pipe
    assert fit([10, 10], 30) == [10, 10]
    assert shorten("gridworld/Room-v0", 9) == "grid…m-v0"


def test_narrow_table_drops_columns_before_it_cuts_names() -> None:
    header = ("NAME", "SEED", "ENV", "RETURN")
    lines = [("a-long-name-s1", "1", "CartPole-v1", "500.0")]
    texts = [table(header, lines, width, ("SEED", "ENV")) for width in (0, 42, 36, 24)]
    left = ["NAME SEED ENV RETURN", "NAME SEED ENV RETURN", "NAME ENV RETURN", "NAME RETURN"]
    assert [" ".join(text.splitlines()[0].split()) for text in texts] == left
    assert all("a-long-name-s1" in text for text in texts)


def test_narrow_table_wraps_names_and_keeps_numbers() -> None:
    header = ("ENV", "FINAL RETURN OF", "SEEDS", "MEAN", "IQM [95 %]")
    lines = [("CartPole-v1", "ppo learning_rate=0.001", "5", "206.0", "206.0 [150.1, 300.2]")]
    fit = lambda width: table(header, lines, width, ("ENV", "MEAN"), ("ENV", "FINAL RETURN OF"))  # noqa: E731
    assert fit(70).splitlines()[1:] == [
        "CartPole-v1  ppo                    5      206.0  206.0 [150.1, 300.2]",
        "             learning_rate=0.001",
    ]
    assert fit(62).splitlines()[0].split()[0] == "FINAL"
    assert fit(39).splitlines() == [
        "ENV: CartPole-v1", "FINAL RETURN OF: ppo", "  learning_rate=0.001", "SEEDS: 5", "MEAN: 206.0",
        "IQM [95 %]: 206.0 [150.1, 300.2]",
    ]  # fmt: skip
    for width in range(32, 90):
        text = fit(width)
        assert max(map(len, text.splitlines())) <= width
        assert "…" not in text
        assert "206.0 [150.1, 300.2]" in text


def test_narrow_list_of_runs_keeps_numbers(
    make_run: Callable[..., RunWithJournal], rlplug: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run("ppo-CartPole-v1-s1", total_timesteps=2_000_000).end()
    monkeypatch.setattr(tables, "terminal_width", lambda: 40)
    lines = rlplug("runs").out.splitlines()
    assert lines[0].split() == ["RUN", "STATUS", "SEED"]
    assert max(map(len, lines)) <= 40
    assert "…" not in "".join(lines)


def test_facts_wrap_below_their_value(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [("sees", "Box(4)"), ("algorithms", "a2c, a3c, acer, acktr, apex, appo, c51")]
    assert facts(lines, 12) == "sees        Box(4)\nalgorithms  a2c, a3c, acer, acktr, apex, appo, c51"
    monkeypatch.setattr(tables, "terminal_width", lambda: 36)
    assert facts(lines, 12).splitlines()[1:] == [
        "algorithms  a2c, a3c, acer, acktr,",
        "            apex, appo, c51",
    ]


def test_invalid_environment_name_is_reported(rlplug: Callable[..., Result]) -> None:
    result = rlplug("run", "ppo", "./own.py:Own:kind=nan")
    assert result.code == 2
    assert "'./own.py:Own' is not a module's name; write ./file.py:Name or module:Name-v0" in result.err


def test_directory_of_runs_lists_its_runs(
    make_run: Callable[..., RunWithJournal], rlplug: Callable[..., Result], place: Path
) -> None:
    for seed in range(1, 6):
        make_run(f"five/ppo-s{seed}").end()
    (place / "runs" / "five" / "sweep.json").touch()
    (place / "runs" / "empty").mkdir()
    names = "ppo-s1, ppo-s2, ppo-s3 and 2 more; name one of them, as in runs/five/ppo-s1"
    for command in ("evaluate", "play", "resume"):
        for word in ("five", "runs/five"):
            result = rlplug(command, word)
            assert result.code == 2
            assert result.err == (
                f"rlplug: runs/five is not a run but holds 5 runs: {names} ('rlplug compare runs/five' sums up all)\n"
            )
    assert "runs is not a run but holds 5 runs: five/ppo-s1, five/ppo-s2" in rlplug("evaluate", "runs").err
    assert "no run at empty ('rlplug runs' lists" in rlplug("evaluate", "empty").err
    with pytest.raises(UsageError, match="five is not a run but holds 5 runs"):
        load(place / "runs" / "five")


def test_preset_trains(place: Path) -> None:
    ppo = preset("ppo", "CartPole-v1", {"num_envs": 2})
    assert (ppo.options["n_steps"], ppo.options["num_envs"]) == (32, 2)
    assert (ppo.origins["n_steps"], ppo.origins["num_envs"]) == ("preset", "option")
    few = {"total_timesteps": 100, "net": {"hidden": [8]}, "eval_episodes": 1, "final_eval_episodes": 1}
    run = ppo.with_options(few).train(name="short", hooks=False)
    typed = train("ppo", "CartPole-v1", {"num_envs": 2, **few}, name="typed", hooks=False)
    mine, theirs = (json.loads((each.path / "config.json").read_bytes()) for each in (run, typed))
    assert mine["options"] == theirs["options"]
    assert mine["origins"] == theirs["origins"]
    assert mine["options"]["net.hidden"] == [8]
    assert preset("ppo", "Pendulum-v1").with_options({"gamma": 0.5}).options["gamma"] == 0.5
