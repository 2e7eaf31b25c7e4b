"""The check of algorithms with the options `net.obs` and `critic_net.obs`: each network reads its own keys."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from rlplug_core.acting.states import begin_acting
from rlplug_core.clock import Clock
from rlplug_core.config.schema import schema
from rlplug_core.errors import UsageError
from rlplug_core.export.bundle import trace_policy
from rlplug_core.export.greedy import greedy
from rlplug_core.protocols import Agent, SupportsExport
from rlplug_core.seeds import Seeds
from rlplug_core.testing.kit.outcome import Failed, Skipped
from rlplug_core.testing.kit.probe import Probe, Scenario, drawing
from rlplug_core.testing.kit.short_run import TOTAL, Trial
from rlplug_core.testing.kit.subject import Subject
from rlplug_core.testing.kit.trees import difference, leaves
from rlplug_core.types import Obs, Space, Spec

#: The keys of `net.obs` and `critic_net.obs`, and the numbers in each.
POLICY = "policy_key"
CRITIC = "critic_key"
WIDTHS = {POLICY: 3, CRITIC: 4}
#: Units of hidden layers: primes, so that the shape of a matrix shows which options it was built from.
POLICY_UNITS = 61
CRITIC_UNITS = 67
#: Observations per environment when actions are compared.
MANY = 16


class Matrix(NamedTuple):
    """A weight matrix of a learner.

    Attributes:
        shape: its shape.
        keys: the keys with widths that change its shape.
    """

    shape: tuple[int, ...]
    keys: frozenset[str]

    def has(self, units: int, key: str) -> bool:
        """Return whether it maps a key to hidden layers of `units` units."""
        return key in self.keys and any(size % units == 0 for size in self.shape)


def views(subject: Subject) -> None:
    """With `net.obs` and `critic_net.obs` policy and critic read their own keys, with their own options."""
    names = {option.name for option in schema(subject.cls.Config)}
    if "net.obs" not in names:
        raise Skipped("it has no option net.obs")
    has_critic = "critic_net.obs" in names
    viewing = _viewing(subject, names)
    spec = _with_keys(subject.spec, WIDTHS)
    _check_spaces(subject, viewing, spec)
    trial = Trial(viewing, _Keyed(spec)).run(subject.horizon.turns)
    _check_actions(trial.learner.agent(), spec)
    _check_export(trial.learner.agent(), spec)
    _check_matrices(_matrices(viewing, subject.spec), has_critic)
    if has_critic:
        changed = Trial(viewing, _Keyed(spec, series=1)).run(subject.horizon.turns)
        if not difference(trial.learner_state(), changed.learner_state()):
            raise Failed(
                "updates do not depend on the key of critic_net.obs; give the critic the whole observation, and build "
                "it from critic_net.over(net)"
            )


def _viewing(subject: Subject, names: set[str]) -> Subject:
    """Return the algorithm with one key for each network, and hidden layers of known sizes."""
    values = {
        **subject.options,
        "net.shared": False,
        "net.factory": None,
        "critic_net.factory": None,
    }
    # A memory reads what all hidden layers but the last one made of the key.
    layers = max(2, len(subject.config.net.hidden))
    for group, key, units in (("net", POLICY, POLICY_UNITS), ("critic_net", CRITIC, CRITIC_UNITS)):
        if f"{group}.obs" in names:
            layers = max(len(getattr(subject.config, group).hidden or ()), layers)
            values |= {f"{group}.obs": [key], f"{group}.hidden": [units] * layers}
    known = {name: value for name, value in values.items() if name in names}
    return Subject(subject.name, subject.record, known, subject.env, subject.wrap)


def _with_keys(spec: Spec, widths: dict[str, int]) -> Spec:
    """Return a spec with a vector for each key in its observations, after the keys that it has."""
    current: dict[str, Space] = dict(spec.obs.spaces) if isinstance(spec.obs, spaces.Dict) else {}
    vectors = {key: spaces.Box(-1, 1, (width,), np.float32) for key, width in widths.items()}
    return replace(spec, obs=spaces.Dict({**current, **vectors}))


def _check_spaces(subject: Subject, viewing: Subject, spec: Spec) -> None:
    """Raise Skipped if it takes no Dict observations, and Failed if it takes them only without the options."""
    try:
        viewing.learner(spec, Seeds(0))
    except UsageError as refusal:
        try:
            subject.learner(spec, Seeds(0))
        except UsageError:
            raise Skipped(f"it refuses Dict observations: {refusal}") from refusal
        raise Failed(f"it refuses its options net.obs and critic_net.obs: {refusal}") from refusal


class _Keyed(Probe):
    """A probe that draws the numbers of the critic's key from a separate series."""

    def __init__(self, spec: Spec, series: int = 0) -> None:
        super().__init__(spec, Scenario("either"))
        draw_all = self.draw
        self.series = np.random.default_rng([1, series])
        self.draw = lambda generator: _with_key(draw_all(generator), CRITIC, self.series)


