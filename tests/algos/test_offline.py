"""CQL and IQL: losses against slow references; runs with only a data set, and their errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch import Tensor

from rlplug_core.buffers.dataset import FIELDS
from rlplug_core.buffers.dataset_files import read
from rlplug_core.clock import Clock
from rlplug_core.errors import UsageError
from rlplug_core.learning.losses import expectile_loss
from rlplug_core.loop.build import build
from rlplug_core.loop.plan import Plan
from rlplug_core.runs.api import resume, train
from rlplug_core.runs.checkpoint import Checkpoints
from rlplug_core.runs.checkpoint import read as read_checkpoint
from rlplug_core.runs.data import with_dataset
from rlplug_core.runs.reproduction import reproduce
from rlplug_core.runs.run import open_run
from tests.algos.conftest import ENVS
from tests.algos.losses import gradients_of, scatter
from tests.algos.test_sac_family import SMALL, continuous

CONTINUOUS = ENVS + "Continuous"
WEIGHTS = torch.tensor([1.0, 0.0, 0.25, 2.0])
QUICK = {
    "net.hidden": [16], "batch_size": 32, "total_timesteps": 60, "eval_episodes": 5, "final_eval_episodes": 5,
    "log_every": 20, "eval_every": 30, "checkpoint_every": 20,
}  # fmt: skip


def test_expectile_minimizes_the_loss() -> None:
    """The gradient of the mean loss is 0 if the weighted errors below and above are equal: by bisection."""
    target = torch.tensor([0.0, 1.0, 4.0, 10.0])
    for expectile in (0.1, 0.5, 0.9):
        low, high = 0.0, 10.0
        for _ in range(60):
            middle = (low + high) / 2
            above = sum(expectile * max(float(t) - middle, 0) for t in target)
            below = sum((1 - expectile) * max(middle - float(t), 0) for t in target)
            low, high = (middle, high) if above > below else (low, middle)
        value = torch.full((4,), low, requires_grad=True)
        (slope,) = torch.autograd.grad(expectile_loss(value, target, expectile).mean(), value)
        assert abs(float(slope.sum())) < 1e-5
        for v in (2.0, 7.0):
            got = expectile_loss(torch.full((4,), v), target, expectile)
            wanted = [abs(expectile - float(t - v < 0)) * float(t - v) ** 2 for t in target]
            torch.testing.assert_close(got, torch.tensor(wanted))


def iql_reference(learner: Any, batch: Any) -> tuple[Tensor, Tensor]:
    """Return the losses of critics with values and of the policy, row by row."""
    c = learner.config
    critics = []
    policies = []
    for i in range(len(batch.action)):
        obs, action = batch.obs[i : i + 1], batch.action[i : i + 1]
        with torch.no_grad():
            q_old = min(float(one(obs, action)) for one in learner.target_critics.members)
            target = float(batch.reward[i]) + float(batch.discount[i]) * float(learner.value(batch.next_obs[i : i + 1]))
            advantage = q_old - float(learner.value(obs))
        error = q_old - learner.value(obs)
        loss = abs(c.expectile - float(error < 0)) * error.square()
        loss = loss + sum((one(obs, action) - target).square() for one in learner.critics.members)
        critics.append(batch.weight[i] * loss.sum())
        mean, log_std = learner.policy(obs)[0]
        density = -0.5 * ((action[0, 0] - mean) / log_std.exp()) ** 2 - log_std - 0.5 * math.log(2 * math.pi)
        policies.append(-batch.weight[i] * min(math.exp(c.beta * advantage), c.max_weight) * density)
    count = max(1, int((batch.weight > 0).sum()))
    return torch.stack(critics).sum() / count, torch.stack(policies).sum() / count


@pytest.mark.parametrize(("expectile", "beta", "max_weight"), [(0.7, 3.0, 100.0), (0.9, 10.0, 2.0), (0.5, 0.0, 100.0)])
def test_iql_losses_equal_the_reference(
    make_learner: Callable[..., Any], expectile: float, beta: float, max_weight: float
) -> None:
    learner = make_learner("iql", "Continuous", expectile=expectile, beta=beta, max_weight=max_weight, **SMALL)
    scatter(learner)
    batch = continuous(8, WEIGHTS.repeat(2))
    critics = learner.critic_loss(batch, learner.config)[0]
    policy = learner.policy_loss(batch, learner.config)[0]
    wanted_critics, wanted_policy = iql_reference(learner, batch)
    torch.testing.assert_close(critics, wanted_critics, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(policy, wanted_policy, rtol=1e-4, atol=1e-5)
    for got, wanted, part in (
        (critics, wanted_critics, "critics"),
        (critics, wanted_critics, "value"),
        (policy, wanted_policy, "policy"),
    ):
        for one, other in zip(
            gradients_of(got, getattr(learner, part)), gradients_of(wanted, getattr(learner, part)), strict=True
        ):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(("start", "bound"), [(-9.0, -5.0), (3.0, 2.0)])
def test_iql_std_stays_within_bounds(make_learner: Callable[..., Any], start: float, bound: float) -> None:
    """An action that is always the same would let it fall forever."""
    learner = make_learner("iql", "Continuous", **SMALL)
    (log_std,) = [parameter for name, parameter in learner.policy.named_parameters() if "log_std" in name]
    log_std.data.fill_(start)
    learner.update(continuous(8, torch.ones(8)), Clock(10))
    assert log_std.tolist() == [bound]


def cql_reference(learner: Any, batch: Any, noise: Tensor, others: Tensor, uniform: Tensor) -> Tensor:
    """Return the loss of the critics, action by action (eq. 4 of the paper, and appendix F for the first term)."""
    c = learner.config
    losses = []
    n = uniform.shape[1]
    for i in range(len(batch.action)):
        obs, after = batch.obs[i : i + 1], batch.next_obs[i : i + 1]
        with torch.no_grad():
            action, log_prob = learner.head.draw(learner.policy(after), noise[i : i + 1])
            next_q = min(float(one(after, action)) for one in learner.target_critics.members)
            bonus = float(learner.temperature.log.exp() * log_prob) if c.soft_q_backup else 0.0
            target = float(batch.reward[i]) + float(batch.discount[i]) * (next_q - bonus)
            drawn = [learner.head.draw(learner.policy(obs), others[i, k : k + 1]) for k in range(n)]
        for one in learner.critics.members:
            total = sum(one(obs, uniform[i, k : k + 1]).exp() / 0.5 for k in range(n)) / (2 * n)
            total = total + sum(one(obs, a).exp() / p.exp() for a, p in drawn) / (2 * n)
            q = one(obs, batch.action[i : i + 1])
            losses.append(batch.weight[i] * (c.conservative_weight * (total.log() - q) + 0.5 * (q - target) ** 2).sum())
    return torch.stack(losses).sum() / max(1, int((batch.weight > 0).sum()))


@pytest.mark.parametrize(("weight", "soft"), [(5.0, False), (0.5, True), (0.0, False)])
def test_cql_critic_loss_equals_the_reference(make_learner: Callable[..., Any], weight: float, soft: bool) -> None:
    learner = make_learner(
        "cql", "Continuous", conservative_weight=weight, soft_q_backup=soft, n_action_samples=4, **SMALL
    )
    scatter(learner)
    batch = continuous(8, WEIGHTS.repeat(2))
    noise = torch.randn(8, 1)
    others = torch.randn(8, 4, 1)
    uniform = torch.rand(8, 4, 1) * 2 - 1
    loss = learner.critic_loss(batch, noise, others, uniform, learner.config)[0]
    expected = cql_reference(learner, batch, noise, others, uniform)
    torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-5)
    for got, wanted in zip(gradients_of(loss, learner.critics), gradients_of(expected, learner.critics), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-5)
    assert all(parameter.grad is None or not parameter.grad.any() for parameter in learner.policy.parameters())


def test_cql_policy_loss_equals_sac(make_learner: Callable[..., Any]) -> None:
    cql = make_learner("cql", "Continuous", **SMALL)
    sac = make_learner("sac", "Continuous", **SMALL)
    scatter(cql)
    for part in ("policy", "critics", "temperature"):
        getattr(sac, part).load_state_dict(getattr(cql, part).state_dict())
    batch = continuous(8)
    noise = torch.randn(8, 1)
    one = cql.policy_loss(batch, noise, cql.config, False)[0]
    other = sac.policy_loss(batch, noise, sac.config)[0]
    torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_cql_policy_imitates_at_first(make_learner: Callable[..., Any]) -> None:
    learner = make_learner("cql", "Continuous", bc_steps=2, ent_coef=1e-12, autotune=False, **SMALL)
    scatter(learner)
    learner.temperature.log.zero_()
    batch = continuous(8)
    noise = torch.randn(8, 1)
    loss = learner.policy_loss(batch, noise, learner.config, imitates=True)[0]
    torch.testing.assert_close(loss, -batch.mean(learner.head.log_prob(learner.policy(batch.obs), batch.action)))
    with pytest.MonkeyPatch.context() as patch:
        policy_loss = Mock(wraps=learner.policy_loss)
        patch.setattr(learner, "policy_loss", policy_loss)
        for number in range(4):
            learner.update(batch, Clock(100, updates=number))
    assert [call.kwargs["imitates"] for call in policy_loss.call_args_list] == [True, True, False, False]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Record transitions of a policy with actions around half of the best one."""
    generator = np.random.default_rng(1)
    obs = generator.uniform(-1, 1, (2_001, 1)).astype(np.float32)
    action = (obs[:-1] / 4 + generator.normal(0, 0.4, (2_000, 1))).clip(-1, 1).astype(np.float32)
    reward = -np.square(action - obs[:-1] / 2)[:, 0]
    ended = np.ones(2_000, bool)
    path = tmp_path_factory.mktemp("data") / "continuous.npz"
    np.savez(path, **dict(zip(FIELDS, (obs[:-1], action, reward, obs[1:], ended, ~ended), strict=True)))
    return path


