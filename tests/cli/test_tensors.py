"""Environments that give tensors: the same learning as with arrays, no device reads in rollouts, exact resume."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict
from gymnasium.vector import VectorEnv

from rlplug_algos.policy_gradient.ppo import PPO as PPOLearner
from rlplug_core import Memory
from rlplug_core.acting.random_agent import RandomAgent
from rlplug_core.arrays import to_host
from rlplug_core.batches import Rollout
from rlplug_core.buffers import free_memory
from rlplug_core.buffers.device_replay import DeviceReplay
from rlplug_core.buffers.replay import ReplaySchedule
from rlplug_core.buffers.rollout import FIELDS
from rlplug_core.clock import Clock
from rlplug_core.config.schema import schema
from rlplug_core.errors import BadEnv, PluginError, UsageError
from rlplug_core.loop.actor import carry_over
from rlplug_core.loop.build import build, require_replay
from rlplug_core.loop.device_memory import _needs, device_memory
from rlplug_core.loop.env_timing import choose_env_workers
from rlplug_core.loop.info_columns import InfoColumns
from rlplug_core.loop.plan import Plan
from rlplug_core.loop.sync import step_and_train
from rlplug_core.loop.sync import train as update
from rlplug_core.plugins import algorithm as find_algorithm
from rlplug_core.plugins import preset_values
from rlplug_core.plugins.tensor_world import TensorWorld
from rlplug_core.runs.api import train
from rlplug_core.runs.checkpoint import Checkpoints, read
from rlplug_core.runs.listing import records
from rlplug_core.runs.messages import walk
from rlplug_core.seeds import Draws, Seeds
from rlplug_core.testing.host_reads import HostReads
from rlplug_core.types import Act, Step, tree_map
from rlplug_envs.families.tensor import WORLDS as WORLD_CLASSES
from rlplug_envs.tensors.adapter import TensorAdapter
from rlplug_envs.tensors.cart_pole import CartPole
from rlplug_envs.tensors.pendulum import Pendulum
from tests.cli.conftest import Result
from tests.cli.test_mirror import client, history, journal_points, send_all

ROWS = 16
ROOT = Path(__file__).parents[2]
NO_MLFLOW = {"RLPLUG_DISABLED_PLUGINS": "mlflow"}


class OnHost(VectorEnv[Any, Any, Any]):
    """Gives the numbers of a world in torch as arrays."""

    def __init__(self, world: TensorWorld) -> None:
        self.world = world
        self.num_envs = world.num_envs
        self.metadata = dict(world.metadata)
        self.single_observation_space = world.single_observation_space
        self.single_action_space = world.single_action_space
        self.spec = None

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        obs, _ = self.world.reset(seed=seed)
        return tree_map(lambda part: part.clone().numpy(), obs), {}

    def step(self, actions: Any) -> Any:
        *results, info = self.world.step(torch.from_numpy(np.array(actions)))
        return tuple(tree_map(lambda part: part.clone().numpy(), result) for result in (*results, info))


class ShortPole(CartPole):
    """Truncates episodes inside a rollout."""

    time_limit = 13


class PolicyAndCritic(ShortPole):
    """The policy observes positions and angles, the critic everything."""

    single_observation_space: Any = Dict(
        {"policy": Box(-np.inf, np.inf, (2,)), "critic": CartPole.single_observation_space}
    )

    def observe(self, rows: Any) -> Any:
        return {"policy": rows["state"][:, ::2], "critic": rows["state"]}


class CostlyPole(ShortPole):
    """Gives the cost of a step in `info`."""

    def step(self, action: torch.Tensor) -> Any:
        *results, info = super().step(action)
        return *results, {**info, "cost": info["final_obs"][:, 0].abs()}


class CarefulPPO(PPOLearner):
    """Learns from rewards minus costs; the cost is a signal."""

    signals = ("cost",)

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Any:
        assert float(batch.extras["cost"].max()) > 0
        return super().learn(replace(batch, reward=batch.reward - batch.extras["cost"]), now, clock)


class Leaky(Memory):
    """A memory of a plugin: a moving mean of the features, and the number of steps in the episode."""

    units = 64

    def __init__(self, features: int, config: Any = None) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(features, self.units)

    def initial(self, num_envs: int) -> Any:
        return {"h": np.zeros((num_envs, 64), np.float32), "age": np.zeros((num_envs, 1), np.float32)}

    def step(self, features: torch.Tensor, before: Any) -> Any:
        age = before["age"] + 1
        return {"h": 0.9 * before["h"] + self.layer(features).tanh() / age, "age": age}


class SameNumbers:
    """The random numbers of an agent on the host, as tensors."""

    def __init__(self, agent: Any, rows: int) -> None:
        generator = agent.seeds.generator()
        self.draws = Draws(generator, lambda source, size: agent.noise(source, (size, rows)))

    def next(self, rows: int = 0) -> torch.Tensor:
        return torch.from_numpy(np.array(self.draws.next(rows)))


def runner(algorithm: str, env: object, **options: Any) -> Any:
    plan = Plan.make(algorithm, env, {"num_envs": ROWS, "total_timesteps": 10**6, "seed": 3, **options})
    return build(plan, Clock(10**6))


class SameIntegers:
    """The random numbers of a replay buffer on the host, as tensors."""

    def __init__(self, generator: np.random.Generator) -> None:
        self.generator = generator

    def integers(self, low: int, high: int, size: int) -> torch.Tensor:
        return torch.from_numpy(self.generator.integers(low, high, size))


class ShortPendulum(Pendulum):
    time_limit = 13


def tensor_rows(num_envs: int, device: str) -> TensorWorld:
    return ShortPole(num_envs, device)


def host_rows(num_envs: int) -> OnHost:
    return OnHost(ShortPole(num_envs))


def tensor_costs(num_envs: int, device: str) -> TensorWorld:
    return CostlyPole(num_envs, device)


def host_costs(num_envs: int) -> OnHost:
    return OnHost(CostlyPole(num_envs))


def tensor_pendulums(num_envs: int, device: str) -> TensorWorld:
    return ShortPendulum(num_envs, device)


def host_pendulums(num_envs: int) -> OnHost:
    return OnHost(ShortPendulum(num_envs))


def tensor_views(num_envs: int, device: str) -> TensorWorld:
    return PolicyAndCritic(num_envs, device)


def host_views(num_envs: int) -> OnHost:
    return OnHost(PolicyAndCritic(num_envs))


def train_updates(algorithm: str, env: Callable[..., object], count: int, **options: Any) -> Any:
    trainer = runner(algorithm, env, **options)
    if trainer.actor.env.spec.device is not None:
        agent = getattr(trainer.actor.agent, "agent", trainer.actor.agent)
        agent = getattr(agent, "chooser", agent)  # it draws for Q-networks with a memory
        agent.draws = SameNumbers(agent, ROWS)
    if isinstance(trainer.actor.buffer, DeviceReplay):
        trainer.actor.buffer.draws = SameIntegers(trainer.actor.buffer.generator)
    while trainer.clock.updates < count:
        step_and_train(trainer.actor, trainer.clock, trainer.meter)
    return trainer


PPO = {"n_steps": 32, "batch_size": 64, "n_epochs": 2}
A2C = {"n_steps": 16}
SEQUENCES = {
    "learning_starts": 16 * ROWS,
    "sequence_length": 8,
    "burn_in": 2,
    "batch_size": 32,
    "buffer_size": 24 * ROWS,
    "train_freq": ROWS,
}
REPLAY = {"learning_starts": 64, "batch_size": 16, "buffer_size": 24 * ROWS, "train_freq": ROWS}


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        ("ppo", PPO),
        ("ppo", {**PPO, "normalize_reward": True, "net.normalize_obs": True}),
        ("ppo", {**PPO, "memory": "gru"}),
        pytest.param("ppo", {**PPO, "memory": "lstm", "net.normalize_obs": True}, marks=pytest.mark.slow),
        ("ppo", {**PPO, "memory": f"{__file__}:Leaky"}),
        pytest.param(f"{__file__}:CarefulPPO", PPO, marks=pytest.mark.slow),
        (f"{__file__}:CarefulPPO", {**PPO, "memory": "gru"}),
        ("ppo", {**PPO, "noisy": "factorized"}),
        ("ppo", {**PPO, "desired_kl": 0.01, "anneal_lr": False}),
        ("a2c", A2C),
        ("a2c", {**A2C, "noisy": "independent"}),
        ("pqn", PPO),
        ("vqn", {}),
        ("dqn", {**REPLAY, "n_step": 3}),
        ("dqn", {**REPLAY, "softmax_temperature": 0.1}),
        ("dqn", {**REPLAY, "priority.alpha": 0.6}),
        ("dqn", {**SEQUENCES, "memory": "gru"}),
        ("td3", {**REPLAY, "random_steps": 64, "action_noise": "ornstein-uhlenbeck"}),
        ("sac", {**REPLAY, "random_steps": 64, "n_step": 2, "gradient_steps": 2}),
        pytest.param(
            "td3", {**REPLAY, "noise_sigma": 0.01, "noise_sigma_max": 0.4, "n_atoms": 11}, marks=pytest.mark.slow
        ),
        ("sac", {**REPLAY, "n_atoms": 11, "optimizer": "AdamW"}),
        pytest.param("sac", {**SEQUENCES, "memory": "gru"}, marks=pytest.mark.slow),
    ],
)
def test_arrays_and_tensors_give_the_same_weights(algorithm: str, options: dict[str, Any]) -> None:
    """The replay buffers overwrite their oldest steps in these runs."""
    count = 40 if "buffer_size" in options else 10
    arrays, tensors = host_rows, tensor_rows
    if algorithm.endswith("CarefulPPO"):
        arrays, tensors = host_costs, tensor_costs
    elif algorithm in {"td3", "sac"}:
        arrays, tensors = host_pendulums, tensor_pendulums
    host = train_updates(algorithm, arrays, count, **options)
    device = train_updates(algorithm, tensors, count, **options)
    differences = [
        float((expected - actual).detach().abs().max())
        for expected, actual in zip(host.learner.parameters(), device.learner.parameters(), strict=True)
    ]
    assert max(differences) < 1e-5
    assert [(at, episode.row, episode.length) for at, episode in host.actor.episodes] == [
        (at, episode.row, episode.length) for at, episode in device.actor.take_episodes()
    ]


def test_critic_with_other_observations_learns_the_same_from_tensors() -> None:
    options = {**PPO, "net.obs": ["policy"], "critic_net.obs": ["critic"]}
    host = train_updates("ppo", host_views, 6, **options)
    device = train_updates("ppo", tensor_views, 6, **options)
    pairs = list(zip(host.learner.parameters(), device.learner.parameters(), strict=True))
    assert max(float((expected - actual).detach().abs().max()) for expected, actual in pairs) < 1e-5
    assert {2, 4} <= {weight.shape[1] for weight in device.learner.parameters() if weight.ndim == 2}


def mirror(obs: Any, action: Any) -> Any:
    """The mirror image of a cart with a pole."""
    return -obs, 1 - action


@pytest.mark.parametrize("rows", [tensor_rows, host_rows])
def test_symmetry_makes_a_policy_symmetric(rows: Any) -> None:
    """Compares the probability of an action with that of its mirror image after ten updates."""

    def asymmetry(symmetry: str | None) -> float:
        options = {**PPO, "n_epochs": 10, "learning_rate": 3e-3, "anneal_lr": False, "symmetry": symmetry}
        policy = train_updates("ppo", rows, 10, **options).learner.policy
        obs = torch.rand((256, 4), generator=torch.Generator().manual_seed(0)) - 0.5
        with torch.no_grad():
            right, image = (policy(each).softmax(-1) for each in (obs, -obs))
        return float((right[:, 1] - image[:, 0]).abs().mean())

    assert 3 * asymmetry(f"{__file__}:mirror") < asymmetry(None)


def test_invalid_symmetry_is_refused() -> None:
    with pytest.raises(PluginError, match=r"the symmetry '.*:wrong_mirror' returns .* of the same shapes"):
        train_updates("ppo", tensor_rows, 1, **PPO, symmetry=f"{__file__}:wrong_mirror")
    with pytest.raises(UsageError, match="a memory has no mirror image"):
        runner("ppo", tensor_rows, **PPO, symmetry=f"{__file__}:mirror", memory="gru")


def wrong_mirror(obs: Any, action: Any) -> Any:
    return -obs[:, :2], 1 - action


def test_signals_of_tensors_are_checked() -> None:
    """A missing signal, a signal of another size, and numbers that are not finite."""
    env = runner("ppo", tensor_rows, **PPO).actor.env
    env.reset(0)
    info: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(env), "info_tensor", lambda self, key: info.get(key))
        columns = InfoColumns.of(cast("Any", CarefulPPO), env)
        assert columns is not None
        everywhere: Any = torch.ones(ROWS, dtype=torch.bool)
        with pytest.raises(UsageError, match=r"type learns from info\['cost'\], which .* does not give"):
            columns.add_to({}, everywhere)
        info["cost"] = torch.ones(3)
        with pytest.raises(BadEnv, match=r"has the shape \[3\], and there are 16 rows"):
            columns.add_to({}, everywhere)
        info["cost"] = torch.full((ROWS, 1), torch.inf)
        some: Any = torch.arange(ROWS) < 4
        assert columns.add_to({}, some)["cost"].tolist() == [torch.inf] * 4 + [0.0] * 12
    with pytest.raises(BadEnv, match=r"was not finite: info\['cost'\]"):
        columns.check()


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        ("ppo", PPO),
        ("a2c", A2C),
        ("pqn", PPO),
        (f"{__file__}:CarefulPPO", {**PPO, "memory": "lstm"}),
    ],
)
def test_rollout_never_waits_for_the_device(algorithm: str, options: dict[str, Any]) -> None:
    trainer = train_updates(algorithm, tensor_costs, 2, **options)
    while trainer.actor.buffer.position:
        step_and_train(trainer.actor, trainer.clock, trainer.meter)
    with HostReads() as reads:
        for _ in range(options["n_steps"]):
            trainer.actor.buffer.add(trainer.actor.step())
    assert reads.counts == {}
    update(trainer.learner, trainer.actor.buffer, trainer.clock, trainer.meter)
    episodes = trainer.actor.take_episodes()
    assert len(episodes) > ROWS
    assert all(to_host(torch.tensor(episode.total)) == episode.length <= 13 for _, episode in episodes)


@pytest.mark.slow
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("algorithm", ["ppo", "pqn"])
def test_cuda_sees_no_synchronization_in_a_rollout(algorithm: str) -> None:
    """Like the test above with CUDA's own check, which raises if a call waits for the device."""
    trainer = runner(algorithm, tensor_costs, device="cuda", **PPO)
    while trainer.clock.updates < 2 or trainer.actor.buffer.position:
        step_and_train(trainer.actor, trainer.clock, trainer.meter)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(PPO["n_steps"] - 1):
            trainer.actor.buffer.add(trainer.actor.step())
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert trainer.actor.buffer.position == PPO["n_steps"] - 1


