"""Wrong algorithms that train, resume and repeat, at least two for each kind of bug that is hard to see.

Each differs from a right algorithm (`Tiny`, `TinyQ`) in one defect.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from rlplug_core.acting.policy_agent import PolicyAgent
from rlplug_core.batches import Rollout, Transitions
from rlplug_core.clock import Clock
from rlplug_core.learning.estimators import gae
from rlplug_core.types import Act, Array, Obs, RecurrentState, Result, Step
from tests.core.tiny_q import Epsilon, ListReplay, TinyQ
from tests.core.wrong_algorithms import Tiny


class Estimates(Tiny):
    """Tiny with its own estimator."""

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        value, successor = batch.values(self.values)
        advantage, target = self.estimate(batch, value, successor)
        loss = self.loss(batch.samples(advantage, target, self.device))[0]
        return Result({"loss/gradient_norm": self.optim.minimize(loss, clock)})

    def estimate(self, batch: Rollout, value: Array, successor: Array) -> tuple[Array, Array]:
        return gae(batch, value, successor, 0.99, 0.95)


def advantages(batch: Rollout, value: Array, successor: Array, continues: Array) -> tuple[Array, Array]:
    """Compute advantages; the recursion continues over steps with `continues`."""
    delta = batch.reward + 0.99 * successor * ~batch.terminated - value
    advantage = np.zeros_like(delta)
    running = np.zeros_like(delta[0])
    for t in range(len(delta) - 1, -1, -1):
        running = delta[t] + 0.99 * 0.95 * continues[t] * running
        advantage[t] = running
    advantage = advantage.astype(np.float32)
    return advantage, advantage + value


# Recursing across episodes


class AdvantagesAcrossEpisodes(Estimates):
    """Its recursion of advantages continues across episodes."""

    def estimate(self, batch: Rollout, value: Array, successor: Array) -> tuple[Array, Array]:
        return advantages(batch, value, successor, np.ones_like(batch.terminated))


class AdvantagesAcrossTruncations(Estimates):
    """Its recursion of advantages ends only at terminations."""

    def estimate(self, batch: Rollout, value: Array, successor: Array) -> tuple[Array, Array]:
        return advantages(batch, value, successor, ~batch.terminated)


# One step off


class LateAdvantages(Estimates):
    """Each action gets the advantage of the previous action."""

    def estimate(self, batch: Rollout, value: Array, successor: Array) -> tuple[Array, Array]:
        advantage, target = super().estimate(batch, value, successor)
        return np.roll(advantage, 1, axis=0), target


class EarlyAdvantages(Estimates):
    """Each action and value gets the advantage and target of the next."""

    def estimate(self, batch: Rollout, value: Array, successor: Array) -> tuple[Array, Array]:
        advantage, target = super().estimate(batch, value, successor)
        return np.roll(advantage, -1, axis=0), np.roll(target, -1, axis=0)


class EarlyDeltas(Estimates):
    """Its errors use the reward of the previous step."""

    def estimate(self, batch: Rollout, value: Array, successor: Array) -> tuple[Array, Array]:
        return super().estimate(replace(batch, reward=np.roll(batch.reward, 1, axis=0)), value, successor)


class OwnValue(Estimates):
    """Uses the value of an observation as the value of its successor."""

    def estimate(self, batch: Rollout, value: Array, successor: Array) -> tuple[Array, Array]:
        return super().estimate(batch, value, value)


class LateSums(ListReplay):
    def window(self, t: int, n: int) -> tuple[Any, ...]:
        later = super().window(min(t + 1, len(self.steps) - self.config.n_step), n)
        return (self.steps[t]["obs"][n], self.steps[t]["action"][n], *later[2:])


class NStepLate(TinyQ):
    """Its n-step sums start a step late."""

    def buffer(self) -> ListReplay:
        return LateSums(self.config, self.seeds)


# Sums across episodes


class NoEndsReplay(ListReplay):
    def ends(self, step: dict[str, Array], n: int) -> bool:
        return False


class NStepAcrossEpisodes(TinyQ):
    """Its n-step sums continue across episodes."""

    def buffer(self) -> ListReplay:
        return NoEndsReplay(self.config, self.seeds)


class TerminationsReplay(ListReplay):
    def ends(self, step: dict[str, Array], n: int) -> bool:
        return bool(step["terminated"][n])


class NStepAcrossTruncations(TinyQ):
    """Its n-step sums end only at terminations."""

    def buffer(self) -> ListReplay:
        return TerminationsReplay(self.config, self.seeds)


# Successors from the reset


class NextRowReplay(ListReplay):
    """Uses the next observation of a row as the successor."""

    def successor(self, k: int, n: int) -> Array:
        return self.steps[k + 1]["obs"][n] if k + 1 < len(self.steps) else super().successor(k, n)  # type: ignore[no-any-return]


class ResetSuccessors(TinyQ):
    def buffer(self) -> ListReplay:
        return NextRowReplay(self.config, self.seeds)


class NextValidRowReplay(ListReplay):
    """Uses the next valid observation of a row as the successor."""

    def successor(self, k: int, n: int) -> Array:
        later = [step["obs"][n] for step in self.steps[k + 1 :] if step["valid"][n]]
        return later[0] if later else super().successor(k, n)


class ResetSuccessorsOfValidRows(TinyQ):
    def buffer(self) -> ListReplay:
        return NextValidRowReplay(self.config, self.seeds)


# Writing into arguments


class CenteringAgent(Epsilon):
    def act(
        self, obs: Obs, is_first: Array, recurrent_state: RecurrentState, clock: Clock, explore: bool = True
    ) -> Act:
        obs -= 0.5
        return super().act(obs, is_first, recurrent_state, clock, explore)


class WritesObs(TinyQ):
    def agent(self, rank: int = 0, ranks: int = 1) -> Epsilon:
        return CenteringAgent(self.net, self.agent_seeds(rank), self.outputs)


class ClearsFirstAgent(Epsilon):
    def act(
        self, obs: Obs, is_first: Array, recurrent_state: RecurrentState, clock: Clock, explore: bool = True
    ) -> Act:
        is_first[:] = False
        return super().act(obs, is_first, recurrent_state, clock, explore)


class WritesFirst(TinyQ):
    def agent(self, rank: int = 0, ranks: int = 1) -> Epsilon:
        return ClearsFirstAgent(self.net, self.agent_seeds(rank), self.outputs)


class ScalingReplay(ListReplay):
    def add(self, step: Step, source: int = 0) -> None:
        step.reward *= 0.1
        super().add(step, source)


class WritesRewards(TinyQ):
    def buffer(self) -> ListReplay:
        return ScalingReplay(self.config, self.seeds)


# Hidden state


class CountsUpdates(TinyQ):
    """Halves its targets from update 1000 on, by its own counter."""

    count = 0

    def learn(self, batch: Transitions, now: Any, clock: Clock) -> Result:
        self.count += 1
        return super().learn(
            replace(batch, reward=batch.reward / 2, share=None) if self.count > 1000 else batch, now, clock
        )


class StopsExploringAgent(Epsilon):
    """Stops exploring after ten thousand acts, by its own counter."""

    acts = 0

    def act(
        self, obs: Obs, is_first: Array, recurrent_state: RecurrentState, clock: Clock, explore: bool = True
    ) -> Act:
        self.acts += explore
        return super().act(obs, is_first, recurrent_state, clock, explore and self.acts < 10_000)


class CountsActs(TinyQ):
    def agent(self, rank: int = 0, ranks: int = 1) -> Epsilon:
        return StopsExploringAgent(self.net, self.agent_seeds(rank), self.outputs)


# Global generators


class ReseedsNumpy(TinyQ):
    def build(self) -> None:
        np.random.seed(self.seeds.integer())
        super().build()


class ReseedsTorch(Tiny):
    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        torch.manual_seed(clock.updates)
        return super().learn(batch, now, clock)


# NaN


class ReplacesNan(Tiny):
    """Treats rewards of NaN as 0."""

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        np.nan_to_num(batch.reward, copy=False)
        return super().learn(batch, now, clock)


class SkipsNan(TinyQ):
    """Skips updates with targets that are not finite."""

    def learn(self, batch: Transitions, now: Any, clock: Clock) -> Result:
        if not self.target(batch).isfinite().all():
            return Result({})
        return super().learn(batch, now, clock)


# Exploration in evaluations


class SamplingAgent(PolicyAgent):
    def act(
        self, obs: Obs, is_first: Array, recurrent_state: RecurrentState, clock: Clock, explore: bool = True
    ) -> Act:
        return super().act(obs, is_first, recurrent_state, clock)


class SamplesInEvaluation(Tiny):
    """Its agents sample in evaluations, too."""

    def agent(self, rank: int = 0, ranks: int = 1) -> PolicyAgent:
        return SamplingAgent(self.policy, self.agent_seeds(rank), self.inference_backend)


class ExploringAgent(Epsilon):
    def act(
        self, obs: Obs, is_first: Array, recurrent_state: RecurrentState, clock: Clock, explore: bool = True
    ) -> Act:
        return super().act(obs, is_first, recurrent_state, clock)


class ExploresInEvaluation(TinyQ):
    """Its agents sometimes explore in evaluations."""

    def agent(self, rank: int = 0, ranks: int = 1) -> Epsilon:
        return ExploringAgent(self.net, self.agent_seeds(rank), self.outputs)
