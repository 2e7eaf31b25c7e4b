"""Action heads against torch's distributions of each number of an action."""

from __future__ import annotations

from typing import Any

import gymnasium.spaces as spaces
import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Distribution, Normal, kl_divergence

from rlplug_core.acting.policy_agent import PolicyAgent
from rlplug_core.clock import Clock
from rlplug_core.errors import UsageError
from rlplug_core.nets.actions import join, parts, sample, split
from rlplug_core.nets.heads import Head, head
from rlplug_core.nets.net import Net
from rlplug_core.nets.policies import PolicyNetwork
from rlplug_core.nets.q_networks import QNetwork
from rlplug_core.seeds import Seeds
from rlplug_core.types import Spec
from tests.tables import for_each

pytestmark = pytest.mark.usefixtures("loops")
Floats = npt.NDArray[Any]
CLOSE = {"rtol": 1e-4, "atol": 1e-4}
PANEL = spaces.Dict(
    [
        ("lever", spaces.Box(-1, 1, (2,), np.float32)),
        ("button", spaces.Discrete(3)),
        ("more", spaces.Dict([("bits", spaces.MultiBinary(2)), ("dials", spaces.MultiDiscrete([2, 3]))])),
    ]
)
SPACES: dict[str, spaces.Space[Any]] = {
    "discrete": spaces.Discrete(5),
    "box": spaces.Box(-1, 1, (2, 3), np.float32),
    "uneven": spaces.MultiDiscrete([3, 1, 4]),
    "even": spaces.MultiDiscrete([3, 3]),
    "matrix": spaces.MultiDiscrete(np.array([[2, 3], [4, 2]])),
    "bits": spaces.MultiBinary(3),
    "bit matrix": spaces.MultiBinary([2, 2]),
    "panel": PANEL,
    "lever": spaces.Dict({"lever": spaces.Box(-1, 1, (2,), np.float32)}),
    "number": spaces.Box(-1, 1, (), np.float32),
}


def distributions(space: spaces.Space[Any], outputs: Tensor) -> list[Distribution]:
    """Return torch's distribution of each independent number of an action, in order."""
    if isinstance(space, spaces.Dict):
        sizes = [make_head(part.space).size for part in parts(space)]
        each = zip(parts(space), outputs.split(sizes, -1), strict=True)
        return [number for part, own in each for number in distributions(part.space, own)]
    if isinstance(space, spaces.Discrete):
        return [Categorical(logits=outputs)]
    if isinstance(space, spaces.MultiDiscrete):
        return [Categorical(logits=own) for own in outputs.split(space.nvec.ravel().tolist(), -1)]
    if isinstance(space, spaces.MultiBinary):
        return [Bernoulli(logits=own) for own in outputs.unbind(-1)]
    mean, log_std = outputs.chunk(2, -1)
    return [Normal(own, spread.exp()) for own, spread in zip(mean.unbind(-1), log_std.unbind(-1), strict=True)]


def make_head(space: spaces.Space[Any]) -> Head:
    return head(space, 5)[0]


def case(name: str, seed: int, num_envs: int = 4) -> tuple[Head, spaces.Space[Any], Tensor, Tensor, Floats]:
    """Return a head, its space, two sets of outputs, and actions."""
    space = SPACES[name]
    generator = torch.Generator().manual_seed(seed)
    space.seed(seed)
    ours = make_head(space)
    outputs, others = torch.randn(2, num_envs, ours.size, generator=generator)
    return ours, space, outputs, others, sample(space, num_envs)