def _with_key(obs: Obs, key: str, generator: np.random.Generator) -> Obs:
    """Return observations with new numbers in one key."""
    return {**obs, key: generator.uniform(-1, 1, obs[key].shape).astype(np.float32)}


def _check_actions(agent: Agent, spec: Spec) -> None:
    """Raise Failed if actions depend on the critic's key."""
    rows = MANY * spec.num_envs
    obs = drawing(spec.obs, rows)(np.random.default_rng(0))
    changed = _with_key(obs, CRITIC, np.random.default_rng(1))
    if difference(_answers(agent, obs, rows), _answers(agent, changed, rows)):
        raise Failed(
            f"with net.obs={POLICY} actions depend on another key, '{CRITIC}'; build the policy from net, not from "
            "the critic's options, and leave the choice of keys to its encoder"
        )


def _answers(agent: Agent, obs: Obs, rows: int) -> dict[str, Any]:
    """Return the best actions of an agent and its state after them."""
    acting, state = begin_acting(agent, rows)
    act = acting.act(obs, np.ones(rows, np.bool_), state, Clock(TOTAL), explore=False)
    return leaves({"action": act.action, "state": act.recurrent_state})


def _check_export(agent: Agent, spec: Spec) -> None:
    """Raise Failed if the module of an agent with `exported()` reads the critic's key."""
    if not isinstance(agent, SupportsExport):
        return
    flat, *_ = trace_policy(greedy(agent), spec.obs)
    if f"obs.{CRITIC}" in flat.names:
        raise Failed(
            f"exported() reads '{CRITIC}', a key that net.obs does not have and that only critics may read; export "
            "the policy without the critic"
        )


def _matrices(viewing: Subject, spec: Spec) -> list[Matrix]:
    """Return the matrices in the state of a learner."""
    default_shapes = _shapes(viewing, _with_keys(spec, WIDTHS))
    wider = {
        key: _shapes(viewing, _with_keys(spec, {**WIDTHS, key: width + 2}))
        for key, width in WIDTHS.items()
    }
    return [
        Matrix(shape, frozenset(key for key in wider if wider[key].get(path) != shape))
        for path, shape in default_shapes.items()
        if len(shape) > 1
    ]


def _shapes(viewing: Subject, spec: Spec) -> dict[str, tuple[int, ...]]:
    state = leaves(viewing.learner(spec, Seeds(0)).state_dict())
    return {path: np.shape(leaf) for path, leaf in state.items()}


def _check_matrices(matrices: list[Matrix], has_critic: bool) -> None:
    """Raise Failed if a network was built from the options of another one; without matrices nothing is known."""
    if not matrices:
        return
    if not any(matrix.has(POLICY_UNITS, POLICY) for matrix in matrices):
        raise Failed(
            "no network of net.hidden units reads the key of net.obs; build the policy from net, with PolicyNetwork, "
            "PolicyAndCritic, QNetwork or encoder"
        )
    if any(matrix.has(POLICY_UNITS, CRITIC) for matrix in matrices):
        raise Failed(
            "a network of net.hidden units reads a key that net.obs does not have; if it is the critic, build it from "
            "critic_net.over(net)"
        )
    if has_critic and any(matrix.has(CRITIC_UNITS, POLICY) for matrix in matrices):
        raise Failed(
            "the critic reads keys that critic_net.obs does not have; build it from critic_net.over(net), on the "
            "whole observation"
        )
    if has_critic and not any(matrix.has(CRITIC_UNITS, CRITIC) for matrix in matrices):
        raise Failed(
            "no network of critic_net.hidden units reads the key of critic_net.obs; build the critic from "
            "critic_net.over(net), or leave critic_net out of the options"
        )
