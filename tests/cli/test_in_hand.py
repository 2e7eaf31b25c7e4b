"""Runs in Python: read curves, evaluate, start from their weights, reproduce them."""

from __future__ import annotations

import copy
import os
import pickle
import signal
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import rlplug_core
from rlplug_core.errors import Interrupted, UsageError
from rlplug_core.loop.evaluate import Evaluation
from rlplug_core.loop.events import Progress
from rlplug_core.runs.api import load, resume, train
from rlplug_core.runs.card import card
from rlplug_core.runs.checkpoint import Checkpoints, read
from rlplug_core.runs.listing import remove, summary
from rlplug_core.runs.policy import Policy
from rlplug_core.runs.reproduction import compare, reproduce
from rlplug_core.runs.run import Run, open_run
from rlplug_core.testing.envs import Chain
from rlplug_core.types import Episode, Spec, Timestep

ENVS = "rlplug_core.testing.envs"

OPTIONS: dict[str, Any] = {
    "seed": 3, "num_envs": 2, "total_timesteps": 120, "runner": "sync", "eval_episodes": 4, "eval_every": 40,
    "log_every": 20, "checkpoint_every": 40, "final_eval_episodes": 4,
}  # fmt: skip


def train_chain(
    out: Path, name: str = "run", algorithm: str = "a2c", env: str = f"{ENVS}:Chain", **options: Any
) -> Run:
    return train(algorithm, env, {**OPTIONS, **options}, out=out, name=name, hooks=False)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train_chain(tmp_path_factory.mktemp("runs"))