@pytest.mark.parametrize("name", SPACES)
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_head_adds_up_torch_distributions(name: str, seed: int) -> None:
    ours, space, outputs, others, action = case(name, seed)
    columns = torch.from_numpy(action.reshape(len(action), -1)).float().unbind(-1)
    mine = distributions(space, outputs)
    further = distributions(space, others)
    log_prob = torch.stack([each.log_prob(own) for each, own in zip(mine, columns, strict=True)]).sum(0)
    entropy = torch.stack([each.entropy() for each in mine]).sum(0)
    divergence = torch.stack([kl_divergence(a, b) for a, b in zip(mine, further, strict=True)]).sum(0)
    taken = torch.from_numpy(action)
    torch.testing.assert_close(ours.log_prob(outputs, taken), log_prob, **CLOSE)
    torch.testing.assert_close(ours.entropy(outputs), entropy, **CLOSE)
    torch.testing.assert_close(ours.log_prob_and_entropy(outputs, taken), (log_prob, entropy), **CLOSE)
    torch.testing.assert_close(ours.kl(outputs, others), divergence, **CLOSE)
    host = ours.host_log_prob(outputs.numpy(), action)
    assert host.dtype == np.float32
    np.testing.assert_allclose(host, log_prob.numpy(), **CLOSE)


@for_each("name", SPACES)
def test_head_samples_from_the_distributions(name: str) -> None:
    """Means and variances agree, and the parts are independent: no two numbers are correlated."""
    ours, space, outputs, _, _ = case(name, 3, num_envs=1)
    count = 40_000
    drawn = ours.sample(np.repeat(outputs.numpy(), count, 0), ours.noise(np.random.default_rng(0), (count,)))
    columns = drawn.reshape(count, -1).astype(np.float64)
    for column, each in zip(columns.T, distributions(space, outputs), strict=True):
        if isinstance(each, Categorical):
            expected = count * each.probs[0].numpy()
            found = np.bincount(column.astype(int), minlength=len(expected))
            assert (np.abs(found - expected) <= 5 * np.sqrt(expected)).all()
        else:
            mean, deviation = float(each.mean), float(each.stddev)
            assert abs(column.mean() - mean) < 5 * deviation / np.sqrt(count)
            assert column.std() == pytest.approx(deviation, rel=0.03)
        if isinstance(each, Normal):
            assert (np.abs(column - mean) < deviation).mean() == pytest.approx(0.6827, abs=0.01)
    moving = columns[:, columns.std(0) > 0]
    if moving.shape[1] > 1:
        assert np.abs(np.corrcoef(moving.T) - np.eye(moving.shape[1])).max() < 0.025


@for_each("name", SPACES)
def test_mode_is_the_most_likely_action(name: str) -> None:
    """Actions also keep the shape and type of the space."""
    ours, space, outputs, _, action = case(name, 5)
    noise = ours.noise(np.random.default_rng(0), (50, 4))
    best = ours.mode(outputs.numpy())
    likely = ours.host_log_prob(outputs.numpy(), best)
    for each in (best, *(ours.sample(outputs.numpy(), now) for now in noise)):
        assert each.shape == action.shape
        assert each.dtype.kind == action.dtype.kind
        assert each.dtype != np.float64
        assert (ours.host_log_prob(outputs.numpy(), each) <= likely + 1e-5).all()
        np.testing.assert_array_equal(join(space, split(space, each)), each)


def test_mode_of_dict_actions_joins_the_modes_of_parts() -> None:
    outputs = np.array([[0.3, -0.4, 0.0, 0.0, 0.0, 9.0, 0.0, -5.0, 5.0, 0.0, 1.0, 0.0, 0.0, 2.0]], np.float32)
    best = split(PANEL, make_head(PANEL).mode(outputs))
    np.testing.assert_allclose(best["lever"], [[0.3, -0.4]], rtol=1e-6)
    assert best["button"].tolist() == [1]
    assert best["more"]["bits"].tolist() == [[0, 1]]
    assert best["more"]["dials"].tolist() == [[1, 2]]


