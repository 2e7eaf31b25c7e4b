"""`tune`: search spaces, samplers, pruners, trials after a kill, and exported options."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import jsonschema
import pytest

from rlplug_cli.commands.tune import _export
from rlplug_cli.render.config import as_config, as_preset
from rlplug_cli.sweep.grid import digest
from rlplug_cli.sweep.seeds import with_defaults
from rlplug_cli.sweep.task_pool import TaskPool
from rlplug_cli.tune import outcome as outcomes
from rlplug_cli.tune import study as studies
from rlplug_cli.tune.goal import Goal, parse_objectives
from rlplug_cli.tune.outcome import Outcome
from rlplug_cli.tune.search import Search
from rlplug_cli.tune.space import from_file, parse_range, ranges_of, suggest
from rlplug_cli.tune.strategies import PRUNERS, SAMPLERS, check_grid, pruner, sampler
from rlplug_core.config.options import Range, log, uniform
from rlplug_core.config.schema import Option
from rlplug_core.errors import BadConfig, MissingPackage, RlplugError, UsageError
from rlplug_core.runs.listing import records
from tests.cli.histories import journals, write_run
from tests.tables import for_each
from tests.waiting import record_waits

pytest.importorskip("optuna")
# Warnings of Optuna's database.
pytestmark = pytest.mark.filterwarnings("ignore")

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "schemas" / "tune.json").read_bytes())
#: The default sampler and pruner.
SAMPLER_AND_PRUNER: Any = (lambda trials: sampler("tpe", trials, {}), pruner("median", 100, 400))
TINY = ("--total-timesteps", "200", "--eval-every", "100", "--eval-episodes", "1", "--final-eval-episodes", "1")
RATE = Option("learning_rate", "float", 1e-3, "", minimum=0, open_minimum=True)
STEPS = Option("n_steps", "int", 32, "", minimum=1)
HIDDEN = Option("net.hidden", "ints", [64, 64], "")


@for_each(
    "option, text, range",
    [
        (RATE, "1e-5..1e-2:log", Range("log", (1e-5, 1e-2))),
        (RATE, "0.1..0.5", Range("uniform", (0.1, 0.5))),
        (STEPS, "16..256", Range("integer", (16, 256))),
        (STEPS, "16..256:log", Range("log", (16, 256))),
        (STEPS, "16..256:uniform", Range("integer", (16, 256))),
        (RATE, "0.1,0.2", Range("choice", ("0.1", "0.2"))),
        (HIDDEN, "64,64;32", Range("choice", ("64,64", "32"))),
        (RATE, "linear(1e-3,0);1e-4", Range("choice", ("linear(1e-3,0)", "1e-4"))),
        (RATE, "0.1", None),
        (HIDDEN, "64,64", None),
        (RATE, "linear(1e-3,0)", None),
    ],
)
def test_parse_range(option: Option, text: str, range: Range | None) -> None:
    assert parse_range(option, text, "ppo") == range


@pytest.mark.parametrize(("search", "kind"), [(uniform(1.0, 10.0), "integer"), (log(1e0, 1e1), "log")])
def test_integer_search_ranges_stay_integers(search: Range, kind: str) -> None:
    (search_range,) = ranges_of([replace(STEPS, search=search), RATE]).values()
    assert search_range == Range(kind, (1, 10))
    assert all(type(value) is int for value in search_range.values)


@pytest.mark.parametrize("text", ["0.5..0.1", "-1..1", "a..b", "0.1,x"])
def test_range_with_invalid_values_is_refused(text: str) -> None:
    with pytest.raises(BadConfig, match="learning_rate"):
        parse_range(RATE, text, "ppo")


@pytest.mark.parametrize("name", SAMPLERS)
def test_samplers_draw_from_the_ranges_and_repeat_with_a_seed(name: str) -> None:
    optuna = pytest.importorskip("optuna")
    if name == "cmaes" and find_spec("cmaes") is None:
        with pytest.raises(MissingPackage, match="--sampler cmaes needs the package cmaes: python -m pip"):
            sampler(name, 0, {})
        return
    space = {"n_steps": Range("integer", (1, 4)), "gamma": Range("choice", ("0.9", "0.99", "0.999"))}

    def draws(seed: int) -> list[dict[str, Any]]:
        study = optuna.create_study(sampler=sampler(name, seed, space))
        for number in range(12):
            trial = study.ask()
            suggest(trial, space)
            study.tell(trial, float(number))
        return [trial.params for trial in study.trials]

    samples = draws(3)
    assert samples == draws(3)
    assert all(1 <= params["n_steps"] <= 4 and params["gamma"] in space["gamma"].values for params in samples)
    assert len({tuple(params.items()) for params in samples}) > 3
    if name == "grid":
        assert len({tuple(params.items()) for params in samples}) == 12


def test_grid_needs_choices_and_limits_the_trials() -> None:
    space = {"n_steps": Range("integer", (1, 4)), "gamma": Range("choice", (0.9, (1, 2)))}
    check_grid("grid", space, 8)
    check_grid("tpe", space, 9)
    with pytest.raises(UsageError, match="the grid has 8 points, and --trials is 9; write --trials 8"):
        check_grid("grid", space, 9)
    with pytest.raises(UsageError, match="--sampler grid needs choices, and rate has a range"):
        check_grid("grid", {"rate": Range("log", (0.1, 0.2))}, 1)


@pytest.mark.parametrize("name", ["", *PRUNERS])
def test_pruners_stop_bad_trials_after_the_warmup(name: str) -> None:
    """Every second trial reports 0 and is pruned, but not before step 100, and not without a pruner."""
    optuna = pytest.importorskip("optuna")
    study = optuna.create_study(direction="maximize", pruner=pruner(name, 100, 1000), study_name="fixed")
    pruned = list[int]()
    for number in range(40):
        bad = number % 2 == 1
        trial = study.ask()
        for step in range(50, 1001, 50):
            trial.report(0.0 if bad else 10.0 + number, step)
            if trial.should_prune():
                assert bad or name in ("halving", "hyperband")
                pruned.append(step)
                break
        study.tell(trial, 0.0 if bad else 10.0)
    assert bool(pruned) == bool(name)
    assert all(step >= 100 for step in pruned)


class FakeMachine:
    """Writes runs without training: a trial's returns are its first option times each number of `shape`.

    Runs for which `leave` is true never end.
    """

    def __init__(
        self,
        directory: Path,
        leave: Callable[[int], bool] = lambda number: False,
        shape: Sequence[float] = (1.0,) * 4,
        speed: Callable[[float], int] = lambda value: 100,
    ) -> None:
        self.directory = directory
        self.leave = leave
        self.shape = shape
        self.speed = speed
        self.started = list[str]()
        self.stopped = list[str]()

    def start(self, words: Any, log: Path, cores: int) -> FakeMachine:
        name = words[words.index("--name") + 1] if words[0] == "run" else Path(words[1]).name
        self.started.append(name)
        self.ended = not self.leave(len(self.started))
        tasks = {task["name"]: task for task in json.loads((self.directory / "sweep.json").read_bytes())["tasks"]}
        value = float(tasks[name]["words"][-1].partition("=")[2])
        shutil.rmtree(self.directory / name, ignore_errors=True)
        returns = [value * part for part in self.shape]
        write_run(self.directory / name, returns, every=self.speed(value), status="finished" if self.ended else "")
        return self

    def code(self) -> int | None:
        return 0 if self.ended else None

    def stop(self) -> None:
        self.stopped.append(self.started[-1])
        self.ended = True

    def kill(self) -> None: ...


def make_goal(trials: int = 1, seeds: tuple[int, ...] = (1,)) -> Goal:
    values = with_defaults({"total_timesteps": 400})
    space = {"learning_rate": Range("uniform", (0.0, 1.0))}
    return Goal("ppo", "CartPole-v1", (RATE,), (), {}, values, space, seeds, trials, "last", 1)


def search(directory: Path, place: Any, trials: int, seeds: tuple[int, ...] = (1,), size: int = 1) -> Search:
    directory.mkdir(exist_ok=True)
    goal = make_goal(trials, seeds)
    study = studies.open_study(directory, goal.digest, None, *SAMPLER_AND_PRUNER)
    return Search(goal, study, TaskPool(directory, place, size))


def finish(search: Search) -> None:
    for _ in range(200):
        if search.done:
            return
        search.step()
    raise AssertionError(f"not done: {studies.summary(search.study)}")


def test_study_has_the_number_of_trials_and_the_best_one(place: Path) -> None:
    running = search(place / "study", FakeMachine(place / "study"), trials=4)
    finish(running)
    trials = studies.summary(running.study)
    assert [trial["state"] for trial in trials] == ["complete"] * 4
    assert [trial["value"] for trial in trials] == pytest.approx([trial["params"]["learning_rate"] for trial in trials])
    best = studies.best(running.study)
    assert best is not None
    assert best.value == max(trial["value"] for trial in trials)
    finish(search(place / "study", FakeMachine(place / "study"), trials=4))
    assert len(studies.summary(running.study)) == 4


def test_running_trial_continues_after_a_kill(place: Path) -> None:
    """The first process stops after the start of its second trial; the next continues this trial with its options."""
    directory = place / "study"
    first = search(directory, FakeMachine(directory, leave=lambda number: number == 2), trials=3)
    for _ in range(10):
        first.step()
    states = [trial["state"] for trial in studies.summary(first.study)]
    assert states == ["complete", "running"]
    params = studies.summary(first.study)[1]["params"]
    machine = FakeMachine(directory)
    second = search(directory, machine, trials=3)
    finish(second)
    trials = studies.summary(second.study)
    assert [trial["state"] for trial in trials] == ["complete"] * 3
    assert trials[1]["params"] == params
    assert machine.started == ["trial-0001-s1", "trial-0002-s1"]


def test_finished_run_of_an_unrecorded_trial_is_not_repeated(place: Path) -> None:
    directory = place / "study"
    first = search(directory, FakeMachine(directory), trials=1)
    first.step()  # the run has ended, but the study does not know it
    machine = FakeMachine(directory)
    finish(search(directory, machine, trials=1))
    assert machine.started == []


def test_value_of_a_trial_is_the_mean_of_its_seeds(place: Path) -> None:
    directory = place / "study"
    running = search(directory, FakeMachine(directory), trials=2, seeds=(4, 5), size=2)
    finish(running)
    assert sorted(path.parent.name for path in directory.glob("*/config.json")) == [
        f"trial-000{trial}-s{seed}" for trial in (0, 1) for seed in (4, 5)
    ]
    assert studies.summary(running.study)[0]["value"] == pytest.approx(
        studies.summary(running.study)[0]["params"]["learning_rate"]
    )


@pytest.mark.parametrize(
    "other",
    [
        {"algorithm": "a2c"}, {"env": "Acrobot-v1"}, {"fixed": {"gamma": 0.9}}, {"seeds": (2,)},
        {"space": {"learning_rate": Range("choice", ("0.1", "0.2"))}}, {"objective": "best"},
    ],
)  # fmt: skip
def test_study_continues_with_more_trials_but_not_with_another_search(place: Path, other: dict[str, Any]) -> None:
    first, more = make_goal(1), make_goal(2)
    studies.open_study(place, first.digest, None, *SAMPLER_AND_PRUNER)
    assert studies.open_study(place, more.digest, None, *SAMPLER_AND_PRUNER).user_attrs["searched"] == first.digest
    with pytest.raises(UsageError, match="was started with other options; choose another --name"):
        studies.open_study(place, replace(first, **other).digest, None, *SAMPLER_AND_PRUNER)


def test_study_of_an_older_version_continues(place: Path) -> None:
    import optuna

    optuna.create_study(storage=f"sqlite:///{place / studies.DATABASE}", study_name=place.name, direction="maximize")
    assert studies.open_study(place, "search", None, *SAMPLER_AND_PRUNER).user_attrs["searched"] == "search"
    with pytest.raises(UsageError, match="was started with other options"):
        studies.open_study(place, "another", None, *SAMPLER_AND_PRUNER)


def test_study_is_found_with_options_in_another_order(
    place: Path, rlplug: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """This includes studies of older versions, which named the directory after the typed words."""
    monkeypatch.setenv("RLPLUG_DISABLED_PLUGINS", "mlflow")
    fixed = (*TINY, "--ent-coef", "0.01")
    ranges = ("--learning-rate", "1e-4..1e-2:log", "--gamma", "0.9,0.99")
    first = rlplug("tune", "a2c", "CartPole-v1", "--seeds", "1,", "--trials", "1", *ranges, *fixed)
    assert first.code == 0, first.err
    (directory,) = (place / "runs").iterdir()
    runs = journals(directory)
    assert len(runs) == 1
    reordered = ("--set", "ent_coef=1e-2", *ranges[2:], *TINY[4:], *ranges[:2], *TINY[:4])
    for name in ((), ("--name", directory.name)):
        again = rlplug("tune", "a2c", "CartPole-v1", "--seeds", "1", *reordered, "--trials", "1", *name)
        assert again.code == 0, again.err
        assert list((place / "runs").iterdir()) == [directory]
    assert journals(directory) == runs

    space = {"gamma": Range("choice", ("0.9", "0.99")), "learning_rate": Range("log", (1e-4, 1e-2))}
    old_digest = digest(["a2c", "CartPole-v1", *fixed, *map(str, space.items()), "last", "1"])
    shutil.rmtree(directory)
    words = ("tune", "a2c", "CartPole-v1", "--seeds", "1", "--trials", "1")
    old_study = place / "runs" / f"tune-a2c-CartPole-v1-{old_digest}"
    assert rlplug(*words, *ranges, *fixed, "--name", old_study.name).code == 0
    runs = journals(old_study)
    for typed in (ranges + fixed, (*reordered, "--name", old_study.name)):
        open_optuna_study(old_study).set_user_attr("searched", old_digest)
        again = rlplug(*words, *typed)
        assert (again.code, again.err.count("other options")) == ((0, 0) if typed[0] != "--set" else (2, 1)), again.err
        assert (journals(old_study), list((place / "runs").iterdir())) == (runs, [old_study])
    other = rlplug("tune", "a2c", "CartPole-v1", "--seeds", "1,2", *ranges, *TINY, "--name", old_study.name)
    assert (other.code, "was started with other options" in other.err) == (2, True)


def open_optuna_study(directory: Path) -> Any:
    import optuna

    return optuna.load_study(study_name=directory.name, storage=f"sqlite:///{directory / studies.DATABASE}")


def test_trial_continues_with_options_in_another_order(place: Path) -> None:
    directory = place / "study"
    machine = FakeMachine(directory, leave=lambda number: True)
    directory.mkdir()
    for words in (("--gamma", "0.9", "--n-steps", "8"), ("--n-steps", "8", "--gamma", "0.9")):
        goal = replace(make_goal(), words=words, fixed={"gamma": 0.9, "n_steps": 8})
        study = studies.open_study(directory, goal.digest, None, *SAMPLER_AND_PRUNER)
        Search(goal, study, TaskPool(directory, machine, 1)).step()
    assert machine.started == ["trial-0000-s1"] * 2


def test_directory_that_a_url_cannot_contain_is_refused(place: Path) -> None:
    (place / "what?" / "study").mkdir(parents=True)
    with pytest.raises(RlplugError, match=r"no SQLite store can be at .*; rename the directory, or .* with --out"):
        studies.open_study(place / "what?" / "study", "search", None, *SAMPLER_AND_PRUNER)
    assert list(place.iterdir()) == [place / "what?"]


@pytest.mark.parametrize("shared", [False, True])
def test_moved_directory_continues_its_study(place: Path, shared: bool) -> None:
    """In a storage of many studies, one of the same name elsewhere is another's as long as that has its directory."""
    old = place / "old" / "one"
    new = place / "new" / "one"
    storage = f"sqlite:///{place}/all.db" if shared else None
    (old / "trial-0000-s1").mkdir(parents=True)
    first = studies.open_study(old, "search", storage, *SAMPLER_AND_PRUNER)
    first.ask()
    shutil.copytree(old, new)
    if shared:
        with pytest.raises(UsageError, match=r"in this storage belongs to .*old/one; choose another --name"):
            studies.open_study(new, "search", storage, *SAMPLER_AND_PRUNER)
        shutil.rmtree(old)
        with pytest.raises(UsageError, match=r"in this storage belongs to .*old/one"):
            studies.open_study(place / "empty" / "one", "search", storage, *SAMPLER_AND_PRUNER)
    moved = studies.open_study(new, "search", storage, *SAMPLER_AND_PRUNER)
    assert (studies.count(moved), moved.user_attrs["directory"]) == (1, str(new))