#: Algorithms that refuse tensors, each with the reason.
REFUSED = {
    "independent": "GroupsAgent acts on arrays, .* use an algorithm that takes tensors, such as ppo",
    "mappo": "mappo .* use ppo",
    "self-play": "SelfPlayAgent acts on arrays",
}
#: An algorithm of a third party, which does not know tensors.
THIRD_PARTY = f"{ROOT}/examples/my_algo.py:MyAlgo"


@pytest.mark.slow
def test_algorithms_learn_from_tensors_or_refuse_them() -> None:
    """Agents do not read from the device, and no code turns a tensor into an array without a copy to the host."""
    algorithms = sorted(path.stem for path in (ROOT / "rlplug-algos/src/rlplug_algos/index").glob("*.json"))
    assert len(algorithms) > 40
    faults = []
    for algorithm in [*algorithms, THIRD_PARTY]:
        try:
            trainer, reads = _count_reads(algorithm)
        except UsageError as error:
            if not re.search(REFUSED.get(algorithm, "^$"), str(error)):
                faults.append(f"{algorithm}: {error}")
            continue
        if algorithm in REFUSED or reads["acting"] or reads["__array__"] or trainer.clock.updates < 4:
            faults.append(f"{algorithm}: {trainer.clock.updates} updates, {reads}")
    assert not faults