def test_deviation_can_depend_on_the_state() -> None:
    space = spaces.Box(-1, 1, (2,), np.float32)
    for std, varies in (("free", False), ("state", True)):
        policy = PolicyNetwork(Spec(space, space, 1, "here"), Net(std=std))  # type: ignore[arg-type]
        outputs = policy(torch.randn(5, 2))
        assert outputs.shape == (5, 4)
        assert (outputs[:, 2:].std(0) > 0).all() == varies
        assert outputs[:, 2:].abs().max() < 0.1
    both = head(spaces.Dict({"a": space, "b": spaces.Discrete(2)}), 3, gain=1.0, std="state")[1]
    assert (both(torch.randn(6, 3))[:, 2:4].std(0) > 0).all()


@pytest.mark.parametrize(
    "space", [spaces.Text(3), spaces.Box(0, 3, (2,), np.int64), spaces.Dict({"a": spaces.Text(3)}), spaces.Dict({})]
)
def test_space_without_head_raises(space: spaces.Space[Any]) -> None:
    with pytest.raises(UsageError, match=r"no policy head for actions in .*; Discrete, MultiDiscrete, MultiBin"):
        head(space, 4)


# Masks.

MASKED = {name: SPACES[name] for name in ("uneven", "even", "matrix", "panel")}


def choices_by_part(space: spaces.Space[Any]) -> list[int]:
    """Count the choices of each part, in the order of a mask."""
    if isinstance(space, spaces.Dict):
        return [size for part in parts(space) for size in choices_by_part(part.space)]
    if isinstance(space, spaces.Discrete):
        return [int(space.n)]
    return space.nvec.ravel().tolist() if isinstance(space, spaces.MultiDiscrete) else []


def choices_of(space: spaces.Space[Any], action: Floats) -> Floats:
    """Return the choices [B, parts] in actions."""
    if not isinstance(space, spaces.Dict):
        return action.reshape(len(action), -1)
    own = [part.columns for part in parts(space) if choices_by_part(part.space)]
    return np.concatenate([action[:, columns] for columns in own], 1).astype(int)


def masked_policy(space: spaces.Space[Any]) -> PolicyNetwork:
    torch.manual_seed(0)
    obs = {"obs": spaces.Box(-1, 1, (3,), np.float32), "action_mask": spaces.MultiBinary(sum(choices_by_part(space)))}
    policy = PolicyNetwork(Spec(spaces.Dict(obs), space, 1, "masked"), Net((8,)))
    for parameter in policy.parameters():
        torch.nn.init.normal_(parameter)
    return policy


def masks(sizes: list[int], num_envs: int, generator: np.random.Generator) -> Floats:
    """Draw masks [rows, sum(sizes)] that leave a choice in each part."""
    drawn = [generator.integers(0, 2, (num_envs, size)) for size in sizes]
    for each in drawn:
        each[np.arange(num_envs), generator.integers(0, each.shape[1], num_envs)] = 1
    return np.concatenate(drawn, 1).astype(np.int8)


@pytest.mark.parametrize("name", MASKED)
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_policy_ignores_masked_actions(name: str, seed: int) -> None:
    """Log-probability and entropy are those of distributions over the legal choices only."""
    space = MASKED[name]
    generator = np.random.default_rng(seed)
    policy = masked_policy(space)
    sizes = choices_by_part(space)
    rows = 3
    mask = masks(sizes, rows, generator)
    starts = np.cumsum([0, *sizes[:-1]])
    obs = {"obs": generator.normal(size=(rows, 3)).astype(np.float32), "action_mask": mask}
    tensors = {key: torch.from_numpy(value) for key, value in obs.items()}
    agent = PolicyAgent(policy, Seeds(seed), log_prob=True)
    agent.initial(rows)
    outputs = policy(tensors)
    for explore in (True,) * 20 + (False,):
        act = agent.act(obs, np.zeros(rows, np.bool_), None, Clock(1), explore)
        assert np.take_along_axis(mask, starts + choices_of(space, act.action), 1).all()
        log_prob, entropy = policy.head.log_prob_and_entropy(outputs, torch.from_numpy(act.action))
        assert log_prob.isfinite().all()
        if explore:
            np.testing.assert_allclose(act.extras["log_prob"], log_prob.detach(), **CLOSE)
    free = policy({**tensors, "action_mask": torch.ones(rows, sum(sizes))})
    legal = mask.astype(bool)
    np.testing.assert_allclose(entropy.detach(), sum_over_legal(space, free, legal, None), **CLOSE)
    np.testing.assert_allclose(log_prob.detach(), sum_over_legal(space, free, legal, act.action), **CLOSE)
    assert policy.head.kl(outputs, outputs).abs().max() < 1e-4
    (log_prob + entropy).sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in policy.parameters())  # type: ignore[union-attr]


