"""A run as its user sees it: train, evaluate, load, resume; what it leaves behind; what is refused, and how."""

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


def trained(
    out: Path, name: str = "run", algorithm: str = TINY, env: str = CHAIN, watch: Any = None, **options: Any
) -> Run:
    return train(algorithm, env, {**OPTIONS, **options}, out=out, name=name, hooks=False, watch=watch)


def interrupted(out: Path, update: int, name: str = "run", **options: Any) -> Run:
    """A run that a signal stopped at its n-th update."""
    countdown[0] = update
    of_file = sys.modules[type_of(options.get("algorithm", TINY)).__module__]
    of_file.countdown[0] = update  # a path makes a module of its own
    with pytest.raises(Interrupted) as caught:
        trained(out, name, **options)
    countdown[0] = of_file.countdown[0] = 0  # what one of the two did not use up must not hit a later test
    assert caught.value.exit_code == 130
    return Run(RunDirectory.open(out / name))


def type_of(word: str) -> Any:
    from rlplug_core.plugins import algorithm

    return algorithm(word)


def records(run: Run, *kinds: str) -> list[Record]:
    return [record for record in read_journal(run.journal) if not kinds or record.kind in kinds]


def final_of(run: Run, kind: str = "final") -> Mapping[str, Any]:
    components: Mapping[str, Any] = Checkpoints(run.directory.checkpoints_path).load([kind])[1]
    return components


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return trained(tmp_path_factory.mktemp("runs"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_run_from_a_gpu_is_used_and_goes_on_without_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = trained(tmp_path, total_timesteps=80)
    config = json.loads((run.path / "config.json").read_text())
    config["options"]["device"] = "cuda:1"
    (run.path / "config.json").write_text(json.dumps(config))
    assert load(run.path, trust=True).observation_space.shape
    assert "the run has device cuda:1, and torch finds no GPU here" in capsys.readouterr().err
    assert resume(run.path, total_timesteps=120, hooks=False, trust=True).status == "finished"


class Best:
    """The caller's own hook: the env steps of checkpoints by reason, and how runs end."""

    def __init__(self) -> None:
        self.told: list[str] = []

    @rlplug_core.hookimpl
    def rlplug_run_checkpoint(self, reason: str) -> None:
        self.told.append(reason)

    @rlplug_core.hookimpl
    def rlplug_run_end(self, status: str) -> None:
        self.told.append(status)


@pytest.mark.usefixtures("no_mlflow")
def test_objects_with_hooks_are_told_of_a_run_and_of_its_resumption(tmp_path: Path) -> None:
    first, second = Best(), Best()
    run = train(TINY, CHAIN, OPTIONS, out=tmp_path, hooks=[first])
    assert {"best", "periodic"} < set(first.told)
    assert first.told[-1] == "finished"
    resume(run, total_timesteps=240, hooks=[second])
    assert second.told[-2:] == ["final", "finished"]
    with pytest.raises(UsageError, match="implements no hook"):
        train(TINY, CHAIN, OPTIONS, out=tmp_path / "none", hooks=[print])
    assert not (tmp_path / "none").exists()


def test_totals_of_a_resumption_are_whole_numbers_of_any_kind(tmp_path: Path) -> None:
    run = trained(tmp_path)
    for given, whole in ((240.0, 240), (np.int64(280), 280), (np.float64(320), 320)):
        resume(run, total_timesteps=given, hooks=False)  # type: ignore[arg-type]  # as notebooks give them
        assert (run.status, run.summary().steps, run.summary().total_timesteps) == ("finished", whole, whole)
    before = run.journal.read_bytes()
    for wrong in (True, 400.5, "400", 0, -1, 10**20, [400]):
        with pytest.raises(UsageError, match="give a whole number of env steps, 1 or more"):
            resume(run, total_timesteps=wrong, hooks=False)  # type: ignore[arg-type]
    assert run.journal.read_bytes() == before


@pytest.mark.parametrize(("option", "value"), [("seed", 2**63), ("total_timesteps", 10**20)])
def test_numbers_that_no_table_holds_are_refused(option: str, value: int, tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match=f"{option}.* 9223372036854775807"):
        trained(tmp_path, **{option: value})
    assert not (tmp_path / "run").exists()


def test_steps_that_a_resumption_took_back_do_not_count(tmp_path: Path) -> None:
    run = trained(tmp_path)
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
    assert run.summary().steps == 900  # as long as nobody went on
    assert resume(run, total_timesteps=240, hooks=False).summary().steps == 240


def test_unknown_algorithms_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="algorithm is None; give an id such as 'ppo'"):
        train(None, CHAIN, OPTIONS, out=tmp_path)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="a name must consist of printable characters"):
        trained(tmp_path, name=5)  # type: ignore[arg-type]
    for name in ("..", "a/b", str(tmp_path / "elsewhere")):
        with pytest.raises(UsageError, match="it names a directory; 'out' says where it is"):
            trained(tmp_path, name=name)