def test_trials_below_the_median_are_pruned(place: Path) -> None:
    directory = place / "study"
    finish(search(directory, FakeMachine(directory), trials=8))  # enough complete trials for a median
    machine = FakeMachine(directory, leave=lambda number: True)
    more = search(directory, machine, trials=10)
    more.study.enqueue_trial({"learning_rate": 0.0})  # its state is running until it is pruned
    for _ in range(3):
        more.step()
    assert studies.summary(more.study)[8]["state"] == "pruned"
    assert machine.stopped == ["trial-0008-s1"]


def test_trial_above_the_median_continues(place: Path) -> None:
    directory = place / "study"
    finish(search(directory, FakeMachine(directory), trials=8))
    more = search(directory, FakeMachine(directory, leave=lambda number: True), trials=10)
    more.study.enqueue_trial({"learning_rate": 1.0})
    for _ in range(2):
        more.step()
    assert studies.summary(more.study)[8]["state"] == "running"


@pytest.mark.parametrize(("objective", "factor"), [("last", 1.0), ("best", 3.0), ("mean", 1.5)])
def test_objectives_of_returns(objective: str, factor: float, place: Path) -> None:
    directory = place / "study"
    running = search(directory, FakeMachine(directory, shape=(0.0, 3.0, 2.0, 1.0)), trials=1)
    running.goal = replace(running.goal, objective=objective)
    finish(running)
    (trial,) = studies.summary(running.study)
    assert trial["value"] == pytest.approx(factor * trial["params"]["learning_rate"])