def _count_reads(algorithm: str) -> tuple[Any, Counter[str]]:
    """Return a trainer after four updates, and the device reads in updates 2 to 4 and while acting."""
    kind: Any = find_algorithm(algorithm)
    small = {"learning_starts": 640, "batch_size": 64, "buffer_size": 64 * ROWS, "train_freq": ROWS, "n_steps": 8}
    names = {option.name for option in schema(kind.Config)}
    continuous = "Discrete" not in (kind.actions or ("Discrete",))
    trainer = runner(
        algorithm,
        tensor_pendulums if continuous else tensor_rows,
        runner="sync",
        **{name: value for name, value in small.items() if name in names},
    )
    while not trainer.clock.updates:
        step_and_train(trainer.actor, trainer.clock, trainer.meter)
    with HostReads() as reads:
        while trainer.clock.updates < 4:
            step_and_train(trainer.actor, trainer.clock, trainer.meter)
    with HostReads() as acting:
        for _ in range(8):
            trainer.actor.step()
    return trainer, reads.counts | Counter(acting=acting.counts.total())


def act_inline(trainer: Any, count: int) -> Any:
    """Learn from at least `count` chunks of actors in this process."""
    for actor in trainer.fleet.actors:
        if actor.env.spec.device is not None and not isinstance(actor.agent.draws, SameNumbers):
            actor.agent.draws = SameNumbers(actor.agent, ROWS)
    while count:
        for chunk in trainer.fleet.receive():
            trainer._take(chunk)
            count -= 1
    return trainer