def test_paths_and_single_texts_are_what_they_look_like(tmp_path: Path) -> None:
    """A text where several are taken is one of them, and no list of letters."""
    first = trained(tmp_path)
    second = trained(tmp_path, "second", init=first.path, init_parts="policy")
    assert second.config["options"]["init_parts"] == ["policy"]
    assert second.config["options"]["init"].startswith(str(first.path))
    with pytest.raises(UsageError, match="no wrapper 'absent' is installed"):
        first.evaluate(episodes=1, wrap="absent")


# What a run leaves behind.


def test_a_run_tells_its_story_in_order(done: Run) -> None:
    kinds = [record.kind for record in records(done)]
    assert kinds[0] == "start"
    assert kinds[-2:] == ["final_eval", "end"]
    assert [record.seq for record in records(done)] == list(range(1, len(kinds) + 1))
    assert [record.step for record in records(done, "metrics")] == list(range(20, 201, 20))
    assert [record.step for record in records(done, "evaluation")] == [50, 100, 150, 200]
    start, verdict, end = (records(done, kind)[0].data for kind in ("start", "final_eval", "end"))
    assert start["options"]["n_steps"] == 4
    assert not start["resumed"]
    assert verdict["episodes"] == 10
    assert (verdict["checkpoint"][:4], verdict["last_checkpoint"]) == ("best", "final-000000000200")
    assert verdict["last_return_min"] <= verdict["last_return_mean"] <= verdict["last_return_max"]
    assert verdict["return_min"] <= verdict["return_mean"] <= verdict["return_max"]
    assert end == {"status": "finished"}
    assert done.status == "finished"
    assert not (done.path / "error.txt").exists()


def test_its_configuration_is_written_down_whole(done: Run) -> None:
    config = done.config
    assert config["options"] == {**config["options"], **OPTIONS}
    assert config["options"]["net.hidden"] == [8]
    assert config["origins"]["seed"] == "option"
    assert config["origins"]["learning_rate"] == "default"
    assert (config["algorithm"], config["env"], config["name"]) == (TINY, CHAIN, "run")
    assert set(config["environment"]["versions"]) == {"python", "rlplug-core", "torch", "numpy", "gymnasium"}
    assert config["environment"]["threads"] == 1


def test_checkpoints_say_what_they_are(done: Run) -> None:
    kept = Checkpoints(done.directory.checkpoints_path).kept()
    assert sorted((saved.kind, saved.step) for saved in kept if saved.kind != "best") == [
        ("final", 200), ("step", 80), ("step", 120), ("step", 160),
    ]  # fmt: skip
    manifest = read(next(saved.path for saved in kept if saved.kind == "final"))[1]
    assert manifest["components"] == ["actor", "buffer", "clock", "events", "globals", "learner", "meter"]
    assert (manifest["exact"], manifest["inexact"], manifest["reason"]) == (True, "", "final")


def test_the_same_again_is_the_same(done: Run, tmp_path: Path) -> None:
    assert_same(without_wall(final_of(done)), without_wall(final_of(trained(tmp_path))))


def without_wall(components: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**components, "events": {**components["events"], "wall": 0}}


@pytest.mark.parametrize("env", [CHAIN, f"{HERE}:Dicey"])
@pytest.mark.parametrize("algorithm", [TINY, TINY_Q])
def test_evaluation_on_or_off_gives_the_same_weights(tmp_path: Path, env: str, algorithm: str) -> None:
    """Even where the environment draws from the generators of the process, which evaluation shares."""
    often = final_of(trained(tmp_path, "often", algorithm, env, eval_every=6))
    never = final_of(trained(tmp_path, "never", algorithm, env, eval_every=10**9, final_eval_episodes=0))
    for name in ("learner", "buffer", "actor", "clock", "globals"):
        assert_same(often[name], never[name])