@pytest.mark.parametrize("algorithm", ["cql", "iql", pytest.param("sac", marks=pytest.mark.slow)])
def test_policy_is_better_than_its_data(tmp_path: Path, data: Path, algorithm: str) -> None:
    options = {**QUICK, "total_timesteps": 600, "learning_rate": 1e-2, "critic_learning_rate": 1e-2}
    more = {} if algorithm != "cql" else {"conservative_weight": 0.5}
    run = train(
        algorithm,
        CONTINUOUS,
        {**options, **more, "offline": True, "dataset": str(data), "eval_episodes": 50},
        out=tmp_path,
        hooks=False,
    )
    recorded = float(read(str(data)).arrays["rewards"].mean())
    assert recorded < -0.15
    assert run.evaluate(100, checkpoint="final").mean > recorded / 3


def test_offline_run_steps_no_environment(tmp_path: Path, data: Path) -> None:
    """Its clock counts updates; checkpoints store only the hash of the data."""
    run = train("iql", CONTINUOUS, {**QUICK, "offline": True, "dataset": str(data)}, out=tmp_path, hooks=False)
    dataset = read(str(data))
    assert run.config["dataset"] == {"place": str(data), "sha256": dataset.sha256, "transitions": 2_000}
    final = Checkpoints(run.path / "checkpoints").kept("final")[0]
    components = read_checkpoint(final.path)[0]
    assert (components["clock"]["steps"], components["clock"]["updates"]) == (60, 60)
    assert components["buffer"]["data"] == dataset.sha256
    assert "actor" not in components
    assert not len(run.episodes()["steps"])
    assert sum(file.stat().st_size for file in final.path.glob("buffer*")) < 4_000


