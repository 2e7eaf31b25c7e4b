"""Fast updates equal plain ones: the same gradients with every option, the same weights, and reproducible bits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium.spaces as spaces
import numpy as np
import pytest
import torch
from torch import nn

from rlplug_algos.off_policy.ddpg import DDPG, DDPGConfig
from rlplug_algos.off_policy.iql import IQL, IQLConfig
from rlplug_algos.off_policy.sac import SAC, SACConfig
from rlplug_algos.off_policy.sac_discrete import SACDiscrete, SACDiscreteConfig
from rlplug_algos.off_policy.td3 import TD3, TD3Config
from rlplug_algos.off_policy.tqc import TQC, TQCConfig
from rlplug_algos.policy_gradient.a2c import A2C, A2CConfig
from rlplug_algos.policy_gradient.acktr import ACKTR, ACKTRConfig
from rlplug_algos.policy_gradient.ppo import PPO, PPOConfig
from rlplug_algos.policy_gradient.vpg import VPG, VPGConfig
from rlplug_algos.value.c51 import C51, C51Config
from rlplug_algos.value.dqn import DQN, DQNConfig
from rlplug_algos.value.nstep_q import NStepQ, NStepQConfig
from rlplug_algos.value.qrdqn import QRDQN, QRDQNConfig
from rlplug_algos.value.vqn import VQN, VQNConfig
from rlplug_algos.value.vsarsa import VSarsa, VSarsaConfig
from rlplug_core.algorithm import Algorithm, pure
from rlplug_core.batches import Rollout, Samples, Transitions, Truncations
from rlplug_core.clock import Clock
from rlplug_core.context import Context
from rlplug_core.fast import matmul, parallel_dense
from rlplug_core.fast.losses import FastLoss
from rlplug_core.learning.optimizer import backward
from rlplug_core.nets.net import Net
from rlplug_core.nets.policies import PolicyNetwork
from rlplug_core.seeds import Seeds
from rlplug_core.types import Spec
from tests.tables import for_each

pytestmark = pytest.mark.usefixtures("loops")

NETS = [
    Net(hidden=(8, 8)),
    Net(hidden=(8,), activation="silu", layer_norm=True),
    Net(hidden=(6, 5), activation="elu", normalize_obs=True),
]
STEPS = 6
ROWS = 3
FEATURES = 4
ACTIONS = {"discrete": spaces.Discrete(3), "box": spaces.Box(-1, 1, (2,), np.float32)}


def make_learner(cls: Any, action: str, config: Any) -> Any:
    return cls(
        Spec(spaces.Box(-9, 9, (FEATURES,), np.float32), ACTIONS[action], ROWS, "Any-v0"), config, Context(Seeds(3))
    )


def actions(action: str, *shape: int) -> Any:
    return np.random.randint(3, size=shape) if action == "discrete" else np.random.randn(*shape, 2).astype(np.float32)


def numbers(*shape: int) -> Any:
    return np.random.randn(*shape).astype(np.float32)


def rollout(action: str, seed: int = 0) -> Rollout:
    """Return a rollout with the end of an episode, and a row without a transition."""
    np.random.seed(seed)
    shape = STEPS, ROWS
    ended = np.zeros(shape, bool)
    ended[2, 1] = True
    weight = np.ones(shape, np.float32)
    weight[3, 0] = 0
    obs = numbers(STEPS + 1, ROWS, FEATURES)
    return Rollout(
        obs,
        actions(action, *shape),
        numbers(*shape),
        ended,
        np.zeros(shape, bool),
        np.roll(ended, 1, 0),
        weight,
        Truncations(obs[0], np.zeros(ROWS, np.int64), 0),
        {"log_prob": numbers(*shape) - 1},
        None,
        whole=False,
    )


def samples(action: str) -> Samples:
    np.random.seed(1)
    rows = STEPS * ROWS
    weight = np.random.choice([0, 0.5, 1, 2], rows).astype(np.float32)
    arrays: Any = weight, None, numbers(rows, FEATURES), actions(action, rows), numbers(rows), numbers(rows)
    tensors: Any = [None if array is None else torch.from_numpy(array) for array in arrays]
    parts: Any = (*tensors, {"log_prob": torch.from_numpy(numbers(rows) - 1)})
    return Samples(*parts)


def transitions(seed: int = 0, action_space: str = "discrete") -> Transitions:
    np.random.seed(seed)
    weight = np.random.rand(9).astype(np.float32)
    obs = numbers(9, FEATURES)
    next_obs = numbers(9, FEATURES)
    action = actions(action_space, 9)
    discount = np.random.choice([0, 0.9], 9).astype(np.float32)
    arrays = weight, obs, action, 3 * numbers(9), discount, next_obs, np.arange(9)
    weights, *rest = (torch.from_numpy(array) for array in arrays)
    parts: Any = (weights, None, *rest, {})
    return Transitions(*parts)


def plain(learner: Any) -> Any:
    """Return the same learner with autograd: hooks disable the rules."""
    for module in learner.modules():
        if not list(module.children()):
            module.register_forward_hook(lambda *_: None)
    return learner


POLICIES = [
    *((PPO, PPOConfig(n_steps=STEPS, batch_size=6, net=net)) for net in NETS),
    (PPO, PPOConfig(n_steps=STEPS, batch_size=6, clip_range_vf=0.3, ent_coef=0.1, normalize_advantage=False)),
    (PPO, PPOConfig(n_steps=STEPS, batch_size=4, clip_range_vf=0.3, normalize_reward=True)),
    *(
        (cls, config(n_steps=STEPS, net=net))
        for cls, config in ((A2C, A2CConfig), (VPG, VPGConfig))
        for net in NETS[1:]
    ),
    *((ACKTR, ACKTRConfig(n_steps=STEPS, net=NETS[0], popart=popart)) for popart in (False, True)),
    (A2C, A2CConfig(n_steps=STEPS, normalize_advantage=True, optimizer="adam")),
    *((cls, config(n_steps=STEPS, popart=True)) for cls, config in ((A2C, A2CConfig), (VPG, VPGConfig))),
    (PPO, PPOConfig(n_steps=STEPS, batch_size=6, popart=True, clip_range_vf=0.3, normalize_advantage=False)),
]
VALUES = [
    *(
        (cls, config(net=net))
        for cls, config in ((DQN, DQNConfig), (QRDQN, QRDQNConfig), (C51, C51Config))
        for net in NETS
    ),
    *((DQN, DQNConfig(net=Net(hidden=(7, 5)), dueling=True, double=True, loss=loss)) for loss in ("mse", "huber")),
    (QRDQN, QRDQNConfig(net=Net(hidden=(7, 5)), dueling=True, double=True, n_quantiles=7, kappa=0.5)),
    (C51, C51Config(net=Net(hidden=(7, 5)), dueling=True, double=True, n_atoms=7, v_min=-2.0, v_max=3.0)),
    (DQN, DQNConfig(net=NETS[0], noisy="independent")),
    (QRDQN, QRDQNConfig(net=NETS[1], noisy="factorized", double=True, n_quantiles=7)),
    (C51, C51Config(net=NETS[0], noisy="factorized", dueling=True, double=True, n_atoms=7, v_min=-2.0, v_max=3.0)),
]
CONTINUOUS = [
    *((cls, config(net=net)) for cls, config in ((SAC, SACConfig), (TD3, TD3Config), (TQC, TQCConfig)) for net in NETS),
    (TQC, TQCConfig(net=NETS[0], n_critics=3, n_quantiles=7, top_quantiles_to_drop_per_net=1)),
    (SAC, SACConfig(net=NETS[0], n_critics=3, ent_coef=0.2, autotune=False)),
    (SAC, SACConfig(net=NETS[0], target_entropy=-0.3, max_grad_norm=0.1)),
    (TD3, TD3Config(net=NETS[0], n_critics=1, target_policy_noise=0.5, target_noise_clip=0.1)),
    *((DDPG, DDPGConfig(net=NETS[0], n_critics=critics)) for critics in (1, 2)),
    *((cls, config(net=net)) for cls, config in ((IQL, IQLConfig), (SACDiscrete, SACDiscreteConfig)) for net in NETS),
    (IQL, IQLConfig(net=NETS[0], n_critics=1, expectile=0.3, beta=9.0, max_weight=2.0)),
    (SACDiscrete, SACDiscreteConfig(net=NETS[0], n_critics=3, ent_coef=0.2, autotune=False)),
    (SACDiscrete, SACDiscreteConfig(net=NETS[0], target_entropy=0.3, max_grad_norm=0.1)),
]


def gradient_of(optimizer: Any, loss: Any) -> torch.Tensor:
    """Return the flat gradient that `minimize` reads."""
    optimizer.gradient.zero_()
    backward(loss, optimizer.parameters, optimizer.gradient)
    gradient: torch.Tensor = optimizer.gradient.clone()
    optimizer.gradient.zero_()
    return gradient


@for_each("action", ACTIONS)
@for_each("cls, config", POLICIES)
def test_policy_losses_equal_autograd(cls: Any, config: Any, action: str) -> None:
    learner = make_learner(cls, action, config)
    batch = samples(action)
    compare(learner, learner.actor_critic_optimizer, batch, ())


@for_each("cls, config", VALUES)
def test_action_value_losses_equal_autograd(cls: Any, config: Any) -> None:
    learner = make_learner(cls, "discrete", config)
    noise = learner.q_network.noise(learner.generator, 3)
    compare(learner, learner.q_optimizer, transitions(), (noise,))
    compare(learner, learner.q_optimizer, transitions(), ([None] * 3,))


@for_each("net", NETS)
@for_each("cls, config", [(NStepQ, NStepQConfig), (VQN, VQNConfig), (VSarsa, VSarsaConfig)])
def test_value_losses_without_memory_equal_autograd(cls: Any, config: Any, net: Net) -> None:
    learner, noisy = (make_learner(cls, "discrete", config(net=net, noisy=noisy)) for noisy in (None, "factorized"))
    compare(learner, learner.q_optimizer, samples("discrete"), (None,))
    (noise,) = noisy.q_network.noise(noisy.generator, 1)
    compare(noisy, noisy.q_optimizer, samples("discrete"), (noise,))


@for_each("cls, config", CONTINUOUS)
def test_critic_and_policy_losses_equal_autograd(cls: Any, config: Any) -> None:
    learner = make_learner(cls, space(cls), config)
    batch = transitions(0, space(cls))
    noise = torch.from_numpy(numbers(9, 2))
    with torch.no_grad():  # log standard deviations at both bounds and in between
        next(learner.policy.outputs.parameters())[:] *= 1 if cls is IQL else 100
    for optimizer, loss in ((learner.critic_optimizer, "critic_loss"), (learner.policy_optimizer, "policy_loss")):
        check(learner, optimizer, loss, (batch, *other_arguments(learner, loss, noise)), rtol=1e-3, atol=1e-5)


def space(cls: Any) -> str:
    return "discrete" if cls is SACDiscrete else "box"


def other_arguments(learner: Any, loss: Any, noise: Any) -> tuple[Any, ...]:
    """Return the arguments of a loss besides the batch."""
    if isinstance(learner, IQL | SACDiscrete):
        return (learner.config,)
    if isinstance(learner, SAC | TQC):
        return noise, learner.config
    of_critics = (learner.config,) if isinstance(learner, DDPG) else (noise, learner.config)
    return of_critics if loss == "critic_loss" else ()


PLACES = {"one": spaces.Discrete(5, start=2), "several": spaces.MultiDiscrete([3, 4], start=[5, -1])}


@pytest.mark.parametrize("places", PLACES.values(), ids=PLACES)
def test_discrete_observations_use_rules(places: Any) -> None:
    config = DQNConfig(net=Net(hidden=(7, 5)), dueling=True, double=True)
    learner = DQN(Spec(places, ACTIONS["discrete"], ROWS, "Any-v0"), config, Context(Seeds(3)))
    obs, following = (torch.from_numpy(np.stack([places.sample() for _ in range(9)])) for _ in range(2))
    batch = replace(transitions(), obs=obs, next_obs=following, share=None)
    compare(learner, learner.q_optimizer, batch, ([None, None, None],))


def parts_of(output: Any) -> Any:
    return output if isinstance(output, tuple) else (output, {})


def compare(learner: Any, optimizer: Any, batch: Any, further: Any) -> None:
    check(learner, optimizer, "loss", (batch, *further, learner.config), rtol=1e-4, atol=1e-6)


def check(learner: Any, optimizer: Any, name: str, args: Any, **within: float) -> None:
    """Assert that a loss and its gradient equal those of the same method on tensors."""
    loss, metrics, *rest = parts_of(getattr(type(learner), name)(learner, *args))
    fast, fast_metrics, *error = parts_of(getattr(learner, name)(*args))
    assert isinstance(fast, FastLoss), learner.describe_gradients()
    assert fast.item() == pytest.approx(loss.item(), rel=1e-5)
    torch.testing.assert_close(gradient_of(optimizer, fast), gradient_of(optimizer, loss), **within)
    assert fast_metrics.keys() == metrics.keys()
    for name, value in fast_metrics.items():
        assert value.tolist() == pytest.approx(metrics[name].tolist(), rel=1e-4, abs=1e-6), name
    for one, other in zip(error, rest, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@for_each("action", ACTIONS)
@for_each("cls, config", POLICIES)
def test_updates_equal_autograd_and_repeat_exactly(cls: Any, config: Any, action: str) -> None:
    fast, again, slow = (make_learner(cls, action, config) for _ in range(3))
    for learner in (fast, again, plain(slow)):
        for number in range(3):
            learner.update(rollout(action, number), Clock(100))
    assert fast.describe_gradients().startswith("fast")
    assert slow.describe_gradients() == "autograd: a module has a hook"
    for (name, one), two, other in zip(fast.named_parameters(), again.parameters(), slow.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=0, msg=name)
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4, msg=name)


@for_each("cls, config", VALUES)
def test_action_value_updates_equal_autograd(cls: Any, config: Any) -> None:
    fast, again, slow = (make_learner(cls, "discrete", config) for _ in range(3))
    for learner in (fast, again, plain(slow)):
        priorities = [torch.as_tensor(learner.update(transitions(number), Clock(100)).priority) for number in range(3)]
        assert all(isinstance(priority, torch.Tensor) for priority in priorities)
    assert fast.describe_gradients().startswith("fast")
    assert slow.describe_gradients() == "autograd: a module has a hook"
    for one, two, other in zip(fast.parameters(), again.parameters(), slow.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=0)
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def check_continuous(cls: Any, config: Any) -> None:
    fast, again, slow = (make_learner(cls, space(cls), config) for _ in range(3))
    for learner in (fast, again, plain(slow)):
        for number in range(4):
            metrics = learner.update(transitions(number, space(cls)), Clock(100, updates=number)).metrics
            assert all(np.isfinite(float(value)) for value in metrics.values())
    assert fast.describe_gradients().startswith("fast")
    assert slow.describe_gradients() == "autograd: a module has a hook"
    for (name, one), two, other in zip(fast.named_parameters(), again.parameters(), slow.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=0, msg=name)
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4, msg=name)


@for_each("cls, config", CONTINUOUS)
def test_critic_and_policy_updates_equal_autograd(cls: Any, config: Any) -> None:
    check_continuous(cls, config)


#: One configuration of each class.
THREADED = {cls: config for cls, config in CONTINUOUS if config.net == NETS[0]}


@pytest.mark.parametrize(("cls", "config"), THREADED.items())
def test_updates_with_threads_equal_autograd(
    cls: Any, config: Any, loops: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if loops == "numpy":
        pytest.skip("threads are numba's")
    pytest.importorskip("scipy")
    monkeypatch.setattr(parallel_dense, "THREADS_MINIMUM", 0)
    monkeypatch.setattr(parallel_dense, "MIN_ROWS", 4)
    monkeypatch.setattr(parallel_dense, "onednn_is_faster", lambda: False)
    parallel_dense.pass_loops.cache_clear()
    passes: list[int] = []
    through = parallel_dense.ParallelDense.__call__

    def count(layers: Any, values: Any) -> Any:
        passes.append(1)
        return through(layers, values)

    monkeypatch.setattr(parallel_dense.ParallelDense, "__call__", count)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        check_continuous(cls, config)
    finally:
        torch.set_num_threads(before)
        parallel_dense.pass_loops.cache_clear()
    assert passes


def test_shared_trunk_is_fast_and_equals_autograd() -> None:
    """Its layers are computed one by one: only whole networks are recorded."""
    config = PPOConfig(n_steps=STEPS, batch_size=6, net=Net(shared=True))
    learner = make_learner(PPO, "discrete", config)
    compare(learner, learner.actor_critic_optimizer, samples("discrete"), ())


def test_learners_name_the_function_that_is_not_fast() -> None:
    learner = make_learner(PPO, "box", PPOConfig(n_steps=STEPS, batch_size=6, net=Net(activation="gelu")))
    learner.update(rollout("box"), Clock(100))
    assert learner.describe_gradients() == "autograd: gelu has no fast path"


@pytest.mark.parametrize("threads", [1, 2])
def test_large_layers_use_rules_on_any_number_of_threads(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With many threads they use torch's products."""
    monkeypatch.setattr(matmul, "numpy_uses_one_thread", lambda: True)
    monkeypatch.setattr(matmul, "onednn_is_faster", lambda: False)
    monkeypatch.setattr(matmul, "ONEDNN_MINIMUM", 2**9)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        fast, slow = (make_learner(TD3, "box", TD3Config(net=Net(hidden=(64, 64)))) for _ in range(2))
        for learner in (fast, plain(slow)):
            learner.update(transitions(0, "box"), Clock(100))
    finally:
        torch.set_num_threads(before)
    assert fast.describe_gradients().startswith("fast")
    for one, other in zip(fast.parameters(), slow.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


class Doubled(PolicyNetwork):
    """An author's policy with its own forward pass in torch."""

    def forward(self, obs: Any, noise: Any = None) -> torch.Tensor:
        return 2 * super().forward(obs) + torch.tanh(super().forward(obs))


class Author(nn.Module):
    """An author's critic, which does not know the fast room."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(FEATURES, 8), nn.Tanh(), nn.LayerNorm(8), nn.Linear(8, 1))

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        values: torch.Tensor = self.layers(obs)
        return values.squeeze(-1)


class Foreign(Algorithm[Samples]):
    """An author's algorithm in plain torch, without a line about speed."""

    Config = PPOConfig

    def build(self) -> None:
        self.policy = Doubled(self.spec, self.config.net)
        self.critic = Author()
        self.adam = self.optimizer("all", [self.policy, self.critic], learning_rate=1e-3)

    @pure
    def loss(self, batch: Samples, now: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        log_probs = self.policy(batch.obs).log_softmax(-1)
        log_prob = log_probs.gather(-1, batch.action.unsqueeze(-1)).squeeze(-1)
        ratio = torch.exp(log_prob - batch.extras["log_prob"])
        bounded = torch.clamp(ratio, 1 - now.clip_range, 1 + now.clip_range)
        error = nn.functional.smooth_l1_loss(self.critic(batch.obs), batch.target, reduction="none")
        entropy = -(log_probs.exp() * log_probs).sum(-1)
        gain = torch.min(ratio * batch.advantage, bounded * batch.advantage)
        loss = ((error - gain - now.ent_coef * entropy) * batch.counts).sum()
        return loss, {"loss/value": error.detach().mean()}


def test_third_party_loss_is_fast() -> None:
    learner = make_learner(Foreign, "discrete", PPOConfig(ent_coef=0.1))
    compare(learner, learner.adam, samples("discrete"), ())


def test_autograd_handles_other_uses_of_a_loss() -> None:
    """Gradients of gradients, other optimizers, sums of losses: then autograd computes the loss, also after
    a resume."""
    learner, again = (make_learner(Foreign, "discrete", PPOConfig()) for _ in range(2))
    batch = samples("discrete")
    parameters = learner.adam.parameters
    loss, _ = learner.loss(batch, learner.config)
    assert isinstance(loss, FastLoss)
    assert loss.requires_grad
    assert loss.shape == ()
    assert learner.describe_gradients().startswith("fast")
    gradients = torch.autograd.grad(loss, parameters, create_graph=True, allow_unused=True)
    plain, _ = Foreign.loss(learner, batch, learner.config)  # type: ignore[call-arg,arg-type]
    for one, other in zip(gradients, torch.autograd.grad(plain, parameters, allow_unused=True), strict=True):
        torch.testing.assert_close(one, other)
    assert isinstance(learner.loss(batch, learner.config)[0], torch.Tensor)
    assert "the loss is used for more" in learner.describe_gradients()
    again.load_state_dict(learner.state_dict())
    assert isinstance(again.loss(batch, learner.config)[0], torch.Tensor)


def test_backward_fills_gradients_of_torch_optimizers() -> None:
    learner = make_learner(Foreign, "discrete", PPOConfig())
    batch = samples("discrete")
    plain, _ = Foreign.loss(learner, batch, learner.config)  # type: ignore[call-arg,arg-type]
    expected = torch.autograd.grad(plain, learner.adam.parameters, allow_unused=True, materialize_grads=True)
    learner.loss(batch, learner.config)[0].backward()
    for parameter, other in zip(learner.adam.parameters, expected, strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, other, rtol=1e-4, atol=1e-6)
    assert learner.describe_gradients().startswith("fast")


def test_losses_that_are_kept_stay_separate() -> None:
    """A FastLoss is used again only when nothing refers to it."""
    learner, again = (make_learner(Foreign, "discrete", PPOConfig()) for _ in range(2))
    batch = samples("discrete")
    batches = [replace(batch, share=None, target=batch.target * factor) for factor in range(5)]
    losses = [learner.loss(each, learner.config)[0] for each in batches]
    assert len({id(loss) for loss in losses}) == 5
    for each, loss in zip(batches, losses, strict=True):
        expected, _ = Foreign.loss(learner, each, learner.config)  # type: ignore[call-arg,arg-type]
        assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
        assert loss.data.item() == loss.item()  # does not read the memory that all losses share
    numbers = []
    for each in batches:
        again.adam.minimize(again.loss(each, again.config)[0], Clock(1))
        numbers += map(id, again._losses.spare["loss"])
    assert len(set(numbers)) == 1


def test_second_step_of_a_loss_uses_autograd() -> None:
    """The first step frees the arrays of the loss."""
    learner = make_learner(Foreign, "discrete", PPOConfig())
    batch = samples("discrete")
    expected, _ = Foreign.loss(learner, batch, learner.config)  # type: ignore[call-arg,arg-type]
    wanted = gradient_of(learner.adam, expected)
    loss, other = (learner.loss(batch, learner.config)[0] for _ in range(2))
    for each in (loss, other, loss):
        torch.testing.assert_close(gradient_of(learner.adam, each), wanted, rtol=1e-4, atol=1e-6)
    other.backward()
    torch.testing.assert_close(learner.adam.gradient, wanted, rtol=1e-4, atol=1e-6)
    assert "the loss is used for more" in (learner.loss(batch, learner.config) and learner.describe_gradients())


@for_each("action", ACTIONS)
def test_metrics_of_arrays_equal_metrics_of_tensors(action: str) -> None:
    """They are read later, so they must not depend on arrays that the next update overwrites."""
    fast, slow = (make_learner(PPO, action, PPOConfig(n_epochs=2)) for _ in range(2))
    slow._takes_arrays = False
    results = [learner.update(rollout(action), Clock(100)).metrics for learner in (fast, slow)]
    fast.update(rollout(action, 1), Clock(100))
    assert fast.describe_gradients().startswith("fast")
    assert results[0].keys() == results[1].keys() >= {"loss/kl", "loss/clip_fraction"}
    for name, value in results[0].items():
        assert float(value) == pytest.approx(float(results[1][name]), rel=1e-3, abs=1e-5), name