def test_how_often_is_logged_and_saved_changes_nothing(done: Run, tmp_path: Path) -> None:
    other = final_of(trained(tmp_path, log_every=3, checkpoint_every=7, keep_checkpoints=1))
    for name in ("learner", "buffer", "actor"):
        assert_same(final_of(done)[name], other[name])


# Evaluate and load.


def test_evaluation_repeats_and_depends_on_its_seed(done: Run) -> None:
    verdict = records(done, "final_eval")[0].data
    again = done.evaluate(10)
    assert (again.mean, again.std) == (verdict["return_mean"], verdict["return_std"])
    last = done.evaluate(10, checkpoint="final")
    assert (last.mean, last.std) == (verdict["last_return_mean"], verdict["last_return_std"])
    assert done.evaluate(20, seed=5) == done.evaluate(20, seed=5)
    assert done.evaluate(3, checkpoint="final").episodes == done.evaluate(3, checkpoint="latest").episodes == 3
    with pytest.raises(UsageError, match=r"no checkpoint 'worst' \(there is best, final, latest, "):
        done.evaluate(3, checkpoint="worst")


def test_checkpoints_of_one_step_are_evaluated_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[str] = []
    real = run_module.evaluate_checkpoint

    def spy(plan: Any, directory: Any, episodes: int, seed: Any, conditions: Any) -> Any:
        played.append(conditions.checkpoint)
        return real(plan, directory, episodes, seed, conditions)

    monkeypatch.setattr(run_module, "evaluate_checkpoint", spy)
    run = trained(tmp_path, eval_every=200)
    found = run.evaluate_all(2, seed=1)
    kept = Checkpoints(run.directory.checkpoints_path).kept()
    assert list(found) == sorted({saved.step for saved in kept})
    assert len(played) == len(found) == len(kept) - 1
    assert played[-1] == f"final-{200:012d}"


def test_weights_that_change_at_the_end_are_evaluated_as_the_last_ones(tmp_path: Path) -> None:
    """Those of the last evaluation were the best, at the same step."""
    run = trained(tmp_path, algorithm=f"{HERE}:Forgetful", eval_every=200)
    told = records(run, "final_eval")[0].data
    assert (told["checkpoint"], told["last_checkpoint"]) == (f"best-{200:012d}", f"final-{200:012d}")
    for name, prefix in (("best", ""), ("final", "last_")):
        again = run.evaluate(10, checkpoint=name)
        assert (again.mean, again.std) == (told[f"{prefix}return_mean"], told[f"{prefix}return_std"])
    assert told["return_mean"] != told["last_return_mean"]


def test_a_policy_takes_one_observation_or_many(done: Run) -> None:
    policy = load(done, "final")
    obs = np.eye(5, dtype=np.float32)
    many = policy(obs)
    assert many.shape == (5,)
    assert [int(policy(one)) for one in obs] == many.tolist()
    assert np.shape(policy(obs[0])) == ()
    learner = make_runner(TINY, CHAIN, **OPTIONS).learner
    learner.load_state_dict(dict(final_of(done)["learner"]))
    assert many.tolist() == learner.policy(torch.from_numpy(obs)).argmax(-1).tolist()
    assert load(done.path)(obs[0]) in (0, 1)
    assert done.policy("latest")(obs).tolist() == many.tolist()


def test_a_policy_takes_dictionaries_and_gives_box_actions(tmp_path: Path) -> None:
    policy = load(trained(tmp_path, "masked", env=f"{ENVS}:Masked"))
    mask = np.array([[0, 1, 1], [1, 0, 1]], np.int8)
    actions = policy({"obs": mask.astype(np.float32), "action_mask": mask})
    assert mask[[0, 1], actions].all()
    assert policy({"obs": mask[0].astype(np.float32), "action_mask": mask[0]}) == actions[0]
    box = load(trained(tmp_path, "box", env=f"{ENVS}:Continuous"))
    assert box(np.zeros(1, np.float32)).shape == (1,)
    assert box(np.zeros((4, 1), np.float32)).shape == (4, 1)