def test_several_objectives_give_a_pareto_front(place: Path) -> None:
    """The front has the trials that beat each other trial in score or in speed."""
    directory = place / "study"
    directory.mkdir()
    goal = replace(make_goal(8), objective=parse_objectives("score, steps_per_second"))
    study = studies.open_study(directory, goal.digest, None, *SAMPLER_AND_PRUNER, objectives=2)
    machine = FakeMachine(directory, speed=lambda value: 1 + int(7000 * value) % 1000)
    running = Search(goal, study, TaskPool(directory, machine, 1))
    finish(running)
    study_outcome = outcomes._outcome(directory, goal, running)
    rates = [trial["params"]["learning_rate"] for trial in study_outcome.trials]
    pairs = [(rate, float(machine.speed(rate))) for rate in rates]
    assert [tuple(trial["values"]) for trial in study_outcome.trials] == pairs
    best = [
        number
        for number, (score, speed) in enumerate(pairs)
        if all(score > pair[0] or speed > pair[1] for pair in pairs if pair != (score, speed))
    ]
    assert 1 < len(best) < 8
    assert study_outcome.front == tuple(best)
    assert study_outcome.best is not None
    assert study_outcome.best == max(study_outcome.trials, key=lambda trial: trial["values"][0])
    lines = study_outcome.text().splitlines()
    assert lines[0] == "Pareto front"
    assert lines[1].split() == ["TRIAL", "LAST", "STEPS_PER_SECOND", "learning_rate"]
    assert {line.split()[0] for line in lines[2 : lines.index("")]} == {str(number) for number in best}
    _export(study_outcome, "CartPole-v1", place / "best.toml", None)
    assert f"trial {study_outcome.best['number']} of study: last 0." in (place / "best.toml").read_text()