INLINE = {"inline": True, "actors": 2, "max_lag": 1, "n_steps": 16}


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        ("impala", {**INLINE, "normalize_advantage": True}),
        ("impala", {**INLINE, "memory": "gru"}),
        ("appo", {**INLINE, "batch_size": 64}),
        ("dqn", {**REPLAY, "runner": "decoupled", "inline": True, "actors": 1}),
    ],
)
def test_inline_actors_give_the_same_weights_from_tensors(algorithm: str, options: dict[str, Any]) -> None:
    host, device = (act_inline(runner(algorithm, rows, **options), 10) for rows in (host_rows, tensor_rows))
    if algorithm == "dqn":  # its random numbers differ, so only the stored steps are the same
        ours, theirs = (trainer.buffer.buffers[0].data for trainer in (device, host))
        assert ours.count == theirs.count > 0
        return
    pairs = list(zip(host.learner.parameters(), device.learner.parameters(), strict=True))
    assert max(float((expected - actual).detach().abs().max()) for expected, actual in pairs) < 1e-5
    assert len(host.episodes()) == len(device.episodes()) > ROWS
    while device.fleet.position:
        device.fleet.receive()
    with HostReads() as reads:
        for _ in range(options["n_steps"]):
            device.fleet._act()
    assert reads.counts == {}


