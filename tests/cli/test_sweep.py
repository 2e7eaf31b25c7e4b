"""`run --seeds` and `sweep` do the missing runs once, and refuse invalid arguments before a run starts."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest

from rlplug_cli.sweep.display import Lines, display
from rlplug_cli.sweep.grid import alternatives, axis, seeds, tasks
from rlplug_cli.sweep.manifest import Sweep, Task, lock_directory, open_sweep
from rlplug_cli.sweep.runner import last_lines, write_comparison
from rlplug_cli.sweep.seeds import cost, with_defaults
from rlplug_cli.sweep.task import command_words
from rlplug_cli.sweep.task_pool import TaskPool
from rlplug_core.errors import UsageError
from rlplug_core.plugins.presets import preset
from tests.cli.histories import journals, write_run
from tests.waiting import record_waits

# MLflow's own imports warn.
pytestmark = pytest.mark.filterwarnings("ignore")

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "schemas" / "sweep.json").read_bytes())
TINY = ("--total-timesteps", "300", "--eval-every", "150", "--eval-episodes", "1", "--final-eval-episodes", "1")


def test_sweep_repeats_only_missing_runs(
    place: Path, rlplug: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLPLUG_DISABLED_PLUGINS", "mlflow")
    options = ("--log", "csv", "--log", "tensorboard", "--wrap", "flatten", "--wrap", "time-feature")
    words = ("sweep", "a2c", "CartPole-v1", "--gamma", "0.9,0.99", *options, *TINY, "--name", "swept", "--json")
    waits = record_waits(monkeypatch)
    first = rlplug(*words, "--seeds", "1")
    assert first.code == 0, first.err
    assert waits == [
        "trying the algorithms on the environments; training starts after that",
        "comparing the runs; their scores follow",
        "recording the end in MLflow",
    ]
    assert "2 of 2 finished" in first.err
    report = json.loads(first.out)
    jsonschema.validate(report, SCHEMA)
    recorded = json.loads((Path(report["runs"][0]["path"]) / "config.json").read_bytes())["options"]
    assert (recorded["log"], recorded["wrap"]) == (["csv", "tensorboard"], ["flatten", "time-feature"])
    before = journals(place / "runs" / "swept")
    assert set(before) == {run["name"] for run in report["runs"]}

    shutil.rmtree(place / "runs" / "swept" / "a2c-CartPole-v1-gamma=0.9-s1")
    (place / "runs" / "swept" / "a2c-CartPole-v1-gamma=0.9-s1").mkdir()  # like a run killed at its start
    again = rlplug(*words, "--seeds", "1")
    assert again.code == 0, again.err
    after = journals(place / "runs" / "swept")
    assert len(after) == 2
    finished = "a2c-CartPole-v1-gamma=0.99-s1"
    assert after[finished] == before[finished]
    assert "gamma=0.99" in (place / "runs" / "swept" / "compare.html").read_text()
    assert len(json.loads(rlplug("runs", "--json").out)) == 2


def test_seeds_have_one_parent_in_mlflow(with_store: str, place: Path, rlplug: Callable[..., Any]) -> None:
    from mlflow import MlflowClient

    result = rlplug(
        "run", "a2c", "CartPole-v1", "--seeds", "3,5", *TINY, "--set", "gamma=0.9", "--name", "pair", "--json"
    )
    assert result.code == 0, result.err
    jsonschema.validate(json.loads(result.out), SCHEMA)
    client = MlflowClient(with_store)
    (experiment,) = (each for each in client.search_experiments() if each.name == "CartPole-v1")
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    assert set(runs) == {"pair", "a2c-CartPole-v1-s3", "a2c-CartPole-v1-s5"}
    parent = runs.pop("pair")
    assert parent.info.status == "FINISHED"
    assert [file.path for file in client.list_artifacts(parent.info.run_id)] == ["compare.html"]
    for run in runs.values():
        assert run.info.status == "FINISHED"
        assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
        assert run.data.params["gamma"] == "0.9"


def test_page_of_removed_runs_is_removed(place: Path) -> None:
    """The last lines also work without a page."""
    write_run(place / "swept" / "one", [1.0, 2.0])
    report = write_comparison(place / "swept", complete=True)
    assert last_lines(place / "swept", report).splitlines()[-2:] == ["page     swept/compare.html", "runs     swept"]
    shutil.rmtree(place / "swept" / "one")
    report = write_comparison(place / "swept", complete=False)
    assert last_lines(place / "swept", report) == "runs     swept"
    assert list((place / "swept").iterdir()) == []


class FakeMachine:
    """Writes runs without training: runs in `bad` are killed at their first start, the others finish."""

    def __init__(self, directory: Path, *bad: str) -> None:
        self.directory = directory
        self.bad = list(bad)
        self.started = list[str]()

    def start(self, words: Any, log: Path, cores: int) -> FakeMachine:
        name = words[words.index("--name") + 1] if "--name" in words else Path(words[1]).name
        self.started.append(f"{words[0]} {name}")
        if name in self.bad:
            self.bad.remove(name)
            write_run(self.directory / name, [1.0], status="")
        else:
            shutil.rmtree(self.directory / name, ignore_errors=True)
            write_run(self.directory / name, [1.0, 2.0])
        return self

    def code(self) -> int:
        return 137

    def stop(self) -> None: ...

    def kill(self) -> None: ...


def test_killed_run_is_resumed_once_and_does_not_stop_others(place: Path) -> None:
    machine = FakeMachine(place, "a", "c", "c")
    pool = TaskPool(place, machine, size=8)
    write_run(place / "done", [3.0])
    for name in ("done", "a", "b", "c"):
        pool.add(Task(name, "ppo", "CartPole-v1", 1, ()), {"total_timesteps": 100}, 1)
    assert pool.entries["done"].progress.status == "finished"
    for name in ("a", "b"):
        pool.start(pool.entries[name])
    while pool.working:
        pool.poll()
    assert machine.started == ["run a", "run b", "resume a"]
    assert pool.entries["a"].progress.status == pool.entries["b"].progress.status == "finished"


def test_run_without_a_config_is_not_overwritten(place: Path) -> None:
    task = Task("partial", "ppo", "CartPole-v1", 1, ())
    (place / "partial").mkdir()
    (place / "partial" / "notes.txt").write_text("of the user")
    assert command_words(place, task)[0] == "run"  # killed before it wrote anything
    assert (place / "partial" / "notes.txt").exists()
    shutil.rmtree(place / "partial")
    write_run(place / "partial", [3.0])
    (place / "partial" / "config.json").unlink()
    with pytest.raises(
        UsageError, match=r"partial has a run.s records but no config\.json; restore config\.json, or delete"
    ):
        command_words(place, task)
    assert (place / "partial" / "journal.jsonl").exists()


def test_pool_starts_tasks_that_fit_the_cores(place: Path) -> None:
    pool = TaskPool(place, FakeMachine(place), size=4)
    small = pool.add(Task("small", "ppo", "CartPole-v1", 1, ()), {"total_timesteps": 100}, 2)
    assert pool.has_room(9)  # the pool is empty
    pool.start(small)
    assert pool.has_room(2)
    assert not pool.has_room(3)


@pytest.mark.parametrize(
    ("algorithm", "options", "cores"),
    [
        ("ppo", {}, 1),
        ("ppo", {"threads": 3}, 3),
        ("a3c", {"workers": 4}, 4),
        ("a3c", {"workers": 4, "inline": True}, 1),
        ("impala", {"actors": 3}, 4),
        ("impala", {"actors": 3, "inline": True}, 1),
    ],
)
def test_cost_of_a_run_is_threads_times_processes(algorithm: str, options: dict[str, Any], cores: int) -> None:
    values = {**preset(algorithm, "CartPole-v1"), **options}
    assert cost(algorithm, with_defaults(values)) == cores


def test_quiet_display_prints_nothing(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pool = TaskPool(place / "sweep", None, 1)  # type: ignore[arg-type]  # no task starts
    with display("sweep", pool, None, lambda: "none") as screen:
        screen.show([])
    assert capfd.readouterr() == ("", "")


def test_lines_show_the_end_of_a_run_before_the_next_start(place: Path) -> None:
    progress = SimpleNamespace(steps=0, status="finished", finals={}, last=1.0, seconds=1.0)
    first, second = (SimpleNamespace(task=SimpleNamespace(name=name), progress=progress) for name in ("s1", "s2"))
    stream = io.StringIO()
    pool = SimpleNamespace(working=[first], signal=0)
    lines = Lines("sweep", pool, stream, lambda: "")  # type: ignore[arg-type]
    lines.show([])
    pool.working = [second]
    lines.show([first])  # type: ignore[list-item]
    assert [tuple(line.split()[:2]) for line in stream.getvalue().splitlines()[1:]] == [
        ("s1:", "starts"),
        ("s1:", "finished"),
        ("s2:", "starts"),
    ]


def test_directory_is_locked_by_one_process(place: Path) -> None:
    with lock_directory(place / "here"), pytest.raises(UsageError, match=r"process \d+ is working on"):
        lock_directory(place / "here")
    lock_directory(place / "here").close()


def test_sweep_in_a_run_directory_is_refused(place: Path) -> None:
    run = write_run(place / "runs" / "mine", [1.0])
    with pytest.raises(UsageError, match="mine is a run; choose another --name"):
        lock_directory(run)
    assert not (run / "lock").exists()


def test_sweep_refuses_other_tasks_with_the_same_name(place: Path) -> None:
    first, second = (Task(name, "ppo", "CartPole-v1", 1, ("--gamma", "0.9")) for name in ("one", "two"))
    assert open_sweep(place, "sweep", [first]).tasks == (first,)
    assert open_sweep(place, "sweep", [second]).tasks == (first, second)
    with pytest.raises(UsageError, match="was started with other options"):
        open_sweep(place, "sweep", [Task("one", "ppo", "CartPole-v1", 1, ())])
    with pytest.raises(UsageError, match="belongs to 'rlplug sweep'"):
        open_sweep(place, "tune", [])


def test_more_seeds_need_the_same_options(place: Path) -> None:
    def task(seed: int, *words: str, algorithm: str = "ppo") -> Task:
        return Task(f"ppo-CartPole-v1-s{seed}", algorithm, "CartPole-v1", seed, words)

    first = [task(seed, "--total-timesteps", "300") for seed in (5, 6)]
    open_sweep(place, "seeds", first)
    for other in (task(1, "--total-timesteps", "400"), task(1, *first[0].words, algorithm="./mine.py:PPO")):
        with pytest.raises(
            UsageError, match=r"/ppo-CartPole-v1-s5 was started with other options; choose another --name"
        ):
            open_sweep(place, "seeds", [other])
    more = [task(1, *first[0].words), Task("ppo-CartPole-v1-gamma=0.9-s1", "ppo", "CartPole-v1", 1, ("--gamma", "0.9"))]
    assert open_sweep(place, "seeds", more).tasks == (*first, *more)


def test_changed_config_file_is_refused(place: Path) -> None:
    (place / "c.toml").write_text("gamma = 0.9")

    def task(seed: int) -> Task:
        return Task(f"a-s{seed}", "ppo", "CartPole-v1", seed, ("--config", "c.toml"))

    open_sweep(place, "seeds", [task(1)])
    assert len(open_sweep(place, "seeds", [task(1), task(2)]).tasks) == 2
    (place / "c.toml").write_text("gamma = 0.5")
    with pytest.raises(UsageError, match=r"^c\.toml has changed since .* was started; choose another --name$"):
        open_sweep(place, "seeds", [task(3)])


def test_old_sweep_with_two_configurations_continues(place: Path) -> None:
    mixed = tuple(Task(f"ppo-s{seed}", "ppo", "CartPole-v1", seed, ("--gamma", f"0.{seed}")) for seed in (1, 2))
    Sweep("seeds", "uid", 1.0, mixed).write(place)
    for task in mixed:
        assert open_sweep(place, "seeds", [task]).tasks == mixed


def test_seeds_are_a_number_or_a_list() -> None:
    assert seeds("3") == [1, 2, 3]
    assert seeds("2", first=7) == [7, 8]
    assert seeds("4,0,4") == [4, 0]
    assert seeds("9,") == [9]
    for wrong in ("0", "x", "", "-3", "1,-2"):
        with pytest.raises(UsageError, match="--seeds 5"):
            seeds(wrong)


def test_commas_separate_alternatives_outside_of_values() -> None:
    assert alternatives("1e-3, 3e-4", "float") == ["1e-3", "3e-4"]
    assert alternatives("cosine(1e-3,1e-5),1e-3", "float") == ["cosine(1e-3,1e-5)", "1e-3"]
    assert alternatives("[1, [2, 3]],[4]", "str") == ["[1, [2, 3]]", "[4]"]
    assert alternatives("{lanes = 3, sizes = [1, 2]},{lanes = 4}", "str") == [
        "{lanes = 3, sizes = [1, 2]}",
        "{lanes = 4}",
    ]
    assert alternatives('"a, [b",c', "str") == ['"a, [b"', "c"]
    assert alternatives("64,64;32", "ints") == ["64,64", "32"]
    memories = "mine:units=8, window=4,gru,./own.py:Own:size=1,heads=2"
    assert alternatives(memories, "target") == ["mine:units=8, window=4", "gru", "./own.py:Own:size=1,heads=2"]
    assert alternatives("linear(1e-3,0);1e-4", "float") == ["linear(1e-3,0)", "1e-4"]
    assert alternatives('{a = "1;2"};[3,4]; "5;6",7', "str") == ['{a = "1;2"}', "[3,4]", '"5;6",7']
    assert axis("gamma", ("--set", "gamma="), "0.9", "float") == [(("--set", "gamma=0.9"), "")]


def test_tasks_have_unique_names_and_are_ordered_by_seed() -> None:
    axes = {"ppo": [axis("net.hidden", ("--net.hidden",), "64,64;32", "ints")], "./a.py:PPO": []}
    grid = tasks(["ppo", "./a.py:PPO"], ["CartPole-v1"], axes, [1, 2])
    assert [task.name for task in grid[:3]] == [
        "ppo-CartPole-v1-net.hidden=64-64-s1",
        "ppo-CartPole-v1-net.hidden=32-s1",
        "ppo-CartPole-v1-s1",
    ]
    assert grid[0].words == ("--net.hidden", "64,64")
    same = tasks(["ppo", "./a.py:PPO"], ["CartPole-v1"], {"ppo": [], "./a.py:PPO": []}, [1])
    assert len({task.name for task in same}) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("sweep", "a2c", "CartPole-v1", "--set", "learning_rate=fast"),
            "expected a number or a schedule such as linear(a,b), got 'fast'",
        ),
        (("sweep", "a2c,ppo", "CartPole-v1", "--clip-range", "0.1"), "a2c has no option '--clip-range'"),
        (("sweep", "a2c", "CartPole-v1", "--set", "ppo:gamma=1"), "'ppo' is not one of a2c"),
        (("sweep", "a2c", "CartPole-v1", "--set", "gamma"), "write --set name=value"),
        (("sweep", "a2cc", "CartPole-v1"), "did you mean"),
        (("sweep", "a2c", "CartPole-v1", "--seed", "7"), "use --seeds, as in --seeds 7,8"),
        (("sweep", "a2c", "CartPole-v1", "--set", "seed=7,8"), "use --seeds, as in --seeds 7,8"),
        (("sweep", "a2c", "CartPole-v1", "--gamma"), "option '--gamma' needs a value"),
        (("sweep", "a2c", "CartPole-v1", "--print-config"), "option '--print-config' works only with 'rlplug run'"),
        (("sweep", "--gamma", "0.9", "a2c"), "put options after the environments"),
        (("sweep", "a2c", "CartPole-v1", "--name", "a/b"), "without"),
        (
            ("sweep", "a2c", "CartPole-v1", "--anneal-lr=no"),
            "option '--anneal-lr' takes no value; for alternatives write --set anneal_lr=yes,no",
        ),
        (
            ("sweep", "a2c", "CartPole-v1", "--learning-rate", "1e-3,1e-4", "--set", "learning_rate=3e-4"),
            "option 'learning_rate' of a2c is given twice; put its alternatives between commas",
        ),
        (
            ("sweep", "a2c", "CartPole-v1", "--net.hidden", "64", "--net.hidden=32"),
            "'net.hidden' of a2c is given twice",
        ),
        (("run", "a2c", "CartPole-v1", "--seeds", "none"), "write how many"),
        (
            ("sweep", "a2c,dqn", "CartPole-v1,Pendulum-v1"),
            "dqn on Pendulum-v1: DQN needs Discrete actions and Pendulum-v1 has",
        ),
        (("sweep", "a2c", "CartPole-v1", "--runner", "sync,decoupled"), "a2c on CartPole-v1: a2c does not run under"),
        (("sweep", "a2c", "CartPole-v1", "--wrap", "none;atari"), "a2c on CartPole-v1: "),
        (("run", "a2c", "CartPole-v1", "--jobs", "2"), "--jobs needs --seeds"),
        (("run", "a2c", "CartPole-v1", "--seeds", "3,4", "--seed", "2"), "use --seeds, as in --seeds 7,8"),
        (("run", "a2c", "CartPole-v1", "--init-parts", "policy"), "'--init-parts' needs --init RUN"),
        (("evaluate", "a-run", "--all-checkpoints", "--checkpoint", "best"), "and --checkpoint one; leave one out"),
        (("runs", "--status", "foo"), "'foo' is not one of 'running', 'finished'"),
        (("run", "dqn", "Pendulum-v1", "--seeds", "2"), "rlplug: DQN needs Discrete actions and Pendulum-v1 has Box"),
    ],
)
def test_invalid_arguments_print_one_sentence_and_start_no_run(
    place: Path, rlplug: Callable[..., Any], words: tuple[str, ...], message: str
) -> None:
    result = rlplug(*words)
    assert result.code == 2, result.err
    assert message in result.err
    assert result.err.count("\n") == 1
    assert not (place / "runs").exists()