def kill_at(path: Path, step: int) -> None:
    """Change a run so that it looks killed after its checkpoint at `step`."""
    for saved in Checkpoints(path / "checkpoints").kept():
        if saved.kind == "final" or (saved.kind == "step" and saved.step > step):
            for file in saved.path.iterdir():
                file.unlink()
            saved.path.rmdir()


def test_changed_data_set_raises(tmp_path: Path, data: Path) -> None:
    copy = tmp_path / "copy.npz"
    copy.write_bytes(data.read_bytes())
    run = train("iql", CONTINUOUS, {**QUICK, "offline": True, "dataset": str(copy)}, out=tmp_path, hooks=False)
    kill_at(run.path, 40)
    arrays = dict(read(str(copy)).arrays)
    np.savez(copy, **{**arrays, "rewards": arrays["rewards"] + 1})
    message = r"the data set .*copy.npz has changed since the run started: its SHA-256 is .*; bring back the old one"
    with pytest.raises(UsageError, match=message):
        resume(run, hooks=False)
    copy.unlink()
    assert open_run(run.path).evaluate(2).episodes == 2  # the evaluation does not need the data
    with pytest.raises(UsageError, match=r"the data set .*copy.npz of run .* is gone; bring it back"):
        resume(run, hooks=False)
    np.savez(copy, **arrays)
    resume(run, hooks=False)
    assert run.status == "finished"


def test_data_set_that_moved_with_its_run_is_found(tmp_path: Path, data: Path) -> None:
    project = tmp_path / "project"
    (project / "data").mkdir(parents=True)
    copy = project / "data" / "copy.npz"
    copy.write_bytes(data.read_bytes())
    options = {**QUICK, "offline": True, "dataset": str(copy)}
    run = train("iql", CONTINUOUS, options, out=project / "runs", hooks=False)
    (tmp_path / "copy.npz").write_bytes(b"another one, farther away")
    start = project.rename(tmp_path / "start") / "runs" / run.name
    assert reproduce(open_run(start)).same
    kill_at(start, 40)
    assert resume(start, hooks=False).status == "finished"