def test_inline_actors_of_tensors_resume_exactly(tmp_path: Path) -> None:
    original = runner("impala", "tensor/CartPole-v1", **INLINE)
    for _ in range(70):
        for chunk in original.fleet.receive():
            original._take(chunk)
    assert original.fleet.position
    assert original.fleet.waiting
    Checkpoints(tmp_path).save("step", original.clock.steps, original.state_dict(), {})
    resumed = runner("impala", "tensor/CartPole-v1", **INLINE)
    resumed.load_state_dict(Checkpoints(tmp_path).load(("step",))[1])
    for each in (original, resumed):
        for _ in range(70):
            for chunk in each.fleet.receive():
                each._take(chunk)
    pairs = zip(original.learner.parameters(), resumed.learner.parameters(), strict=True)
    assert all(torch.equal(expected, actual) for expected, actual in pairs)


STOP = """
import os, signal

import rlplug_core as rl

class StopAt:
    Config = rl.Config
    reason = ""
    def __init__(self, config): pass
    def evaluated(self, evaluation, clock):
        if clock.steps == 1200:
            os.kill(os.getpid(), signal.SIGTERM)
    def state_dict(self): return {}
    def load_state_dict(self, state): pass
"""


def final_weights(run: Path) -> Any:
    return read(Checkpoints(run / "checkpoints").kept("final")[0].path, "learner")[0]["learner"]