def test_open_run_by_path_or_name(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_run(run.path).path == open_run("run", run.path.parent).path == Run(run.path).path == run.path
    with pytest.raises(UsageError, match="no run at rum; did you mean 'run'"):
        open_run("rum", run.path.parent)


def test_repr_of_a_run(run: Run) -> None:
    assert repr(run) == f"Run(run: a2c on {ENVS}:Chain, seed 3, finished at step 120)"
    assert {"train", "load", "resume", "open_run"} <= {*dir(rlplug_core)}
    assert repr(load(run)).startswith("Policy(")


def test_unknown_curve_is_named(run: Run) -> None:
    with pytest.raises(UsageError, match=r"no curve 'eval/retrun_mean'; did you mean 'eval/return_mean'"):
        run.curve("eval/retrun_mean")


def test_curves_are_columns_of_equal_length(run: Run) -> None:
    columns = run.curves()
    assert columns["step"].tolist() == [20, 40, 60, 80, 100, 120]
    assert {len(column) for column in columns.values()} == {6}
    assert np.isnan(columns["eval/return_mean"]).tolist() == [True, False, True, False, True, False]
    steps, returns = run.curve("eval/return_mean")
    assert steps.tolist() == [40, 80, 120]
    assert returns.tolist() == columns["eval/return_mean"][1::2].tolist()
    assert len(run.episodes()["returns"]) == columns["rollout/episodes"][-1]


def test_evaluate_options(run: Run) -> None:
    greedy = run.evaluate(8)
    assert run.evaluate(8, epsilon=0.0).returns == greedy.returns
    random = run.evaluate(8, epsilon=1.0)
    assert random.lengths != greedy.lengths
    assert run.evaluate(8, epsilon=1.0).returns == random.returns  # the same seed
    assert run.evaluate(8, stochastic=True).lengths != greedy.lengths
    assert [*run.evaluate_all(2)] == sorted({int(name.rpartition("-")[2]) for name in run.checkpoints})
    assert run.evaluate(4, checkpoint=run.checkpoints[-1]).returns == run.evaluate(4, checkpoint="final").returns


def test_invalid_evaluations_are_refused(run: Run) -> None:
    with pytest.raises(UsageError, match=r"no checkpoint 'bst'; did you mean 'best'.*there is best, final, latest, "):
        run.evaluate(1, checkpoint="bst")
    with pytest.raises(UsageError, match="epsilon is 2; it is a probability from 0 to 1"):
        run.evaluate(1, epsilon=2)
    differ = r"do not fit .*Bandit: its observations are Box\(1\) .* instead of .*; play them in the run's own"
    with pytest.raises(UsageError, match=differ):
        run.evaluate(1, env=f"{ENVS}:Bandit")
    with pytest.raises(UsageError, match=r"do not fit Pendulum-v1: .*, its actions are Box\(1\) .* instead of"):
        run.evaluate(1, env="Pendulum-v1")
    with pytest.raises(UsageError, match="has no frames to show"):
        run.play(frames=run.path / "frames")


def test_invalid_numbers_are_named(run: Run, tmp_path: Path) -> None:
    for episodes in (0, -2, 2.5, True):
        for play in (run.evaluate, lambda episodes: run.play(episodes, video=tmp_path / "a.gif")):
            with pytest.raises(UsageError, match=f"^episodes is {episodes}; give a whole number of at least 1"):
                play(episodes)
    with pytest.raises(UsageError, match=r"^seed is -1; give a whole number of at least 0"):
        run.evaluate(np.int64(2), seed=-1)  # type: ignore[arg-type]  # an integer of numpy
    with pytest.raises(UsageError, match=r"^steps is 0"):
        run.record(tmp_path / "a.npz", 0)
    with pytest.raises(UsageError, match=r"^num_envs is 0"):
        run.record(tmp_path / "a.npz", 10, num_envs=0)
    for every in (0, 1.5, True):
        with pytest.raises(UsageError, match=f"^every is {every}; give a whole number of at least 1"):
            run.play(every=every, video=tmp_path / "a.webp")  # type: ignore[arg-type]


def test_wrap_takes_the_values_of_the_command_line(tmp_path: Path) -> None:
    run = train_chain(tmp_path, env="CartPole-v1", wrap=["time-limit:steps=2"])
    assert max(run.evaluate(4).lengths) == 2
    for none in ("none", ["none"], []):
        assert max(run.evaluate(4, wrap=none).lengths) > 2


def test_checkpoint_must_be_a_name(run: Run) -> None:
    untyped: Any = run
    for method in (untyped.evaluate, untyped.policy, lambda checkpoint: untyped.export(run.path / "ex", checkpoint)):
        with pytest.raises(UsageError, match=r"^checkpoint is None; give a name: best, final, latest, or one of"):
            method(checkpoint=None)


def test_statistics_of_an_evaluation() -> None:
    result = Evaluation((1.0, 2.0, 3.0, 10.0), (1, 1, 1, 1), (True, None, False, True))
    assert (result.median, result.iqm, result.mean) == (2.5, 2.5, 4.0)
    assert result.sem == pytest.approx(np.std([1, 2, 3, 10], ddof=1) / 2)
    assert result.success_rate == pytest.approx(2 / 3)
    assert repr(result) == "Evaluation(mean return 4.0 ± 3.54 over 4 episodes, success rate 0.67)"
    assert Evaluation((1.0,), (1,)).success_rate is None


class Succeeding(Chain):
    """Reports success for every other episode."""

    def step(self, action: Any) -> Timestep:
        now = super().step(action)
        now.episodes = [Episode(each.row, each.total, each.length, each.row % 2 == 0) for each in now.episodes]
        return now


def test_evaluation_counts_successes(run: Run) -> None:
    result = run.evaluate(6, env=f"{Path(__file__)}:Succeeding")
    assert result.successes == (True, False) * 3
    assert result.success_rate == 0.5


@pytest.mark.parametrize(
    ("obs", "sentence"),
    [
        (np.zeros(9), r"the observation has shape \(9,\) of float64; one is \(\d+,\), many are \(B, \d+\)"),
        (np.zeros((2, 2, 2)), r"the observation has shape \(2, 2, 2\)"),
        ([[0.0], [0.0, 1.0]], "the observation is not an array of numbers"),
        ("north", "the observation has shape"),
    ],
    ids=str,
)
def test_policy_refuses_invalid_observations(run: Run, obs: Any, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        load(run)(obs)


def test_a_policy_refuses_nan_and_predicts(run: Run) -> None:
    policy = load(run)
    size = policy.observation_space.shape
    assert size is not None
    with pytest.raises(UsageError, match="holds a NaN"):
        policy(np.full(size, np.nan))
    action, state = policy.predict(np.zeros(size), episode_start=[True])
    assert (action, state) == (policy(np.zeros(size)), None)
    stochastic = load(run, deterministic=False)
    answers = {int(stochastic(np.zeros(size))) for _ in range(50)}
    assert len(answers) > 1
    assert {int(stochastic.predict(np.zeros(size), deterministic=True)[0]) for _ in range(9)} == {int(action)}


def test_policy_can_be_pickled(run: Run) -> None:
    """Another process loads it with the weights of the same checkpoint, even if there is a better one by then."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        for deterministic in (True, False):
            policy = load(run, "final", deterministic)
            obs = np.random.default_rng(0).random((50, *(policy.observation_space.shape or ())))
            assert pool.submit(policy, obs).result().tolist() == policy(obs).tolist()
            assert "final-" in str(policy.__reduce__())


def test_policy_of_an_export_can_be_pickled(run: Run, tmp_path: Path) -> None:
    policy = load(run.export(tmp_path / "policy"))
    obs = np.zeros(policy.observation_space.shape or ())
    assert pickle.loads(pickle.dumps(policy))(obs) == policy(obs)


def test_policy_without_a_file_cannot_be_pickled(run: Run) -> None:
    policy = load(run)
    unsaved = Policy(policy._agent, policy._env)
    with pytest.raises(TypeError, match="was made in this process and cannot be pickled; load it from a run or an exp"):
        pickle.dumps(unsaved)
    assert copy.deepcopy(unsaved)(np.zeros(5)) == policy(np.zeros(5))


def test_loaded_export_gives_the_same_actions(run: Run, tmp_path: Path) -> None:
    policy = load(run)
    export = load(run.export(tmp_path / "policy"))
    obs = np.random.default_rng(1).normal(size=(500, *(policy.observation_space.shape or ()))).astype(np.float32)
    np.testing.assert_array_equal(policy(obs), export(obs))
    text = (tmp_path / "policy" / "README.md").read_text(encoding="utf-8")
    assert f"--set seed={OPTIONS['seed']}" in text
    use = (
        text.partition("```python\n")[2].partition("```")[0].replace("path/to/this/directory", str(tmp_path / "policy"))
    )
    assert use.count("import") == 1
    names = {"observation": obs[0]}
    exec(use, names)  # the code that a reader copies from the card
    assert names["action"] == policy(obs[0])
    with pytest.raises(UsageError, match="is an export, which is greedy"):
        load(tmp_path / "policy", deterministic=False)


def test_card_without_a_command_names_the_wrapper_file(run: Run) -> None:
    about = {"checkpoint": "best-1", "step": 1, "wrap": ["/a/noise.py:Noise:k=1"]}
    spec = Spec(spaces.Box(-1, 1, (2,)), spaces.Discrete(2), 1, "X")
    text = card(replace(run.summary(), env="__main__:Mine"), run.config, about, spec)
    assert "rlplug run" not in text
    assert 'load("path/to/this/directory", trust=True)' in text
    assert "the wrapper's file" in text


def test_card_repeats_options_and_extensions_of_the_command(run: Run) -> None:
    about = {"checkpoint": "best-1", "step": 1, "wrap": []}
    spec = Spec(spaces.Box(-1, 1, (2,)), spaces.Discrete(2), 1, "X")
    controllers = ["plateau:patience=3,factor=0.9", "early-stopping:patience=30"]
    options = {**run.config["options"], "controller": controllers, "eval_wrap": [], "wrap": ["a", "b:k=1,l=2"]}
    origins = {**run.config["origins"], **dict.fromkeys(("controller", "eval_wrap", "wrap"), "option")}
    config = {**run.config, "options": options, "origins": origins}
    text = card(replace(run.summary(), extensions=((3000, False), (4000, True))), config, about, spec)
    assert "--controller plateau:patience=3,factor=0.9 --controller early-stopping:patience=30" in text
    assert "--wrap a --wrap b:k=1,l=2" in text
    assert "--eval-wrap none" in text
    extended = "rlplug resume again --total-timesteps 3000\nrlplug resume again --total-timesteps 4000 --rescale\n```"
    assert f" --name again\n{extended}" in text
    assert "rlplug resume" not in card(run.summary(), run.config, about, spec)


def test_card_says_if_the_policy_is_untrained(tmp_path: Path) -> None:
    run = train_chain(tmp_path, algorithm="dqn", learning_starts=80, batch_size=8)
    first, last = (run.export(tmp_path / name, checkpoint=name) for name in ("step-000000000040", "final"))
    message = f"after 40 of 120 env steps, seed 3, dqn had made no update on {ENVS}:Chain"
    assert (
        f"A policy that has learned nothing: {message}, and the weights are the initial ones."
        in (first / "README.md").read_text()
    )
    assert f"A policy that dqn learned on {ENVS}:Chain in 120 of 120 env steps" in (last / "README.md").read_text()


def test_card_shows_the_spaces_of_all_files(tmp_path: Path) -> None:
    options = {**OPTIONS, "total_timesteps": 64, "wrap": ["frame-stack:frames=3"]}
    run = train("a2c", "Pendulum-v1", options, out=tmp_path, hooks=False)
    policy = load(run.export(tmp_path / "policy"))
    text = (tmp_path / "policy" / "README.md").read_text()
    assert f"- Observations: `{policy.observation_space}`\n- Actions: `{policy.action_space}`\n- Wrap" in text
    assert "Box(-2.0, 2.0, (1,)" in text
    run.export(tmp_path / "other", torchscript=True)
    message = "- `policy.onnx` and `policy.pt`: from `Box([-1. -1. -8. -1. -1. -8. -1. -1. -8.]"
    text = (tmp_path / "other" / "README.md").read_text()
    assert message in " ".join(text.split())
    assert "to `Box(-1.0, 1.0, (1,), float32)`" in text


def test_wrappers_around_each_environment_stay_outside_the_policy(tmp_path: Path) -> None:
    """The spaces of a loaded policy are those after these wrappers. An export needs no trust: it runs none of them."""
    env_wrappers = ["gymnasium:RescaleAction:min_action=-3,max_action=1", "gymnasium:TimeAwareObservation"]
    options = {**OPTIONS, "total_timesteps": 64, "wrap": [*env_wrappers, "frame-stack:frames=3"]}
    run = train("a2c", "Pendulum-v1", options, out=tmp_path, hooks=False)
    policy = load(run)
    export = load(run.export(tmp_path / "policy"))
    assert (policy.observation_space, policy.action_space) == (export.observation_space, export.action_space)
    assert policy.observation_space.shape == (4,)
    env = gymnasium.wrappers.TimeAwareObservation(gymnasium.make("Pendulum-v1"))
    obs, _ = env.reset(seed=1)
    assert policy(obs) == pytest.approx(export(obs), abs=1e-5)
    text = (tmp_path / "policy" / "README.md").read_text()
    assert f"- Around the environment itself, put them there: `{env_wrappers[0]}`, `{env_wrappers[1]}`" in text
    assert "- Wrappers: `frame-stack:frames=3`" in text


def test_card_of_an_offline_run_counts_updates(run: Run) -> None:
    about = {"checkpoint": "best-1", "step": 60, "wrap": []}
    spec = Spec(spaces.Discrete(2), spaces.Discrete(2), 1, "X")
    config = {**run.config, "options": {**run.config["options"], "offline": True}}
    assert "in 60 of 120 updates, seed 3" in card(run.summary(), config, about, spec)
    assert "after 60 of 120 updates, seed 3" in card(run.summary(), config, about, spec, untrained=True)


def weights(run: Run, kind: str = "final") -> dict[str, torch.Tensor]:
    state = read(Checkpoints(run.directory.checkpoints_path).kept(kind)[0].path, "learner")[0]["learner"]
    return {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}


def test_warm_start_copies_the_weights(tmp_path: Path) -> None:
    first = train_chain(tmp_path, "first", "dqn", learning_starts=20)
    for name, options in (
        ("all", {"init": str(first.path), "init_parts": ["policy", "critic", "optimizer", "buffer"]}),
        ("named", {"init": str(first.path / "checkpoints" / first.checkpoints[-1])}),
    ):
        warm = train_chain(tmp_path, name, "dqn", learning_starts=10_000, **options)
        mine, theirs = weights(warm), weights(first)
        assert mine.keys() == theirs.keys()
        assert all(torch.equal(mine[name], theirs[name]) for name in mine)
        assert Path(warm.options["init"]).is_absolute()
    cold = weights(train_chain(tmp_path, "cold", "dqn", learning_starts=10_000))
    assert not all(torch.equal(cold[name], theirs[name]) for name in cold)


@pytest.mark.parametrize("algorithm", ["dqn", "vqn"])
def test_policy_part_includes_all_q_networks(algorithm: str, tmp_path: Path) -> None:
    """The new learner starts with the old policy and the old target network."""
    more: dict[str, Any] = {"learning_starts": 20} if algorithm == "dqn" else {}
    first = train_chain(tmp_path, "first", algorithm, **more)
    late: dict[str, Any] = {"learning_starts": 10_000} if algorithm == "dqn" else {"learning_rate": 1e-30}
    init = str(first.path / "checkpoints" / first.checkpoints[-1])
    warm = train_chain(tmp_path, "warm", algorithm, init=init, init_parts=["policy"], **late)
    mine, theirs = weights(warm), weights(first)
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)
    with pytest.raises(UsageError, match="has nothing for this learner's critic"):
        train_chain(tmp_path, "none", algorithm, init=init, init_parts=["critic"], **late)


def test_target_network_gets_the_weights_of_an_export(tmp_path: Path) -> None:
    first = train_chain(tmp_path, "first", "dqn", learning_starts=20)
    late = {"learning_starts": 10_000}
    export = str(first.export(tmp_path / "policy"))
    warm_weights = weights(train_chain(tmp_path, "warm", "dqn", init=export, init_parts=["policy"], **late))
    cold = weights(train_chain(tmp_path, "cold", "dqn", **late))
    layer = "advantage.linears.0.weight"
    assert torch.equal(warm_weights[f"q_network.{layer}"], warm_weights[f"target_network.{layer}"])
    assert not torch.equal(warm_weights[f"q_network.{layer}"], cold[f"q_network.{layer}"])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"init": "nobody"}, "no run at nobody"),
        ({"init": "runs/one/checkpoints/final-000000000100"}, "this checkpoint is gone, .* name the run, or an export"),
        ({"init_parts": ["polcy"]}, "no such part; did you mean 'policy'"),
        ({"env": f"{ENVS}:Bandit"}, r"do not fit: .* is \[.*\] there and \[.*\] here"),
        ({"net.hidden": [64, 64, 64]}, r"do not fit: there is no \S*linears.2.weight"),
        ({"net.hidden": [64]}, r"do not fit: \S*linears.1.weight is there and not here"),
        ({"init_parts": ["optimizer"], "optimizer": "adam"}, "the optimizers at .* do not fit"),
    ],
    ids=["name", "gone", "part", "shape", "more layers", "fewer layers", "optimizer"],
)
def test_invalid_initial_weights_are_refused(run: Run, tmp_path: Path, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        train_chain(tmp_path, "new", **{"init": str(run.path), **options})
    assert not (tmp_path / "new").exists()


def test_buffer_needs_the_same_number_of_environments(tmp_path: Path) -> None:
    first = train_chain(tmp_path, "first", "dqn", learning_starts=20)
    late: dict[str, Any] = {"init": first, "learning_starts": 10_000}
    second = train_chain(tmp_path, "second", "dqn", init_parts=["buffer"], **late)
    buffers = [
        read(Checkpoints(each.directory.checkpoints_path).kept("final")[0].path, "buffer")[0]["buffer"]
        for each in (first, second)
    ]
    assert [state["data"]["count"] for state in buffers] == [60, 120]
    assert not all(
        torch.equal(old, new) for old, new in zip(weights(first).values(), weights(second).values(), strict=True)
    )
    for options, sentence in (
        ({"num_envs": 3}, "num_envs is 2 there and 3 here"),
        ({"n_step": 3, "buffer_size": 50}, "buffer_size is .* there and 50 here; n_step is 1 there and 3 here"),
        ({"priority.alpha": 0.6}, "priority.alpha is none there and 0.6 here"),
    ):
        with pytest.raises(UsageError, match=sentence):
            train_chain(tmp_path, "none", "dqn", init_parts=["buffer"], **{**late, **options})
    assert not (tmp_path / "none").exists()


def test_warm_start_warns_about_wrappers_that_learned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = train_chain(tmp_path, "first", wrap=["normalize-obs"])
    train_chain(tmp_path, "second", wrap=["normalize-obs"], init=first)
    assert "which --init does not load" in capsys.readouterr().err
    train_chain(tmp_path, "third", init=train_chain(tmp_path, "plain"))
    assert "does not load" not in capsys.readouterr().err


def test_run_is_reproduced_exactly(run: Run) -> None:
    reproduction = reproduce(run, "again")
    assert reproduction.same, reproduction.differs
    assert reproduction.surroundings == []


@pytest.mark.parametrize("rescale", [False, True])
def test_extended_run_is_reproduced(tmp_path: Path, rescale: bool) -> None:
    old = train_chain(tmp_path, learning_rate="linear(1e-2,0)")
    resume(old, total_timesteps=200, rescale=rescale, hooks=False)
    reproduction = reproduce(old)
    assert reproduction.same, reproduction.differs
    assert reproduction.run.summary().steps == 200


def test_run_with_a_new_total_before_its_end_is_not_reproduced(tmp_path: Path) -> None:
    def stop(progress: Progress) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted):
        train("a2c", f"{ENVS}:Chain", OPTIONS, out=tmp_path, name="run", hooks=False, watch=stop)
    resume(tmp_path / "run", total_timesteps=200, hooks=False)
    with pytest.raises(UsageError, match=r"run run, interrupted at step \d+ of 120, continued to 200; .*had ended"):
        reproduce(tmp_path / "run")
    assert not (tmp_path / "run-again").exists()


def test_differences_are_named(run: Run, tmp_path: Path) -> None:
    other = train_chain(tmp_path, seed=4)
    first, *files = compare(run.directory, other.directory)
    assert "from step" in first
    assert "it was" in first
    assert [file for file in files if file.startswith("learner.safetensors")]


def test_unreadable_runs_do_not_hide_others(run: Run, tmp_path: Path) -> None:
    for name, content in (("empty", ""), ("torn", '{"name": '), ("list", "[]"), ("lacking", "{}")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(content)
    summaries = [*map(summary, [*sorted(tmp_path.iterdir()), run.path])]
    assert [each.status for each in summaries] == ["unreadable"] * 4 + ["finished"]
    assert all("config.json cannot be used" in each.problem for each in summaries[:4])
    assert (summaries[4].last, summaries[4].steps) == (run.curve()[1][-1], 120)


def test_running_run_is_not_removed(tmp_path: Path) -> None:
    run = train_chain(tmp_path)
    run.directory.lock()
    assert summary(run.path).status == "running"
    with pytest.raises(UsageError, match="is running; stop it before you remove it"):
        remove(run.path)
    run.directory.unlock()
    remove(run.path)
    assert not run.path.exists()
