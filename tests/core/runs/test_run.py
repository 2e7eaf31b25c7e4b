"""Runs from a user's view: train, evaluate, load and resume, the files of a run, and errors."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rlplug_core
from rlplug_core import plugins
from rlplug_core.errors import BadCheckpoint, BadConfig, Interrupted, PluginError, RlplugError, UsageError
from rlplug_core.fast.numba_loops import loop_library
from rlplug_core.runs import run as run_module
from rlplug_core.runs.api import Run, load, resume, train
from rlplug_core.runs.checkpoint import Checkpoints, read, seal_manifest
from rlplug_core.runs.directory import RunDirectory
from rlplug_core.runs.journal import Record
from rlplug_core.runs.journal import read as read_journal
from tests.cli.warm import Fork
from tests.conftest import Warm
from tests.core.fakes import ENVS, HERE, TINY, TINY_EPOCHS, TINY_Q, assert_same, countdown, make_runner
from tests.typing.inherits_nothing import Bandit
from tests.waiting import without_notices

CHAIN = f"{ENVS}:Chain"
OPTIONS: dict[str, Any] = {
    "seed": 3, "num_envs": 2, "total_timesteps": 200, "runner": "sync", "eval_episodes": 5, "eval_every": 50,
    "log_every": 20, "checkpoint_every": 40, "final_eval_episodes": 10,
}  # fmt: skip


def train_run(
    out: Path, name: str = "run", algorithm: str = TINY, env: str = CHAIN, watch: Any = None, **options: Any
) -> Run:
    return train(algorithm, env, {**OPTIONS, **options}, out=out, name=name, hooks=False, watch=watch)


def interrupt_run(out: Path, update: int, name: str = "run", **options: Any) -> Run:
    """Train a run that a signal stops at its n-th update."""
    countdown[0] = update
    algorithm = plugins.algorithm(options.get("algorithm", TINY))
    module: Any = sys.modules[algorithm.__module__]
    module.countdown[0] = update  # a path makes another module of the same file
    with pytest.raises(Interrupted) as caught:
        train_run(out, name, **options)
    countdown[0] = module.countdown[0] = 0  # the unused one must not stop a later test
    assert caught.value.exit_code == 130
    return Run(RunDirectory.open(out / name))


def records(run: Run, *kinds: str) -> list[Record]:
    return [record for record in read_journal(run.journal) if not kinds or record.kind in kinds]


def load_components(run: Run, kind: str = "final") -> Mapping[str, Any]:
    components: Mapping[str, Any] = Checkpoints(run.directory.checkpoints_path).load([kind])[1]
    return components


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train_run(tmp_path_factory.mktemp("runs"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_gpu_run_loads_and_resumes_without_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = train_run(tmp_path, total_timesteps=80)
    config = json.loads((run.path / "config.json").read_text())
    config["options"]["device"] = "cuda:1"
    (run.path / "config.json").write_text(json.dumps(config))
    assert load(run.path, trust=True).observation_space.shape
    assert "the run has device cuda:1, and torch finds no GPU here" in capsys.readouterr().err
    assert resume(run.path, total_timesteps=120, hooks=False, trust=True).status == "finished"


class Hooks:
    """Hooks of the caller: note the reasons of checkpoints and how runs end."""

    def __init__(self) -> None:
        self.events: list[str] = []

    @rlplug_core.hookimpl
    def rlplug_run_checkpoint(self, reason: str) -> None:
        self.events.append(reason)

    @rlplug_core.hookimpl
    def rlplug_run_end(self, status: str) -> None:
        self.events.append(status)


@pytest.mark.usefixtures("no_mlflow")
def test_calls_hooks_of_objects(tmp_path: Path) -> None:
    first, second = Hooks(), Hooks()
    run = train(TINY, CHAIN, OPTIONS, out=tmp_path, hooks=[first])
    assert {"best", "periodic"} < set(first.events)
    assert first.events[-1] == "finished"
    resume(run, total_timesteps=240, hooks=[second])
    assert second.events[-2:] == ["final", "finished"]
    with pytest.raises(UsageError, match="implements no hook"):
        train(TINY, CHAIN, OPTIONS, out=tmp_path / "none", hooks=[print])
    assert not (tmp_path / "none").exists()


def test_resume_takes_whole_numbers_of_any_type(tmp_path: Path) -> None:
    run = train_run(tmp_path)
    for value, total in ((240.0, 240), (np.int64(280), 280), (np.float64(320), 320)):
        resume(run, total_timesteps=value, hooks=False)  # type: ignore[arg-type]  # as notebooks give them
        assert (run.status, run.summary().steps, run.summary().total_timesteps) == ("finished", total, total)
    before = run.journal.read_bytes()
    for wrong in (True, 400.5, "400", 0, -1, 10**20, [400]):
        with pytest.raises(UsageError, match="give a whole number of env steps, 1 or more"):
            resume(run, total_timesteps=wrong, hooks=False)  # type: ignore[arg-type]
    assert run.journal.read_bytes() == before


@pytest.mark.parametrize(("option", "value"), [("seed", 2**63), ("total_timesteps", 10**20)])
def test_numbers_beyond_int64_raise(option: str, value: int, tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match=f"{option}.* 9223372036854775807"):
        train_run(tmp_path, **{option: value})
    assert not (tmp_path / "run").exists()


def test_summary_ignores_superseded_steps(tmp_path: Path) -> None:
    run = train_run(tmp_path)
    last = records(run)[-1]
    failed = {
        "seq": last.seq + 1,
        "time": last.time,
        "kind": "error",
        "step": 900,
        "data": {"type": "E", "message": "m"},
    }
    with run.journal.open("a") as file:
        file.write(json.dumps(failed) + "\n")
    assert run.summary().steps == 900  # until the run is resumed
    assert resume(run, total_timesteps=240, hooks=False).summary().steps == 240


def test_invalid_algorithms_and_names_raise(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="algorithm is None; give an id such as 'ppo'"):
        train(None, CHAIN, OPTIONS, out=tmp_path)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="a name must consist of printable characters"):
        train_run(tmp_path, name=5)  # type: ignore[arg-type]
    for name in ("..", "a/b", str(tmp_path / "elsewhere")):
        with pytest.raises(UsageError, match="this is a path; give its directory with --out"):
            train_run(tmp_path, name=name)


def test_takes_paths_and_single_strings(tmp_path: Path) -> None:
    """An option that takes several strings takes one string as one item, not as a list of letters."""
    first = train_run(tmp_path)
    second = train_run(tmp_path, "second", init=first.path, init_parts="policy")
    assert second.config["options"]["init_parts"] == ["policy"]
    assert second.config["options"]["init"].startswith(str(first.path))
    with pytest.raises(UsageError, match="no wrapper 'absent' is installed"):
        first.evaluate(episodes=1, wrap="absent")


# The files of a run.


def test_journal_has_records_in_order(finished_run: Run) -> None:
    kinds = [record.kind for record in records(finished_run)]
    assert kinds[0] == "start"
    assert kinds[-2:] == ["final_eval", "end"]
    assert [record.seq for record in records(finished_run)] == list(range(1, len(kinds) + 1))
    assert [record.step for record in records(finished_run, "metrics")] == list(range(20, 201, 20))
    assert [record.step for record in records(finished_run, "evaluation")] == [50, 100, 150, 200]
    start, final_eval, end = (records(finished_run, kind)[0].data for kind in ("start", "final_eval", "end"))
    assert start["options"]["n_steps"] == 4
    assert not start["resumed"]
    assert final_eval["episodes"] == 10
    assert (final_eval["checkpoint"][:4], final_eval["last_checkpoint"]) == ("best", "final-000000000200")
    assert final_eval["last_return_min"] <= final_eval["last_return_mean"] <= final_eval["last_return_max"]
    assert final_eval["return_min"] <= final_eval["return_mean"] <= final_eval["return_max"]
    assert end == {"status": "finished"}
    assert finished_run.status == "finished"
    assert not (finished_run.path / "error.txt").exists()


def test_config_holds_all_options(finished_run: Run) -> None:
    config = finished_run.config
    assert config["options"] == {**config["options"], **OPTIONS}
    assert config["options"]["net.hidden"] == [8]
    assert config["origins"]["seed"] == "option"
    assert config["origins"]["learning_rate"] == "default"
    assert (config["algorithm"], config["env"], config["name"]) == (TINY, CHAIN, "run")
    assert set(config["environment"]["versions"]) == {"python", "rlplug-core", "torch", "numpy", "gymnasium"}
    assert config["environment"]["threads"] == 1


def test_manifest_describes_checkpoint(finished_run: Run) -> None:
    checkpoints = Checkpoints(finished_run.directory.checkpoints_path).kept()
    assert sorted((saved.kind, saved.step) for saved in checkpoints if saved.kind != "best") == [
        ("final", 200), ("step", 80), ("step", 120), ("step", 160),
    ]  # fmt: skip
    manifest = read(next(saved.path for saved in checkpoints if saved.kind == "final"))[1]
    assert manifest["components"] == ["actor", "buffer", "clock", "events", "globals", "learner", "meter"]
    assert (manifest["exact"], manifest["inexact"], manifest["reason"]) == (True, "", "final")


def test_repeated_run_is_equal(finished_run: Run, tmp_path: Path) -> None:
    assert_same(without_wall(load_components(finished_run)), without_wall(load_components(train_run(tmp_path))))


def without_wall(components: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**components, "events": {**components["events"], "wall": 0}}


@pytest.mark.parametrize("env", [CHAIN, f"{HERE}:GlobalRandomness"])
@pytest.mark.parametrize("algorithm", [TINY, TINY_Q])
def test_evaluation_does_not_change_weights(tmp_path: Path, env: str, algorithm: str) -> None:
    """Also if the environment draws from the global generators, which evaluation shares."""
    often = load_components(train_run(tmp_path, "often", algorithm, env, eval_every=6))
    never = load_components(train_run(tmp_path, "never", algorithm, env, eval_every=10**9, final_eval_episodes=0))
    for name in ("learner", "buffer", "actor", "clock", "globals"):
        assert_same(often[name], never[name])


def test_logging_and_saving_do_not_change_weights(finished_run: Run, tmp_path: Path) -> None:
    other = load_components(train_run(tmp_path, log_every=3, checkpoint_every=7, keep_checkpoints=1))
    for name in ("learner", "buffer", "actor"):
        assert_same(load_components(finished_run)[name], other[name])


# Evaluate and load.


def test_evaluation_repeats_with_its_seed(finished_run: Run) -> None:
    final_eval = records(finished_run, "final_eval")[0].data
    repeated = finished_run.evaluate(10)
    assert (repeated.mean, repeated.std) == (final_eval["return_mean"], final_eval["return_std"])
    last = finished_run.evaluate(10, checkpoint="final")
    assert (last.mean, last.std) == (final_eval["last_return_mean"], final_eval["last_return_std"])
    assert finished_run.evaluate(20, seed=5) == finished_run.evaluate(20, seed=5)
    for checkpoint in ("final", "latest"):
        assert finished_run.evaluate(3, checkpoint=checkpoint).episodes == 3
    with pytest.raises(UsageError, match=r"no checkpoint 'worst' \(there is best, final, latest, "):
        finished_run.evaluate(3, checkpoint="worst")


def test_checkpoints_of_one_step_are_evaluated_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated: list[str] = []
    real = run_module.evaluate_checkpoint

    def spy(plan: Any, directory: Any, episodes: int, seed: Any, conditions: Any) -> Any:
        evaluated.append(conditions.checkpoint)
        return real(plan, directory, episodes, seed, conditions)

    monkeypatch.setattr(run_module, "evaluate_checkpoint", spy)
    run = train_run(tmp_path, eval_every=200)
    found = run.evaluate_all(2, seed=1)
    checkpoints = Checkpoints(run.directory.checkpoints_path).kept()
    assert list(found) == sorted({saved.step for saved in checkpoints})
    assert len(evaluated) == len(found) == len(checkpoints) - 1
    assert evaluated[-1] == f"final-{200:012d}"


def test_evaluates_weights_that_change_at_the_end(tmp_path: Path) -> None:
    """The weights of the last evaluation were the best, at the same step."""
    run = train_run(tmp_path, algorithm=f"{HERE}:NegatesPolicy", eval_every=200)
    final_eval = records(run, "final_eval")[0].data
    assert (final_eval["checkpoint"], final_eval["last_checkpoint"]) == (f"best-{200:012d}", f"final-{200:012d}")
    for name, prefix in (("best", ""), ("final", "last_")):
        repeated = run.evaluate(10, checkpoint=name)
        assert (repeated.mean, repeated.std) == (final_eval[f"{prefix}return_mean"], final_eval[f"{prefix}return_std"])
    assert final_eval["return_mean"] != final_eval["last_return_mean"]


def test_policy_takes_one_observation_or_many(finished_run: Run) -> None:
    policy = load(finished_run, "final")
    obs = np.eye(5, dtype=np.float32)
    many = policy(obs)
    assert many.shape == (5,)
    assert [int(policy(one)) for one in obs] == many.tolist()
    assert np.shape(policy(obs[0])) == ()
    learner = make_runner(TINY, CHAIN, **OPTIONS).learner
    learner.load_state_dict(dict(load_components(finished_run)["learner"]))
    assert many.tolist() == learner.policy(torch.from_numpy(obs)).argmax(-1).tolist()
    assert load(finished_run.path)(obs[0]) in (0, 1)
    assert finished_run.policy("latest")(obs).tolist() == many.tolist()


def test_policy_takes_dictionaries_and_returns_box_actions(tmp_path: Path) -> None:
    policy = load(train_run(tmp_path, "masked", env=f"{ENVS}:Masked"))
    mask = np.array([[0, 1, 1], [1, 0, 1]], np.int8)
    actions = policy({"obs": mask.astype(np.float32), "action_mask": mask})
    assert mask[[0, 1], actions].all()
    assert policy({"obs": mask[0].astype(np.float32), "action_mask": mask[0]}) == actions[0]
    box = load(train_run(tmp_path, "box", env=f"{ENVS}:Continuous"))
    assert box(np.zeros(1, np.float32)).shape == (1,)
    assert box(np.zeros((4, 1), np.float32)).shape == (4, 1)


def test_package_exports_train_resume_and_load(finished_run: Run) -> None:
    assert rlplug_core.load(finished_run).reset() is None
    assert {rlplug_core.train, rlplug_core.resume} == {train, resume}


def test_trains_a_class(tmp_path: Path) -> None:
    from tests.core.fakes import Tiny

    run = train(Tiny, CHAIN, {**OPTIONS, "total_timesteps": 20}, out=tmp_path, hooks=False)
    assert run.config["algorithm"] == "tests.core.fakes:Tiny"
    assert run.name.startswith("tiny-Chain-s3-")


# Resume.

CASES: dict[str, dict[str, Any]] = {
    "sync": {},
    "epochs": {"algorithm": TINY_EPOCHS},
    "replays": {"algorithm": TINY_Q},
    "inline": {"runner": "async", "inline": True, "workers": 3},
}
RESUMES = "import sys; from rlplug_core.runs.api import resume\nfor path in sys.argv[1:]: resume(path, hooks=False)"


@pytest.fixture(scope="module")
def pairs(warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Run, Run]]:
    """Return an uninterrupted run of each case, and one stopped between two batches and resumed in another process."""
    out = tmp_path_factory.mktemp("pairs")
    expected = {case: train_run(out, f"{case}-whole", **options) for case, options in CASES.items()}
    resumed = {case: interrupt_run(out, 10, f"{case}-parts", **options) for case, options in CASES.items()}
    paths = [str(run.path) for run in resumed.values()]
    process = Fork(warm.socket, ("-c", RESUMES, *paths), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert without_notices(process.communicate()[1]) == ""
    assert process.returncode == 0
    process.close()
    return {case: (expected[case], resumed[case]) for case in CASES}


@pytest.mark.parametrize("case", CASES)
def test_resume_in_another_process_is_exact(pairs: dict[str, tuple[Run, Run]], case: str) -> None:
    expected, resumed = pairs[case]
    assert resumed.status == "finished"
    assert [record.data["reason"] for record in records(resumed, "checkpoint")].count("interrupted") == 1
    assert_same(without_wall(load_components(expected)), without_wall(load_components(resumed)))
    assert_same(load_components(expected, "best"), load_components(resumed, "best"))


@pytest.mark.parametrize("case", CASES)
def test_journal_of_resumed_run_is_equal(pairs: dict[str, tuple[Run, Run]], case: str) -> None:
    kinds = ("metrics", "episodes", "evaluation", "final_eval")
    expected, resumed = ([stable_part(record) for record in records(run, *kinds)] for run in pairs[case])
    assert resumed == expected
    assert len(expected) > 20


def stable_part(record: Record) -> Any:
    """Return a record without measured times."""
    return record.kind, record.step, {k: v for k, v in record.data.items() if not k.startswith("perf/")}


@pytest.mark.parametrize("case", CASES)
def test_next_actions_of_resumed_run_are_equal(pairs: dict[str, tuple[Run, Run]], case: str) -> None:
    actions = []
    for run in pairs[case]:
        options = {**OPTIONS, **CASES[case]}
        runner = make_runner(options.pop("algorithm", TINY), CHAIN, **options)
        runner.load_state_dict(dict(load_components(run)))
        actor = runner.workers[0].actor if runner.name == "async" else runner.actor
        actions.append([actor.step().action.tolist() for _ in range(5)])
    assert actions[0] == actions[1]


def test_killed_run_resumes_from_last_checkpoint(finished_run: Run, tmp_path: Path) -> None:
    """Records after the checkpoint are written again with the same times, so that no reader sees a second point."""
    run = interrupt_run(tmp_path, 22)
    for saved in Checkpoints(run.directory.checkpoints_path).kept("step")[:1]:
        (saved.path / "manifest.json").write_text("")
    before = {(r.kind, r.step): r.time for r in records(run, "metrics", "evaluation")}
    resume(run, hooks=False)
    assert_same(without_wall(load_components(finished_run)), without_wall(load_components(run)))
    after: dict[Any, set[int]] = {}
    for record in records(run, "metrics", "evaluation"):
        after.setdefault((record.kind, record.step), set()).add(record.time)
    assert all(after[key] == {time} for key, time in before.items())
    assert len({stable_part(record).__repr__() for record in records(run, "metrics")}) == 10


def test_resume_skips_damaged_checkpoint_and_warns(
    finished_run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = interrupt_run(tmp_path, 22)
    newest, middle, *_ = Checkpoints(run.directory.checkpoints_path).kept("step")
    (newest.path / "learner.safetensors").write_bytes(b"\0" * 1000)
    resume(run, hooks=False)
    warning = capsys.readouterr().err
    assert f"{newest.path.name} is damaged: learner.safetensors has changed since it was written" in warning
    assert f"falling back to {middle.path.name}" in warning
    assert_same(without_wall(load_components(finished_run)), without_wall(load_components(run)))


def test_resume_without_readable_checkpoint_raises(tmp_path: Path) -> None:
    run = interrupt_run(tmp_path, 22)
    for saved in Checkpoints(run.directory.checkpoints_path).kept("step"):
        (saved.path / "manifest.json").unlink()
    with pytest.raises(BadCheckpoint, match="holds no readable final or step checkpoint") as caught:
        resume(run, hooks=False)
    assert "\n" not in str(caught.value)
    assert run.status == "interrupted"


@pytest.mark.parametrize(
    ("version", "advice"),
    [
        (
            "",
            "other code wrote it, or an environment with other spaces; restore the algorithm, the environment",
        ),
        (
            "0.1",
            "torch==0.1 wrote it, and other versions are installed; install the old ones, python -m pip install torch=",
        ),
    ],
)
def test_state_of_other_code_raises_with_advice(tmp_path: Path, version: str, advice: str) -> None:
    run = interrupt_run(tmp_path, 22)
    checkpoints = Checkpoints(run.directory.checkpoints_path)
    newest, components, manifest, _ = checkpoints.load(["step"])
    about = {name: manifest[name] for name in ("reason", "exact", "inexact", "environment", "created", "journal")}
    about["environment"]["versions"]["torch"] = version or about["environment"]["versions"]["torch"]
    checkpoints.save("step", newest.step, {**components, "learner": {"of another class": 1}}, about)
    with pytest.raises(BadCheckpoint, match=rf"cannot be used \(\w+: .*\): {re.escape(advice)}") as caught:
        resume(run, hooks=False)
    assert "delete" not in str(caught.value)


def test_finished_run_resumes_only_to_larger_total(tmp_path: Path) -> None:
    run = train_run(tmp_path)
    with pytest.raises(
        UsageError, match=r"run run is finished at step 200; 'rlplug resume .*run --total-timesteps N' with a larger"
    ):
        resume(run, hooks=False)
    with pytest.raises(UsageError, match="is finished at step 200"):
        resume(run, total_timesteps=150, hooks=False)
    assert resume(run.path, total_timesteps=300, hooks=False).status == "finished"
    assert load_components(run)["clock"]["steps"] == 300
    assert load_components(run)["clock"]["total"] == 200  # schedules keep the old total
    resume(run, total_timesteps=350, rescale=True, hooks=False)
    assert load_components(run)["clock"]["total"] == 350
    assert run.summary().extensions == ((300, False), (350, True))


def test_total_below_current_step_raises(tmp_path: Path) -> None:
    """`total_timesteps` counts all steps; other libraries count those to come."""
    run = interrupt_run(tmp_path, 10)
    with pytest.raises(
        UsageError, match=r"run is at step \d+ and would end at 20; --total-timesteps counts all"
    ) as caught:
        resume(run, total_timesteps=20, hooks=False)
    assert caught.value.__notes__ == ["In Python: total_timesteps=..."]
    assert run.status == "interrupted"
    resume(run, hooks=False)
    assert run.status == "finished"


def test_resume_finishes_run_interrupted_at_its_end(finished_run: Run, tmp_path: Path) -> None:
    """All steps are made, but neither the last update nor the final evaluation."""
    run = interrupt_run(tmp_path, 25)
    assert records(run, "end")[-1].step == 200
    assert not records(run, "final_eval")
    resume(run, hooks=False)
    assert run.status == "finished"
    assert_same(without_wall(load_components(finished_run)), without_wall(load_components(run)))
    assert records(run, "final_eval")[0].data == records(finished_run, "final_eval")[0].data


def test_second_interrupt_stops_at_once(tmp_path: Path) -> None:
    """Also within an evaluation, which may take long."""

    def watch(progress: Any) -> None:
        if progress.phase == "evaluating":
            os.kill(os.getpid(), 2)
            os.kill(os.getpid(), 2)

    with pytest.raises(KeyboardInterrupt):
        train(TINY, CHAIN, OPTIONS, out=tmp_path, name="run", hooks=False, watch=watch)
    assert Run(RunDirectory.open(tmp_path / "run")).status == "interrupted"


def test_resume_with_other_versions_warns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = interrupt_run(tmp_path, 5)
    for saved in Checkpoints(run.directory.checkpoints_path).kept("step"):
        manifest = read(saved.path)[1]
        del manifest["sha256"]
        manifest["environment"]["versions"]["numpy"] = "1.0"
        manifest["environment"]["loops"] = "numba 0.1"
        (saved.path / "manifest.json").write_bytes(seal_manifest(manifest))
    resume(run, hooks=False)
    output = capsys.readouterr().err
    assert f"will not give the same bits: numpy was 1.0 and is {np.__version__}" in output
    assert f"will not give the same bits: loops was numba 0.1 and is {loop_library()}" in output


def test_missing_run_raises(tmp_path: Path) -> None:
    for call in (resume, load):
        with pytest.raises(UsageError, match=r"no run at .*nothing \('rlplug runs' lists"):
            call(tmp_path / "nothing")  # type: ignore[operator]


# Impossible runs leave no files.


class Plain(Bandit):
    """An algorithm without the base class `Algorithm` that declares its actions."""

    actions = ("Discrete",)


REFUSED: list[tuple[dict[str, Any], type[RlplugError], str]] = [
    ({"algorithm": f"{HERE}:Tinny"}, PluginError, "has no 'Tinny'; did you mean 'Tiny'"),
    ({"algorithm": "./absent.py:Tiny"}, UsageError, "there is no file .*absent.py"),
    ({"env": f"{ENVS}:Chains"}, PluginError, "has no 'Chains'; did you mean 'Chain'"),
    (
        {"algorithm": TINY_Q, "env": f"{ENVS}:Continuous"},
        UsageError,
        "TinyQ needs Discrete actions and Continuous has Box",
    ),
    (
        {"algorithm": "tests.core.runs.test_run:Plain", "env": f"{ENVS}:Continuous"},
        UsageError,
        "Plain needs Discrete actions and Continuous has Box",
    ),
    ({"n_stepz": 3}, BadConfig, "has no option 'n_stepz'; did you mean 'n_steps'"),
    ({"n_steps": 0}, BadConfig, "option 'n_steps': expected `int` >= 1"),
    (
        {"runner": "async", "algorithm": TINY_EPOCHS},
        UsageError,
        "does not run under 'async': its workers .*; use --runner sync",
    ),
    ({"device": "cuda"}, UsageError, "device 'cuda' is not available to this torch; use --device cpu"),
    ({"device": "abacus"}, UsageError, "no device 'abacus'; use cpu or cuda"),
    ({"actor_device": "abacus"}, UsageError, "no device 'abacus'; use cpu or cuda"),
    ({"actor_device": "cuda"}, UsageError, "device 'cuda' is not available to this torch; use --actor-device cpu"),
    ({"cudagraphs": True}, UsageError, "replays gradient steps on a GPU; add --device cuda"),
    ({"cudagraphs": True, "compile": True}, UsageError, "replays gradient steps on a GPU; add --device cuda"),
    ({"actor_device": "cpu:0"}, UsageError, "which need --runner decoupled without --inline and --on; leave it out"),
    (
        {"inference_backend": "numpy", "env": f"{ENVS}:Recall"},
        UsageError,
        "NumPy computes only fully connected layers",
    ),
]


@pytest.mark.parametrize(("options", "error", "message"), REFUSED)
def test_impossible_runs_leave_no_files(
    tmp_path: Path, options: dict[str, Any], error: type[RlplugError], message: str
) -> None:
    if options.get("device") == "cuda" and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(error, match=message) as caught:
        train_run(tmp_path / "out", **options)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_generated_names_are_unique(tmp_path: Path) -> None:
    names = {RunDirectory.create(tmp_path, None, "a/b:c").path.name for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("a-b-c-") for name in names)


@pytest.mark.parametrize("out", ["file", "file/below"])
def test_unwritable_directory_raises(tmp_path: Path, out: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"cannot be written: .*; choose another place with --out"):
        train_run(tmp_path / out)


def test_environment_error_ends_run_with_traceback(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="the environment broke"):
        train_run(tmp_path, env=f"{ENVS}:Crashing")
    run = Run(RunDirectory.open(tmp_path / "run"))
    assert run.status == "failed"
    assert "the environment broke after 20 steps" in (run.path / "error.txt").read_text()
    assert records(run, "error")[0].data == {"type": "RuntimeError", "message": "the environment broke after 20 steps"}
    assert not run.directory.running()


def test_resume_renames_old_error_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(progress: object) -> None:
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        train_run(tmp_path, watch=fail)
    run = Run(RunDirectory.open(tmp_path / "run"))
    with pytest.raises(ValueError, match="no more"):
        resume(run, hooks=False, watch=fail)
    assert {path.name for path in run.path.glob("error*")} == {"error.txt", "error-1.txt"}
    resume(run, hooks=False)
    assert run.status == "finished"
    assert {path.name for path in run.path.glob("error*")} == {"error-1.txt", "error-2.txt"}
    assert all("ValueError: no more" in path.read_text() for path in run.path.glob("error*"))


def test_group_does_not_depend_on_seed(finished_run: Run, tmp_path: Path) -> None:
    other = train_run(tmp_path, seed=9, total_timesteps=200)
    assert json.loads((other.path / "config.json").read_text())["group"] == finished_run.config["group"]
    assert train_run(tmp_path, "third", learning_rate=0.5).config["group"] != finished_run.config["group"]
    assert other.config["uid"] != finished_run.config["uid"]