@pytest.mark.parametrize(
    ("algorithm", "options", "reason"),
    [
        ("ppo", {"wrap": ["clip-reward"]}, "wrapper 'clip-reward' changes arrays"),
        ("impala", {}, "the runner 'decoupled' do not send; add --inline"),
        ("dqn", {"runner": "decoupled", "inline": True, "actors": 2}, "takes those of one actor; use --actors 1"),
        ("ppo", {"env_workers": 2}, "gives tensors on cpu, stepped in one process; leave out --env-workers"),
        ("ppo", {"inference_backend": "numpy"}, "which NumPy cannot use"),
    ],
)
def test_parts_without_tensor_support_refuse_tensors(algorithm: str, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        runner(algorithm, "tensor/CartPole-v1", **options)


@pytest.mark.parametrize("algorithm", ["dqn", "td3", "sac"])
def test_replay_never_waits_for_the_device(algorithm: str) -> None:
    env = tensor_rows if algorithm == "dqn" else tensor_pendulums
    trainer = train_updates(algorithm, env, 2, **REPLAY, n_step=3)
    batches = []
    with HostReads() as reads:
        for _ in range(8):
            trainer.actor.buffer.add(trainer.actor.step())
            batches += list(trainer.actor.buffer.batches(trainer.clock))
    assert reads.counts == {}
    assert len(batches) == 8


def test_replay_buffer_that_does_not_fit_is_refused() -> None:
    trainer = runner("dqn", tensor_rows, learning_starts=64, buffer_size=10**8)
    trainer.actor.buffer.capacity = 10**12
    with pytest.raises(UsageError, match=r"'buffer_size': a replay buffer of 1,000,000,000,000 steps would take 4"):
        trainer.actor.buffer.add(trainer.actor.step())


@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_memory_of_a_run_is_predicted_and_checked(algorithm: str) -> None:
    options = PPO if algorithm == "ppo" else {**REPLAY, "n_step": 3}
    trainer = train_updates(algorithm, tensor_rows, 1, **options)
    trainer.actor.buffer.add(trainer.actor.step())
    plan = Plan.make(algorithm, tensor_rows, {"num_envs": ROWS, "total_timesteps": 10**6, "seed": 3, **options})
    needs = _needs(plan, trainer.learner, trainer.actor.env)
    buffer = trainer.actor.buffer
    sizes: list[int] = []
    if algorithm == "ppo":
        rollout = {field: getattr(buffer.rollout, field) for field in FIELDS}
        tree_map(lambda part: sizes.append(part.nbytes), {**rollout, "finals": buffer.finals})
    else:
        tree_map(lambda part: sizes.append(part.nbytes), buffer.data.flat)
    assert sum(sizes) * 0.9 < needs["stored steps"][0] < sum(sizes) * 1.1
    assert needs["environments"][0] == ROWS * (4 * 4 + 8)
    sentence = device_memory(plan, trainer.learner, trainer.actor.env)
    assert sentence.startswith("memory on cpu: at least ")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(free_memory, "free_bytes", lambda device: 1_000)
        with pytest.raises(UsageError, match=r"the run \(environments 384 B, stored .* and 1,000 B are free"):
            device_memory(plan, trainer.learner, trainer.actor.env)


def test_families_on_a_device_have_4096_rows_by_default() -> None:
    for env in ("tensor/CartPole-v1", "gymnax/CartPole-v1", "brax/ant", "playground/CheetahRun"):
        assert preset_values("ppo", env)["num_envs"] == 4_096
    assert preset_values("ppo", "CartPole-v1")["num_envs"] < 100


def test_data_set_for_a_replay_buffer_of_tensors_is_refused() -> None:
    trainer = runner("dqn", tensor_rows, learning_starts=64)
    with pytest.raises(UsageError, match="use --buffer-storage disk"):
        require_replay(trainer.learner, trainer.actor.buffer)


def test_absent_rows_have_no_weight_in_replay() -> None:
    """A row that was reset in a separate step is not a transition; n-step windows end before it."""
    buffer = DeviceReplay(64, ReplaySchedule(16, 1, 1, 16), 2, 0.5, Seeds(0), torch.device("cpu"), "cpu")
    flags = torch.tensor([[True, False], [False, True], [True, True], [True, True]])
    ends = torch.tensor([[True, False], [False, False], [False, False], [False, False]])
    for time in range(4):
        obs = torch.full((2, 1), float(time))
        no_rows = torch.zeros(2, dtype=torch.bool)
        fields = {"obs": obs, "next_obs": obs + 1, "action": torch.zeros(2), "reward": torch.ones(2)}
        masks = {"terminated": ends[time], "truncated": no_rows, "is_first": no_rows, "valid": flags[time]}
        buffer.add(Step(**fields, **masks, ended=True, extras={}, recurrent_state=None))
    batch = buffer.gather(torch.tensor([0, 2, 4]))  # type: ignore[arg-type]
    assert batch.weight.tolist() == [1, 0, 1]
    assert batch.counts.tolist() == [0.5, 0, 0.5]
    assert batch.reward.tolist()[::2] == [1, 1.5]
    assert batch.discount.tolist()[::2] == [0, 0.25]
    assert batch.next_obs.flatten().tolist()[::2] == [1, 4]
    buffer.restart()
    assert buffer.data.window(torch.tensor([6]), 2, 0.5)[0].tolist() == [1]


def test_absent_rows_keep_their_memory() -> None:
    before = {"h": torch.zeros(2, 3)}
    act = Act(cast("Any", None), {"h": torch.ones(2, 3)}, {})
    now: Any = SimpleNamespace(
        valid=torch.tensor([True, False]), is_first=torch.tensor([False, True]), count=1, turn=None
    )
    first, memory = carry_over(now, act, cast("Any", torch.tensor([True, False])), before)
    assert torch.equal(memory["h"], torch.tensor([[1.0], [0.0]]).expand(2, 3))
    assert torch.equal(cast("Any", first), torch.tensor([False, True]))


WORLDS = sorted(WORLD_CLASSES)


RESUMED = [
    ("ppo", "CartPole-v1", {"n_steps": 8, "batch_size": 64, "n_epochs": 1, "memory": "lstm"}),
    *(("ppo", name, {"n_steps": 8, "batch_size": 64, "n_epochs": 1}) for name in WORLDS),
    ("dqn", "CartPole-v1", REPLAY),
    ("sac", "Pendulum-v1", REPLAY),
]


@pytest.mark.parametrize(("algorithm", "name", "options"), RESUMED)
def test_saved_run_continues_exactly(algorithm: str, name: str, options: dict[str, Any], tmp_path: Path) -> None:
    original = runner(algorithm, f"tensor/{name}", **options)
    for _ in range(20):
        step_and_train(original.actor, original.clock, original.meter)
    Checkpoints(tmp_path).save("step", original.clock.steps, original.state_dict(), {})
    resumed = runner(algorithm, f"tensor/{name}", **options)
    resumed.load_state_dict(Checkpoints(tmp_path).load(("step",))[1])
    for each in (original, resumed):
        for _ in range(20):
            step_and_train(each.actor, each.clock, each.meter)
    pairs = zip(original.learner.parameters(), resumed.learner.parameters(), strict=True)
    assert all(torch.equal(expected, actual) for expected, actual in pairs)
    assert str(original.actor.take_episodes()) == str(resumed.actor.take_episodes())


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
def test_run_on_tensors_resumes_exactly(name: str, place: Path, process: Callable[..., Result]) -> None:
    Path("stop.py").write_text(STOP)

    def command(*words: str, code: int = 0) -> None:
        result = process(*words)
        assert result.code == code, result.err

    words = f"ppo tensor/{name} --num-envs 8 --n-steps 16 --batch-size 64 --n-epochs 2 --total-timesteps 2400".split()
    words += ["--eval-every", "600", "--final-eval-episodes", "0", "--quiet", "--out", "runs"]
    command("run", *words, "--name", "complete")
    command("run", *words, "--name", "interrupted", "--controller", "./stop.py:StopAt", code=143)
    assert max(saved.step for saved in Checkpoints(place / "runs/interrupted/checkpoints").kept()) < 2_400
    command("resume", "runs/interrupted")
    original, resumed_weights = (final_weights(place / "runs" / run) for run in ("complete", "interrupted"))
    tensors = {key for key, value in original.items() if isinstance(value, torch.Tensor)}
    assert tensors
    assert [key for key in tensors if not torch.equal(original[key], resumed_weights[key])] == []


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        ("ppo", {"n_steps": 16, "batch_size": 64}),
        pytest.param("dqn", {**REPLAY, "priority.alpha": 0.6}, marks=pytest.mark.slow),
    ],
)
def test_two_learners_train_on_tensors(algorithm: str, options: dict[str, Any], tmp_path: Path) -> None:
    shared = {"learners": 2, "num_envs": 4, "total_timesteps": 240, "final_eval_episodes": 0, "log_every": 80}
    wrap = {"wrap": ["time-limit:steps=10"]}
    run = train(algorithm, "tensor/CartPole-v1", {**options, **shared, **wrap}, out=tmp_path, hooks=False)
    assert run.status == "finished"
    episodes = run.episodes()
    steps = episodes["steps"].tolist()
    assert len(steps) >= 24
    assert {*episodes["workers"].tolist()} == {0, 1}
    # Each end is after a vector step of both learners.
    assert all(step % 8 == 0 and 0 < step <= 240 for step in steps)


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])
def test_random_agent_acts_on_tensors(name: str) -> None:
    """`rlplug info`, the estimate of a run's time and `--env-workers 0` measure environments with random actions."""
    plan = Plan.make("ppo", f"tensor/{name}", {"num_envs": ROWS, "env_workers": 0})
    env = plan.make_env(ROWS)
    agent = plan.make_learner(env.spec).agent()
    for each in (RandomAgent(env.spec.action, Seeds(0)), agent):
        stats = walk(each, env)
        assert stats.steps > ROWS
        assert stats.low <= stats.high
    assert choose_env_workers(plan)[0].options.env_workers == 1