def sum_over_legal(space: spaces.Space[Any], free: Tensor, legal: Floats, action: Floats | None) -> list[float]:
    """Return log-probabilities of actions, or entropies, over the legal choices of each row."""
    found = []
    for row in range(len(free)):
        left = legal[row].tolist()
        total = 0.0
        numbers = None if action is None else torch.from_numpy(action[row].reshape(-1)).float()
        for position, each in enumerate(distributions(space, free[row].detach())):
            own = each
            number = None if numbers is None else numbers[position]
            if isinstance(each, Categorical):
                size = len(each.probs)
                kept = [choice for choice in range(size) if left[choice]]
                left = left[size:]
                own = Categorical(logits=each.logits[kept])
                number = None if number is None else torch.tensor(kept.index(int(number)))
            total += float(own.entropy() if number is None else own.log_prob(number))
        found.append(total)
    return found


def test_mask_can_have_a_row_for_each_part() -> None:
    space = spaces.MultiDiscrete([3, 3])
    obs = spaces.Dict({"obs": spaces.Box(-1, 1, (3,), np.float32), "action_mask": spaces.MultiBinary([2, 3])})
    policy = PolicyNetwork(Spec(obs, space, 1, "masked"), Net())
    mask = torch.tensor([[[1, 0, 0], [0, 0, 1]]], dtype=torch.int8)
    outputs = policy({"obs": torch.zeros(1, 3), "action_mask": mask})
    assert policy.head.mode(outputs.detach().numpy()).tolist() == [[0, 2]]


@pytest.mark.parametrize(
    ("space", "entries", "message"),
    [
        (spaces.MultiDiscrete([3, 2]), 6, r"the 'action_mask' of Some-v0 has 6 entries, and its actions, .* have 5 ch"),
        (spaces.Discrete(3), 2, "has 2 entries, and its actions, .* have 3 choices; give one entry for each choice"),
        (PANEL, 5, "has 5 entries, and its actions, .* have 8 choices"),
        (
            spaces.MultiBinary(3),
            3,
            r"gives an 'action_mask', and its actions, MultiBinary\(3\), have no choices",
        ),
        (
            spaces.Box(-1, 1, (2,)),
            2,
            "have no choices to mask; only Discrete and MultiDiscrete actions do, so",
        ),
    ],
)
def test_policy_refuses_mask_of_wrong_size(space: spaces.Space[Any], entries: int, message: str) -> None:
    obs = spaces.Dict({"obs": spaces.Box(-1, 1, (3,), np.float32), "action_mask": spaces.MultiBinary(entries)})
    with pytest.raises(UsageError, match=message):
        PolicyNetwork(Spec(obs, space, 1, "Some-v0"), Net())


def test_q_network_refuses_mask_of_wrong_size() -> None:
    obs = spaces.Dict({"obs": spaces.Box(-1, 1, (3,), np.float32), "action_mask": spaces.MultiBinary(4)})
    with pytest.raises(UsageError, match=r"has 4 entries, and its actions, .* have 3 choices"):
        QNetwork(Spec(obs, spaces.Discrete(3), 1, "Some-v0"), Net())