def test_three_lines_from_the_top_of_the_package(done: Run) -> None:
    assert rlplug_core.load(done).reset() is None
    assert {rlplug_core.train, rlplug_core.resume} == {train, resume}


def test_a_class_can_be_trained_as_it_is(tmp_path: Path) -> None:
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
    """Every case as a run that was never stopped, and as one stopped between two batches and resumed elsewhere."""
    out = tmp_path_factory.mktemp("pairs")
    whole = {case: trained(out, f"{case}-whole", **options) for case, options in CASES.items()}
    parts = {case: interrupted(out, 10, f"{case}-parts", **options) for case, options in CASES.items()}
    paths = [str(run.path) for run in parts.values()]
    process = Fork(warm.socket, ("-c", RESUMES, *paths), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert without_notices(process.communicate()[1]) == ""
    assert process.returncode == 0
    process.close()
    return {case: (whole[case], parts[case]) for case in CASES}


@pytest.mark.parametrize("case", CASES)
def test_a_resume_in_another_process_gives_the_same_bits(pairs: dict[str, tuple[Run, Run]], case: str) -> None:
    whole, parts = pairs[case]
    assert parts.status == "finished"
    assert [record.data["reason"] for record in records(parts, "checkpoint")].count("interrupted") == 1
    assert_same(without_wall(final_of(whole)), without_wall(final_of(parts)))
    assert_same(final_of(whole, "best"), final_of(parts, "best"))


@pytest.mark.parametrize("case", CASES)
def test_the_journal_of_both_parts_is_that_of_the_whole(pairs: dict[str, tuple[Run, Run]], case: str) -> None:
    kinds = ("metrics", "episodes", "evaluation", "final_eval")
    one, other = ([told(record) for record in records(run, *kinds)] for run in pairs[case])
    assert one == other
    assert len(one) > 20


def told(record: Record) -> Any:
    """A record without what time and place have to do with it."""
    return record.kind, record.step, {k: v for k, v in record.data.items() if not k.startswith("perf/")}


@pytest.mark.parametrize("case", CASES)
def test_the_next_action_is_the_same(pairs: dict[str, tuple[Run, Run]], case: str) -> None:
    actions = []
    for run in pairs[case]:
        options = {**OPTIONS, **CASES[case]}
        runner = make_runner(options.pop("algorithm", TINY), CHAIN, **options)
        runner.load_state_dict(dict(final_of(run)))
        actor = runner.workers[0].actor if runner.name == "async" else runner.actor
        actions.append([actor.step().action.tolist() for _ in range(5)])
    assert actions[0] == actions[1]


def test_a_run_that_was_killed_goes_on_from_its_last_checkpoint(done: Run, tmp_path: Path) -> None:
    """What it had recorded beyond is recorded again with the same times, so that nobody sees a second point."""
    run = interrupted(tmp_path, 22)
    for saved in Checkpoints(run.directory.checkpoints_path).kept("step")[:1]:
        (saved.path / "manifest.json").write_text("")
    before = {(r.kind, r.step): r.time for r in records(run, "metrics", "evaluation")}
    resume(run, hooks=False)
    assert_same(without_wall(final_of(done)), without_wall(final_of(run)))
    after: dict[Any, set[int]] = {}
    for record in records(run, "metrics", "evaluation"):
        after.setdefault((record.kind, record.step), set()).add(record.time)
    assert all(after[key] == {time} for key, time in before.items())
    assert len({told(record).__repr__() for record in records(run, "metrics")}) == 10


def test_a_damaged_checkpoint_is_passed_over_aloud(
    done: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = interrupted(tmp_path, 22)
    newest, middle, *_ = Checkpoints(run.directory.checkpoints_path).kept("step")
    (newest.path / "learner.safetensors").write_bytes(b"\0" * 1000)
    resume(run, hooks=False)
    warning = capsys.readouterr().err
    assert f"{newest.path.name} is damaged: learner.safetensors has changed since it was written" in warning
    assert f"falling back to {middle.path.name}" in warning
    assert_same(without_wall(final_of(done)), without_wall(final_of(run)))


def test_without_a_readable_checkpoint_there_is_one_sentence(tmp_path: Path) -> None:
    run = interrupted(tmp_path, 22)
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
def test_a_state_of_other_code_is_met_with_advice_that_helps(tmp_path: Path, version: str, advice: str) -> None:
    run = interrupted(tmp_path, 22)
    checkpoints = Checkpoints(run.directory.checkpoints_path)
    newest, components, manifest, _ = checkpoints.load(["step"])
    about = {name: manifest[name] for name in ("reason", "exact", "inexact", "environment", "created", "journal")}
    about["environment"]["versions"]["torch"] = version or about["environment"]["versions"]["torch"]
    checkpoints.save("step", newest.step, {**components, "learner": {"of another class": 1}}, about)
    with pytest.raises(BadCheckpoint, match=rf"cannot be used \(\w+: .*\): {re.escape(advice)}") as caught:
        resume(run, hooks=False)
    assert "delete" not in str(caught.value)


def test_a_finished_run_is_not_resumed_but_can_be_prolonged(tmp_path: Path) -> None:
    run = trained(tmp_path)
    with pytest.raises(
        UsageError, match=r"run run is finished at step 200; 'rlplug resume .*run --total-timesteps N' with a larger"
    ):
        resume(run, hooks=False)
    with pytest.raises(UsageError, match="is finished at step 200"):
        resume(run, total_timesteps=150, hooks=False)
    assert resume(run.path, total_timesteps=300, hooks=False).status == "finished"
    assert final_of(run)["clock"]["steps"] == 300
    assert final_of(run)["clock"]["total"] == 200  # schedules keep the old total
    resume(run, total_timesteps=350, rescale=True, hooks=False)
    assert final_of(run)["clock"]["total"] == 350
    assert run.summary().extensions == ((300, False), (350, True))


def test_an_end_that_an_interrupted_run_has_passed_is_refused(tmp_path: Path) -> None:
    """`total_timesteps` counts all steps, where others count those to come."""
    run = interrupted(tmp_path, 10)
    with pytest.raises(
        UsageError, match=r"run is at step \d+ and would end at 20; --total-timesteps counts all"
    ) as told:
        resume(run, total_timesteps=20, hooks=False)
    assert told.value.__notes__ == ["In Python: total_timesteps=..."]
    assert run.status == "interrupted"
    resume(run, hooks=False)
    assert run.status == "finished"


def test_a_run_interrupted_at_its_very_end_can_be_finished(done: Run, tmp_path: Path) -> None:
    """All steps are made, but neither the last update nor the verdict."""
    run = interrupted(tmp_path, 25)
    assert records(run, "end")[-1].step == 200
    assert not records(run, "final_eval")
    resume(run, hooks=False)
    assert run.status == "finished"
    assert_same(without_wall(final_of(done)), without_wall(final_of(run)))
    assert records(run, "final_eval")[0].data == records(done, "final_eval")[0].data


def test_a_second_interrupt_stops_at_once(tmp_path: Path) -> None:
    """For example, in the middle of an evaluation: its end may be far away."""

    def watch(progress: Any) -> None:
        if progress.phase == "evaluating":
            os.kill(os.getpid(), 2)
            os.kill(os.getpid(), 2)

    with pytest.raises(KeyboardInterrupt):
        train(TINY, CHAIN, OPTIONS, out=tmp_path, name="run", hooks=False, watch=watch)
    assert Run(RunDirectory.open(tmp_path / "run")).status == "interrupted"


def test_a_run_that_another_process_writes_is_left_alone(tmp_path: Path) -> None:
    run = interrupted(tmp_path, 5)
    holder = subprocess.Popen(
        [sys.executable, "-c", "import sys; from rlplug_core.runs.directory import RunDirectory as R\n"
         "run = R.open(sys.argv[1]); run.lock(); print('held', flush=True); sys.stdin.read()", str(run.path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert holder.stdout
    assert holder.stdout.readline() == "held\n"
    assert run.status == "running"
    with pytest.raises(UsageError, match=f"is being written by process {holder.pid}; wait for it or stop it first"):
        resume(run, hooks=False)
    holder.communicate("")
    assert run.status == "interrupted"
    assert resume(run, hooks=False).status == "finished"


def test_a_process_that_dies_without_a_word_leaves_a_killed_run(tmp_path: Path) -> None:
    run = trained(tmp_path)
    lines = run.journal.read_text().splitlines()
    run.journal.write_text("\n".join(lines[:-1]) + "\n")
    assert run.status == "killed"


def test_a_resume_elsewhere_says_that_the_bits_will_differ(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = interrupted(tmp_path, 5)
    for saved in Checkpoints(run.directory.checkpoints_path).kept("step"):
        manifest = read(saved.path)[1]
        del manifest["sha256"]
        manifest["environment"]["versions"]["numpy"] = "1.0"
        manifest["environment"]["loops"] = "numba 0.1"
        (saved.path / "manifest.json").write_bytes(seal_manifest(manifest))
    resume(run, hooks=False)
    said = capsys.readouterr().err
    assert f"will not give the same bits: numpy was 1.0 and is {np.__version__}" in said
    assert f"will not give the same bits: loops was numba 0.1 and is {loop_library()}" in said


def test_there_must_be_a_run(tmp_path: Path) -> None:
    for call in (resume, load):
        with pytest.raises(UsageError, match=r"no run at .*nothing \('rlplug runs' lists"):
            call(tmp_path / "nothing")  # type: ignore[operator]


# What cannot be started leaves nothing behind.


class Plain(Bandit):
    """An algorithm that does not build on `Algorithm`, and says what it can handle."""

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


@pytest.mark.parametrize(("options", "error", "sentence"), REFUSED)
def test_impossible_runs_are_refused_before_anything_is_written(
    tmp_path: Path, options: dict[str, Any], error: type[RlplugError], sentence: str
) -> None:
    if options.get("device") == "cuda" and torch.cuda.is_available():
        pytest.skip("there is one here")
    with pytest.raises(error, match=sentence) as caught:
        trained(tmp_path / "out", **options)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_the_directory_of_a_sweep_is_no_leftover(tmp_path: Path) -> None:
    (tmp_path / "five").mkdir()
    for name in ("lock", "sweep.json"):
        (tmp_path / "five" / name).touch()
    with pytest.raises(UsageError, match="five exists already"):
        RunDirectory.create(tmp_path, "five", "")


def test_a_directory_that_exists_is_never_written_into(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").touch()
    with pytest.raises(UsageError, match=r"run directory .*run exists already; choose another --name"):
        trained(tmp_path)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["notes.txt"]


def test_names_made_up_are_unique(tmp_path: Path) -> None:
    names = {RunDirectory.create(tmp_path, None, "a/b:c").path.name for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("a-b-c-") for name in names)


@pytest.mark.parametrize("out", ["file", "file/below"])
def test_a_place_that_cannot_be_written_is_said_to_be_one(tmp_path: Path, out: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"cannot be written: .*; choose another place with --out"):
        trained(tmp_path / out)


def test_an_environment_that_breaks_ends_the_run_with_its_traceback(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="the environment broke"):
        trained(tmp_path, env=f"{ENVS}:Crashing")
    run = Run(RunDirectory.open(tmp_path / "run"))
    assert run.status == "failed"
    assert "the environment broke after 20 steps" in (run.path / "error.txt").read_text()
    assert records(run, "error")[0].data == {"type": "RuntimeError", "message": "the environment broke after 20 steps"}
    assert not run.directory.running()


def test_a_run_that_goes_on_keeps_what_it_failed_with_under_another_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(progress: object) -> None:
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        trained(tmp_path, watch=failing)
    run = Run(RunDirectory.open(tmp_path / "run"))
    with pytest.raises(ValueError, match="no more"):
        resume(run, hooks=False, watch=failing)
    assert {path.name for path in run.path.glob("error*")} == {"error.txt", "error-1.txt"}
    resume(run, hooks=False)
    assert run.status == "finished"
    assert {path.name for path in run.path.glob("error*")} == {"error-1.txt", "error-2.txt"}
    assert all("ValueError: no more" in path.read_text() for path in run.path.glob("error*"))


def test_the_config_is_valid_json_and_its_group_leaves_out_the_seed(done: Run, tmp_path: Path) -> None:
    other = trained(tmp_path, seed=9, total_timesteps=200)
    assert json.loads((other.path / "config.json").read_text())["group"] == done.config["group"]
    assert trained(tmp_path, "third", learning_rate=0.5).config["group"] != done.config["group"]
    assert other.config["uid"] != done.config["uid"]