def test_evaluation_plays_all_episodes_in_one_batch(tmp_path: Path) -> None:
    options = {"num_envs": 8, "total_timesteps": 64, "n_steps": 8, "batch_size": 64, "final_eval_episodes": 0}
    run = train("ppo", "tensor/CartPole-v1", options, out=tmp_path, hooks=False)
    sizes: list[int] = []
    original_init = TensorAdapter.__init__

    def count(self: Any, make: Any, *rest: Any) -> None:
        original_init(self, make, *rest)
        sizes.append(self.spec.num_envs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TensorAdapter, "__init__", count)
        evaluation = run.evaluate(episodes=100)
    assert sizes == [100]
    assert evaluation.episodes == 100
    assert all(length == total for length, total in zip(evaluation.lengths, evaluation.returns, strict=True))
    assert len(set(evaluation.lengths)) > 5


def test_agent_trained_on_arrays_is_evaluated_on_tensors(tmp_path: Path) -> None:
    options = {"num_envs": 4, "total_timesteps": 128, "n_steps": 16, "batch_size": 32, "eval_episodes": 3}
    tensors = {**options, "eval_env": "tensor/CartPole-v1", "final_eval_episodes": 20}
    run = train("ppo", "CartPole-v1", tensors, out=tmp_path, hooks=False)
    assert run.status == "finished"
    assert run.evaluate(episodes=20).mean > 8