@pytest.mark.parametrize(("value", "shown"), [(0.04321, "0.0432"), (123.456, "123.5")])
def test_export_shows_three_figures_of_a_small_return(value: float, shown: str, tmp_path: Path) -> None:
    best = {"number": 3, "value": value, "params": {}}
    study_outcome = Outcome(tmp_path / "tuned", [best], best=best, options={}, importances={}, pictures=())
    _export(study_outcome, "CartPole-v1", tmp_path / "best.toml", None)
    assert f"trial 3 of tuned: return {shown}\n" in (tmp_path / "best.toml").read_text()


def test_exported_toml_has_the_same_options() -> None:
    options = {
        "learning_rate": 1e-05,
        "net.hidden": [64, 64],
        "anneal_lr": False,
        "wrap": [],
        "target_kl": None,
        "n": 3,
        "env.config": {"lanes": 3, "sizes": [1, 2]},
    }
    config = tomllib.loads(as_config(options, "x"))
    assert config == {"learning_rate": 1e-05, "net": {"hidden": [64, 64]}, "anneal_lr": False, "wrap": [],
                      "target_kl": "none", "n": 3, "env": {"config": {"lanes": 3, "sizes": [1, 2]}}}  # fmt: skip
    assert list(tomllib.loads(as_preset(options, "ALE/Pong-v5", "x"))) == ["ALE/Pong-v5"]


