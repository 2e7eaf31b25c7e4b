"""Actions under masks, and several samples of a row; `test_heads_parts.py` compares heads with torch."""

from __future__ import annotations

from typing import Any

import gymnasium.spaces as spaces
import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from rlplug_core.acting.epsilon_greedy import EpsilonGreedy
from rlplug_core.acting.policy_agent import PolicyAgent
from rlplug_core.clock import Clock
from rlplug_core.config.schedules import constant
from rlplug_core.context import Context
from rlplug_core.nets.heads import ILLEGAL, Categorical, Gaussian, head, masked
from rlplug_core.nets.net import Net
from rlplug_core.nets.policies import PolicyNetwork
from rlplug_core.nets.q_networks import QNetwork
from rlplug_core.seeds import Seeds
from rlplug_core.testing.envs import Masked
from rlplug_core.types import Spec
from tests.core.fakes import Tiny, TinyConfig

pytestmark = pytest.mark.usefixtures("loops")
Floats = npt.NDArray[np.float32]


def outputs(num_envs: int, columns: int, low: float = -8, high: float = 8) -> st.SearchStrategy[Floats]:
    return arrays.arrays(np.float32, (num_envs, columns), elements=st.floats(low, high, width=32))


@pytest.mark.parametrize("shape", [(1,), (3,), (2, 2)])
def test_gaussian_samples_several_actions_of_each_row(shape: tuple[int, ...]) -> None:
    head = Gaussian(shape)
    generator = np.random.default_rng(0)
    given = generator.standard_normal((5, head.size), dtype=np.float32)
    noise = head.noise(generator, (7, 5))
    each = np.stack([head.sample(given, draws) for draws in noise])
    np.testing.assert_allclose(head.sample(given, noise).reshape(each.shape), each, rtol=1e-5, atol=1e-6)


# Masks.

MASKS = st.lists(st.lists(st.booleans(), min_size=6, max_size=6).filter(any), min_size=4, max_size=4).map(
    lambda rows: np.array(rows, dtype=np.int8)
)


@settings(max_examples=60, deadline=None)
@given(outputs(4, 6, -1e4, 1e4), MASKS, st.integers(0, 1000))
def test_categorical_never_samples_masked_actions(values: Floats, mask: Floats, seed: int) -> None:
    shown = masked(torch.from_numpy(values), {"action_mask": torch.from_numpy(mask)}).numpy()
    ours = Categorical(6)
    rows = np.arange(4)
    assert mask[rows, ours.mode(shown)].all()
    generator = np.random.default_rng(seed)
    for noise in ours.noise(generator, (50, 4)):
        action = ours.sample(shown, noise)
        assert mask[rows, action].all()
    assert np.isfinite(ours.host_log_prob(shown, action)).all()
    assert ours.entropy(torch.from_numpy(shown)).isfinite().all()
    assert (shown[mask == 0] == ILLEGAL).all()
    np.testing.assert_array_equal(shown[mask == 1], values[mask == 1])


def test_masked_keeps_values_if_no_action_is_legal() -> None:
    """After a truncation the value of such a state is bootstrapped. Parts without a mask keep their values too."""
    values = torch.arange(6.0).reshape(2, 3)
    mask = torch.tensor([[0, 0, 0], [0, 1, 0]], dtype=torch.int8)
    assert masked(values, {"action_mask": mask}).tolist() == [[0, 1, 2], [ILLEGAL, 4, ILLEGAL]]
    partly = masked(values, {"action_mask": mask[:, :2]}, torch.tensor([0, 2]))
    assert partly.tolist() == [[0, 1, 2], [ILLEGAL, 4, 5]]


def test_kl_ignores_illegal_actions() -> None:
    outputs, others = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0))
    policies = [torch.distributions.Categorical(logits=logits[:, :2]) for logits in (outputs, others)]
    outputs[:, 2] = others[:, 2] = ILLEGAL
    wanted = torch.distributions.kl_divergence(*policies)
    torch.testing.assert_close(head(spaces.Discrete(3), 4)[0].kl(outputs, others), wanted)


SPEC = Spec(
    spaces.Dict({"obs": spaces.Box(-1, 1, (3,), np.float32), "action_mask": spaces.MultiBinary(6)}),
    spaces.Discrete(6),
    4,
    "masked",
)


def masked_agent(kind: str, epsilon: float) -> Any:
    torch.manual_seed(0)
    if kind == "policy":
        return PolicyAgent(PolicyNetwork(SPEC, Net()), Seeds(1), log_prob=True)
    return EpsilonGreedy(QNetwork(SPEC, Net(), dueling=kind == "dueling"), constant(epsilon), Seeds(1))


@pytest.mark.parametrize(("kind", "epsilon"), [("policy", 0), ("q", 0.0), ("q", 0.5), ("q", 1.0), ("dueling", 0.5)])
@settings(max_examples=15, deadline=None)
@given(mask=MASKS, seed=st.integers(0, 1000))
def test_agents_respect_masks(kind: str, epsilon: float, mask: Floats, seed: int) -> None:
    agent = masked_agent(kind, epsilon)
    agent.initial(4)
    obs = {"obs": np.random.default_rng(seed).normal(size=(4, 3)).astype(np.float32), "action_mask": mask}
    for explore in (True, False):
        for _ in range(30):
            act = agent.act(obs, np.zeros(4, dtype=bool), None, Clock(1), explore)
            assert mask[np.arange(4), act.action].all()


def test_random_legal_actions_are_uniform() -> None:
    agent = masked_agent("q", 1.0)
    agent.initial(4)
    mask = np.array([[1, 0, 1, 0, 0, 1]] * 4, dtype=np.int8)
    obs = {"obs": np.zeros((4, 3), np.float32), "action_mask": mask}
    drawn = [agent.act(obs, None, None, Clock(1)).action for _ in range(3000)]
    counts = np.bincount(np.concatenate(drawn), minlength=6)
    assert (counts[[1, 3, 4]] == 0).all()
    assert (np.abs(counts[[0, 2, 5]] - 4000) < 5 * np.sqrt(4000)).all()


def test_epsilon_is_the_fraction_of_random_actions() -> None:
    torch.manual_seed(0)
    spec = Spec(spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(4), 8, "plain")
    agent = EpsilonGreedy(QNetwork(spec, Net()), constant(0.4), Seeds(1))
    agent.initial(8)
    obs = np.ones((8, 3), np.float32)
    best = agent.act(obs, np.zeros(8), None, Clock(1), explore=False).action[0]
    drawn = np.concatenate([agent.act(obs, np.zeros(8), None, Clock(1)).action for _ in range(2000)])
    assert (drawn != best).mean() == pytest.approx(0.4 * 3 / 4, abs=0.02)
    assert len(set(drawn.tolist())) == 4


def test_agent_respects_masks_of_an_environment() -> None:
    """The environment also raises an error for an illegal action."""
    env = Masked(3)
    learner = Tiny(env.spec, TinyConfig(), Context(Seeds(0)))
    agent = learner.agent()
    agent.initial(3)
    now = env.reset(0)
    for _ in range(200):
        action = agent.act(now.obs, now.is_first, None, Clock(1)).action
        allowed = now.obs["action_mask"]
        assert allowed[np.arange(3), action].all()
        now = env.step(action)