def test_object_with_a_device_is_evaluated_in_copies(tmp_path: Path) -> None:
    options = {"total_timesteps": 128, "n_steps": 16, "batch_size": 32, "eval_episodes": 3, "final_eval_episodes": 3}
    run = train("ppo", CartPole(4), options, out=tmp_path, hooks=False)
    assert run.status == "finished"


LISTENER = """
import rlplug_core as rl

class Listener:
    Config = rl.Config
    reason = ""
    def __init__(self, config): self.returns = []
    def ended(self, episodes, clock): self.returns += [episode.total for episode in episodes]
    def state_dict(self): return {"returns": list(self.returns)}
    def load_state_dict(self, state): self.returns = list(state["returns"])
"""
#: The parts of a run that follow its progress.
PARTS = (
    "--controller plateau:patience=1 --controller ./listener.py:Listener --learning-rate linear(1e-3,1e-4) "
    "--early-stopping-patience 50 --target-return 1e6 --max-episodes 10000 --log csv,tensorboard --record-every 600"
)


@pytest.mark.filterwarnings("ignore")  # MLflow's own imports warn
@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])
def test_controllers_loggers_films_and_mlflow_work_on_tensors(
    name: str, process: Callable[..., Result], place: Path, with_store: str
) -> None:
    """A resume from the first checkpoint in another process also ends with the same weights."""
    Path("listener.py").write_text(LISTENER)
    words = f"ppo tensor/{name} --num-envs 8 --n-steps 15 --batch-size 60 --n-epochs 1 --total-timesteps 1200 {PARTS}"
    words += " --wrap time-limit:steps=20 --eval-every 300 --eval-episodes 2 --final-eval-episodes 0 --log-every 300"
    original = place / "runs/complete"
    result = process("run", *words.split(), "--checkpoint-every", "300", "--name", "complete", "-q", **NO_MLFLOW)
    assert result.code == 0, result.err
    again = shutil.copytree(original, place / "runs/again")
    newer = sorted((again / "checkpoints").glob("step-*"))[1:]
    for later in (*newer, *(again / "checkpoints").glob("final-*"), *(again / "checkpoints").glob("best-*")):
        shutil.rmtree(later)
    result = process("resume", "runs/again", "-q", **NO_MLFLOW)
    assert result.code == 0, result.err
    (expected,), (actual,) = (list(run.glob("checkpoints/final-*")) for run in (original, again))
    for file in ("learner.safetensors", "actor.safetensors", "buffer.json"):
        assert (actual / file).read_bytes() == (expected / file).read_bytes(), file
    kinds = Counter(record.kind for record in records(original))
    assert kinds["film"] == len(list((original / "videos").iterdir())) >= 2
    assert kinds["scale"]
    assert any((original / "tensorboard").iterdir())
    for run in (original, again):
        rows = (run / "metrics.csv").read_text().splitlines()
        assert "rollout/return_mean" in rows[0]
        assert len(rows) > 8
    assert "returns" in (expected / "events.json").read_text()
    state = send_all(original)
    for key in ("rollout/return_mean", "loss/value", "eval/return_mean"):
        points = journal_points(original, key)
        assert len(points) > 2, key
        assert history(with_store, state.run_id, key) == points
    assert client(with_store).get_run(state.run_id).data.params["env"] == f"tensor/{name}"