def test_run_takes_the_exported_options_of_a_study(
    place: Path, rlplug: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLPLUG_DISABLED_PLUGINS", "mlflow")
    Path("seeded.toml").write_text("seed = 7\n")  # written like --print-config does
    words = ("--learning-rate", "1e-5..1e-2:log", "--net.hidden", "8;16,16", *TINY, "--export", "best.toml")
    words += ("--config", "seeded.toml")
    waits = record_waits(monkeypatch)
    result = rlplug("tune", "a2c", "CartPole-v1", "--trials", "2", *words, "--name", "tuned", "--json")
    assert result.code == 0, result.err
    assert waits == [
        "trying a2c on CartPole-v1; training starts after that",
        "opening the study; training starts after that",
        "drawing the study's pictures; its best options follow",
        "recording the end in MLflow",
    ]
    report = json.loads(result.out)
    jsonschema.validate(report, SCHEMA)
    assert [trial["state"] for trial in report["trials"]] == ["complete", "complete"]
    assert (place / "runs" / "tuned" / "history.png").stat().st_size > 1000
    options = tomllib.loads(Path("best.toml").read_text())
    assert options["net"]["hidden"] in ([8], [16, 16])
    assert options["total_timesteps"] == 200
    assert "seed" not in options
    assert rlplug("run", "a2c", "CartPole-v1", "--config", "best.toml", "--name", "again").code == 0
    config = json.loads((place / "runs" / "again" / "config.json").read_bytes())
    assert config["options"]["learning_rate"] == report["best"]["params"]["learning_rate"]


def test_study_uses_the_typed_options(place: Path, rlplug: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLPLUG_DISABLED_PLUGINS", "mlflow")
    make_sampler = Mock(wraps=sampler)
    make_pruner = Mock(wraps=pruner)
    monkeypatch.setattr(outcomes, "sampler", make_sampler)
    monkeypatch.setattr(outcomes, "pruner", make_pruner)
    words = ("--objective", "mean,steps_per_second", "--no-prune", "--warmup", "0.5", "--sampler-seed", "3")
    words += ("--sampler", "random", "--gamma", "0.9,0.99", *TINY)
    words += ("--storage", f"sqlite:///{place}/all.db", "--export-preset", "preset.toml", "--name", "tuned", "--json")
    result = rlplug("tune", "a2c", "CartPole-v1", "--trials", "1", *words)
    assert result.code == 0, result.err
    make_pruner.assert_called_once_with("", 100, 200)
    assert {call.args[:2] for call in make_sampler.call_args_list} == {("random", 3)}
    assert (place / "all.db").exists()
    assert not (place / "runs" / "tuned" / "study.db").exists()
    report = json.loads(result.out)
    jsonschema.validate(report, SCHEMA)
    (trial,) = report["trials"]
    path = place / "runs" / "tuned" / "trial-0000-s1"
    returns = [record.data["eval/return_mean"] for record in records(path) if record.kind == "evaluation"]
    assert len(returns) == 2
    assert trial["value"] == pytest.approx(sum(returns) / 2)
    assert (len(trial["values"]), trial["values"][1] > 0, report["pareto_front"]) == (2, True, [0])
    preset = tomllib.loads(Path("preset.toml").read_text())["CartPole-v1"]
    assert preset["gamma"] == float(trial["params"]["gamma"])


def test_study_without_a_complete_trial_fails(
    place: Path, rlplug: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLPLUG_DISABLED_PLUGINS", "mlflow")
    Path("stuck.py").write_text(
        "from pathlib import Path\n\nimport gymnasium\n\n\nclass Stuck(gymnasium.Env):\n"
        "    observation_space = gymnasium.spaces.Box(-1, 1, (2,))\n"
        "    action_space = gymnasium.spaces.Discrete(2)\n\n"
        "    def reset(self, seed=None, options=None):\n        return self.observation_space.sample(), {}\n\n"
        "    def step(self, action):\n        if Path('runs/tuned').exists():\n"
        "            raise ValueError('the motor is stuck')\n"
        "        return self.observation_space.sample(), 1.0, True, False, {}\n"
    )
    words = ("--gamma", "0.9,0.99", *TINY, "--export", "best.toml", "--name", "tuned")
    result = rlplug("tune", "a2c", "./stuck.py:Stuck", "--trials", "1", *words)
    assert result.code == 1, result.err
    assert "no trial of tuned is complete (1 fail)" in result.err
    assert "the motor is stuck" in result.err
    assert "best.toml is not written" in result.err
    assert not Path("best.toml").exists()


def test_typed_values_are_fixed_in_all_trials(
    place: Path, rlplug: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A value overrides a range in a file; arguments of the environment work like those of `run`."""
    monkeypatch.setenv("RLPLUG_DISABLED_PLUGINS", "mlflow")
    (place / "space.toml").write_text('learning_rate = "1e-4..1e-3:log"\ngamma = "0.9..0.999"\nnet.hidden = [32, 16]\n')
    words = (
        "--env.max-episode-steps",
        "6",
        "--eval-env.max_episode_steps=7",
        "--space",
        "space.toml",
        "--gamma",
        "0.5",
    )
    words += (*TINY, "--trials", "1", "--name", "tuned", "--export", "best.toml", "--json")
    result = rlplug("tune", "a2c", "CartPole-v1", *words)
    assert result.code == 0, result.err
    (trial,) = json.loads(result.out)["trials"]
    options = json.loads((place / "runs" / "tuned" / "trial-0000-s1" / "config.json").read_bytes())["options"]
    assert list(trial["params"]) == ["learning_rate"]
    assert (options["gamma"], options["net.hidden"]) == (0.5, [32, 16])
    assert (options["env.max_episode_steps"], options["eval_env.max_episode_steps"]) == (6, 7)
    assert tomllib.loads(Path("best.toml").read_text())["env"] == {"max_episode_steps": 6}


def test_choices_in_a_file_can_be_wrappers_and_layers(tmp_path: Path) -> None:
    path = tmp_path / "space.toml"
    path.write_text('wrap = ["time-limit:steps=5,x=1", "none"]\nnet.hidden = [[64], [64, 64]]\n')
    ranges, fixed = from_file(path, [HIDDEN, Option("wrap", "repeated", [], "")], "ppo")
    assert ranges == {
        "wrap": Range("choice", ("time-limit:steps=5,x=1", "none")),
        "net.hidden": Range("choice", ("64", "64,64")),
    }
    assert fixed == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("ppo", "CartPole-v1", "--env.length"), "--env.length: write a value"),
        (("ppo", "CartPole-v1", "--env.lenght", "3"), "takes no argument 'lenght'"),
        (("ppo", "CartPole-v1", "--learning-rate", "1e-2..1e-5:log"), "is empty or has no logarithm"),
        (("ppo", "CartPole-v1", "--objective", "last,speed"), "'speed' is not an objective; choose from last, best"),
        (("ppo", "CartPole-v1", "--objective", "score,last"), "'last' is given twice"),
        (("ppo", "CartPole-v1", "--objective", "last,mean", "--pruner", "halving"), "leave out --prune and --pruner"),
        (("ppo", "CartPole-v1", "--objective", "steps_per_second", "--prune"), "leave out --prune and --pruner"),
        (("ppo", "CartPole-v1", "--objective", "last,mean", "--sampler", "cmaes"), "choose another sampler"),
        (("ppo", "CartPole-v1", "--lerning-rate", "1..2"), "did you mean '--learning-rate'"),
        (("ppo", "CartPole-v1", "--learning-rate"), "needs a value"),
        (("ppo", "CartPole-v1", "--space", "nowhere.toml"), "nowhere.toml cannot be read"),
        (("ppo", "CartPole-v1", "--gamma", "0.9,x"), "expected a number or a schedule such as linear(a,b), got 'x'"),
        (("ppo", "CartPole-v1", "--seeds", "0"), "write how many"),
        (("ppo", "CartPole-v1", "--seed", "7"), "use --seeds, as in --seeds 7,8"),
        (("ppo", "CartPole-v1", "--set", "seed=7"), "use --seeds, as in --seeds 7,8"),
        (("ppo", "CartPole-v1", "--seed", "7..9"), "use --seeds, as in --seeds 7,8"),
        (("ppo", "CartPole-v1", "--space", "seeded.toml"), "use --seeds, as in --seeds 7,8"),
        (
            ("ppo", "CartPole-v1", "--anneal-lr=no", "--gamma", "0.9..0.99"),
            "takes no value; for alternatives write --set",
        ),
        (("ppo", "CartPole-v1", "--gamma", "0.9..0.99", "--gamma", "0.5"), "'--gamma' is given a range and a value"),
        (
            ("ppo", "CartPole-v1", "--gamma", "0.9..0.99", "--set", "gamma=0.5"),
            "'--gamma' is given a range and a value",
        ),
        (("ppo", "CartPole-v1", "--print-config"), "option '--print-config' works only with 'rlplug run'"),
        (("dqn", "Pendulum-v1"), "DQN needs Discrete actions and Pendulum-v1 has Box"),
    ],
)
def test_invalid_arguments_print_one_sentence_and_start_no_run(
    place: Path, rlplug: Callable[..., Any], words: tuple[str, ...], message: str
) -> None:
    (place / "seeded.toml").write_text("seed = 7\n")
    result = rlplug("tune", *words)
    assert result.code == 2, result.err
    assert message in result.err
    assert result.err.count("\n") == 1
    assert not (place / "runs").exists()


def test_progress_of_a_study_counts_trials(place: Path) -> None:
    directory = place / "study"
    finish(search(directory, FakeMachine(directory), trials=4))
    assert search(directory, FakeMachine(directory), trials=4).share == 1.0
    more = search(directory, FakeMachine(directory), trials=8)
    assert more.share == 0.5


def test_option_fixed_in_a_file_is_not_searched(
    place: Path, rlplug: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    goals: list[Goal] = []

    def stop(directory: Path, goal: Goal, **others: object) -> None:
        goals.append(goal)
        raise UsageError("enough")

    monkeypatch.setattr("rlplug_cli.tune.outcome.run_study", stop)
    Path("c.toml").write_text("learning_rate = 0.001\n")
    free = rlplug("tune", "a2c", "CartPole-v1")
    fixed = rlplug("tune", "a2c", "CartPole-v1", "--config", "c.toml")
    assert (free.code, fixed.code) == (2, 2)
    assert {*goals[0].space} - {*goals[1].space} == {"learning_rate"}
    assert goals[1].fixed["learning_rate"] == 0.001
    assert "not searched, because its value is fixed: --learning-rate" in fixed.err