def test_runs_of_a_data_set_are_a_group_at_any_path(tmp_path: Path, data: Path) -> None:
    copy = tmp_path / "copy.npz"
    copy.write_bytes(data.read_bytes())
    options = {**QUICK, "offline": True, "total_timesteps": 2}
    runs = [
        train("iql", CONTINUOUS, {**options, "dataset": str(one)}, out=tmp_path, name=name, hooks=False)
        for one, name in ((data, "a"), (copy, "b"))
    ]
    assert runs[0].config["group"] == runs[1].config["group"]
    assert not reproduce(runs[0]).differs


def test_recording_is_a_data_set(tmp_path: Path) -> None:
    """The steps of each row are consecutive; rewards follow from the actions as the file has them."""
    run = train("iql", CONTINUOUS, {**QUICK, "learning_starts": 32}, out=tmp_path, hooks=False)
    learner = run.record(tmp_path / "new.npz", 31, num_envs=3, stochastic=True)
    dataset = read(str(tmp_path / "new.npz"))
    assert len(dataset) == len(learner.dataset) == 33
    assert dataset.sha256 == learner.dataset.sha256
    assert dataset.env == CONTINUOUS
    taken = dataset.arrays["actions"][:, 0]
    seen = dataset.arrays["observations"][:, 0]
    np.testing.assert_allclose(dataset.arrays["rewards"], -np.square(taken.clip(-1, 1) - seen / 2), atol=1e-5)
    assert len(learner.returns) == 33
    with pytest.raises(UsageError, match="exists already"):
        run.record(tmp_path / "new.npz", 3)
    with pytest.raises(UsageError, match=r"ends with .npz"):
        run.record(tmp_path / "new.csv", 3)


def test_recording_names_the_file_of_its_environment_at_any_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.py"
    file.write_text("from tests.core.fakes import ENVS\nfrom rlplug_core.testing.envs import Continuous as Mine\n")
    run = train("iql", f"{file}:Mine", {**QUICK, "learning_starts": 32}, out=tmp_path / "runs", hooks=False)
    assert run.record(tmp_path / "new.npz", 8).dataset.env == f"{file}:Mine"
    options = {**QUICK, "offline": True, "dataset": str(tmp_path / "new.npz")}
    offline = train("iql", f"{file}:Mine", options, out=tmp_path / "runs", hooks=False)
    assert reproduce(offline).same
    assert "says that it was recorded in" not in capsys.readouterr().err
    train("iql", CONTINUOUS, options, out=tmp_path / "runs", hooks=False)
    said = f"new.npz says that it was recorded in {file}:Mine, and this run is in {CONTINUOUS}"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("algorithm", "options", "message"),
    [
        ("iql", {"offline": True}, "an offline run learns only from a data set; name it: --dataset"),
        ("iql", {"dataset": "none.npz"}, "there is no data set none.npz"),
        ("iql", {"dataset": "DATA", "offline": True, "max_episodes": 3}, "no training episodes to count"),
        ("iql", {"dataset": "DATA", "runner": "decoupled"}, "--dataset works only with --runner sync"),
        ("a2c", {"dataset": "DATA", "offline": True}, "a2c neither asks for a data set nor has a replay buffer"),
        ("iql", {"dataset": "DATA", "init": "run", "init_parts": ["buffer"]}, "no run at run"),
    ],
)
def test_invalid_values_raise(
    tmp_path: Path, data: Path, algorithm: str, options: dict[str, Any], message: str
) -> None:
    given = {name: str(data) if value == "DATA" else value for name, value in options.items()}
    batch = {} if algorithm != "a2c" else {"batch_size": None}
    options = {name: value for name, value in {**QUICK, **batch, **given}.items() if value is not None}
    with pytest.raises(UsageError, match=message):
        train(algorithm, CONTINUOUS, options, out=tmp_path, hooks=False)
    assert not [*tmp_path.iterdir()]


def test_data_sets_have_no_memories(tmp_path: Path, data: Path) -> None:
    with pytest.raises(UsageError, match="a data set has no recurrent states, which r2d2 needs"):
        train("r2d2", ENVS + "Chain", {"offline": True, "dataset": str(data)}, out=tmp_path, hooks=False)


def test_data_set_of_another_environment_raises(tmp_path: Path, data: Path) -> None:
    with pytest.raises(UsageError, match=r"the data set .* does not fit: 'observations' has shape"):
        train("dqn", ENVS + "Chain", {"offline": True, "dataset": str(data)}, out=tmp_path, hooks=False)
    assert not [*tmp_path.iterdir()]


def test_controller_has_no_environment_to_change(tmp_path: Path, data: Path) -> None:
    plan = Plan.make("iql", CONTINUOUS, {**QUICK, "offline": True, "dataset": str(data)})
    runner = build(with_dataset(plan), Clock(60))
    with pytest.raises(UsageError, match="a controller sets difficulty of the environments, and an offline run has"):
        runner.configure({"difficulty": 3})
