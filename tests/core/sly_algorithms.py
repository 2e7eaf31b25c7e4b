"""Wrong algorithms that train, resume and repeat, two at least for each class of bug that only shows on a close look.

Each differs from a right one (`Tiny`, `TinyQ`) in one defect.
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
    """Tiny with an estimator of its own."""

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        value, successor = batch.values(self.values)
        advantage, target = self.estimate(batch, value, successor)
        loss = self.loss(batch.samples(advantage, target, self.device))[0]
        return Result({"loss/gradient_norm": self.optim.minimize(loss, clock)})

    def estimate(self, batch: Rollout, value: Array, successor: Array) -> tuple[Array, Array]:
        return gae(batch, value, successor, 0.99, 0.95)


def recursed(batch: Rollout, value: Array, successor: Array, goes_on: Array) -> tuple[Array, Array]:
    """Advantages whose recursion goes on where it is told to."""
    delta = batch.reward + 0.99 * successor * ~batch.terminated - value
    advantage = np.zeros_like(delta)
    running = np.zeros_like(delta[0])
    for t in range(len(delta) - 1, -1, -1):
        running = delta[t] + 0.99 * 0.95 * goes_on[t] * running
        advantage[t] = running
    advantage = advantage.astype(np.float32)
    return advantage, advantage + value


# Recursing across episodes


class RunsOn(Estimates):
    """Its recursion of advantages knows no end."""

    def estimate(self, batch: Rollout, value: Array, successor: Array) -> tuple[Array, Array]:
        return recursed(batch, value, successor, np.ones_like(batch.terminated))


class RunsOnPastCuts(Estimates):
    """Its recursion of advantages ends at terminations alone."""

    def estimate(self, batch: Rollout, value: Array, successor: Array) -> tuple[Array, Array]:
        return recursed(batch, value, successor, ~batch.terminated)


# One step off


class LateAdvantages(Estimates):
    """Each action gets the advantage of the one before."""

    def estimate(self, batch: Rollout, value: Array, successor: Array) -> tuple[Array, Array]:
        advantage, target = super().estimate(batch, value, successor)
        return np.roll(advantage, 1, axis=0), target


class EarlyAdvantages(Estimates):
    """Each action, and each value, gets what belongs to the next one."""

    def estimate(self, batch: Rollout, value: Array, successor: Array) -> tuple[Array, Array]:
        advantage, target = super().estimate(batch, value, successor)
        return np.roll(advantage, -1, axis=0), np.roll(target, -1, axis=0)


class EarlyDeltas(Estimates):
    """Its errors take the reward of the step before."""

    def estimate(self, batch: Rollout, value: Array, successor: Array) -> tuple[Array, Array]:
        return super().estimate(replace(batch, reward=np.roll(batch.reward, 1, axis=0)), value, successor)


class OwnValue(Estimates):
    """Takes the value of a step's own observation for that of its successor."""

    def estimate(self, batch: Rollout, value: Array, successor: Array) -> tuple[Array, Array]:
        return super().estimate(batch, value, value)


class LateSums(ListReplay):
    def window(self, t: int, n: int) -> tuple[Any, ...]:
        later = super().window(min(t + 1, len(self.steps) - self.config.n_step), n)
        return (self.steps[t]["obs"][n], self.steps[t]["action"][n], *later[2:])


class NStepLate(TinyQ):
    """Its n-step sums begin a step late."""

    def buffer(self) -> ListReplay:
        return LateSums(self.config, self.seeds)


# Sums across episodes


class Endless(ListReplay):
    def ends(self, step: dict[str, Array], n: int) -> bool:
        return False


class SumsOn(TinyQ):
    """Its n-step sums know no end."""

    def buffer(self) -> ListReplay:
        return Endless(self.config, self.seeds)


class PastCuts(ListReplay):
    def ends(self, step: dict[str, Array], n: int) -> bool:
        return bool(step["terminated"][n])


class SumsOnPastCuts(TinyQ):
    """Its n-step sums end at terminations alone."""

    def buffer(self) -> ListReplay:
        return PastCuts(self.config, self.seeds)


# Successors from the reset


class Following(ListReplay):
    """Keeps no successors: what a row sees next will do."""

    def successor(self, k: int, n: int) -> Array:
        return self.steps[k + 1]["obs"][n] if k + 1 < len(self.steps) else super().successor(k, n)  # type: ignore[no-any-return]


class ResetSuccessors(TinyQ):
    def buffer(self) -> ListReplay:
        return Following(self.config, self.seeds)


class FollowingValid(ListReplay):
    """Keeps no successors: what a row sees when it is next there will do."""

    def successor(self, k: int, n: int) -> Array:
        later = [step["obs"][n] for step in self.steps[k + 1 :] if step["valid"][n]]
        return later[0] if later else super().successor(k, n)


class ResetSuccessorsWhenThere(TinyQ):
    def buffer(self) -> ListReplay:
        return FollowingValid(self.config, self.seeds)


# Writing into what it is given


class CentringAgent(Epsilon):
    def act(
        self, obs: Obs, is_first: Array, recurrent_state: RecurrentState, clock: Clock, explore: bool = True
    ) -> Act:
        obs -= 0.5
        return super().act(obs, is_first, recurrent_state, clock, explore)


class WritesObs(TinyQ):
    def agent(self, rank: int = 0, ranks: int = 1) -> Epsilon:
        return CentringAgent(self.net, self.agent_seeds(rank), self.outputs)


class ForgetfulAgent(Epsilon):
    def act(
        self, obs: Obs, is_first: Array, recurrent_state: RecurrentState, clock: Clock, explore: bool = True
    ) -> Act:
        is_first[:] = False
        return super().act(obs, is_first, recurrent_state, clock, explore)


class WritesFirst(TinyQ):
    def agent(self, rank: int = 0, ranks: int = 1) -> Epsilon:
        return ForgetfulAgent(self.net, self.agent_seeds(rank), self.outputs)


class ScalingReplay(ListReplay):
    def add(self, step: Step, source: int = 0) -> None:
        step.reward *= 0.1
        super().add(step, source)


class WritesRewards(TinyQ):
    def buffer(self) -> ListReplay:
        return ScalingReplay(self.config, self.seeds)


# Hidden state


class CountsUpdates(TinyQ):
    """Halves its targets from the thousandth update on, by a count of its own."""

    count = 0

    def learn(self, batch: Transitions, now: Any, clock: Clock) -> Result:
        self.count += 1
        return super().learn(
            replace(batch, reward=batch.reward / 2, share=None) if self.count > 1000 else batch, now, clock
        )


class TiringAgent(Epsilon):
    """Explores no more after ten thousand answers, which it counts itself."""

    answers = 0

    def act(
        self, obs: Obs, is_first: Array, recurrent_state: RecurrentState, clock: Clock, explore: bool = True
    ) -> Act:
        self.answers += explore
        return super().act(obs, is_first, recurrent_state, clock, explore and self.answers < 10_000)


class CountsAnswers(TinyQ):
    def agent(self, rank: int = 0, ranks: int = 1) -> Epsilon:
        return TiringAgent(self.net, self.agent_seeds(rank), self.outputs)


# The process's generators


class ReseedsNumpy(TinyQ):
    def build(self) -> None:
        np.random.seed(self.seeds.integer())
        super().build()


class ReseedsTorch(Tiny):
    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        torch.manual_seed(clock.updates)
        return super().learn(batch, now, clock)


# Not a number


class CoversUp(Tiny):
    """Rewards that are NaN are 0 to it."""

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        np.nan_to_num(batch.reward, copy=False)
        return super().learn(batch, now, clock)


class SkipsOver(TinyQ):
    """Leaves out updates whose targets are not finite."""

    def learn(self, batch: Transitions, now: Any, clock: Clock) -> Result:
        if not self.target(batch).isfinite().all():
            return Result({})
        return super().learn(batch, now, clock)


# Exploring when it should not


class DiceAgent(PolicyAgent):
    def act(
        self, obs: Obs, is_first: Array, recurrent_state: RecurrentState, clock: Clock, explore: bool = True
    ) -> Act:
        return super().act(obs, is_first, recurrent_state, clock)


class Dice(Tiny):
    """Its agents draw in evaluations too."""

    def agent(self, rank: int = 0, ranks: int = 1) -> PolicyAgent:
        return DiceAgent(self.policy, self.agent_seeds(rank), self.inference_backend)


class WillfulAgent(Epsilon):
    def act(
        self, obs: Obs, is_first: Array, recurrent_state: RecurrentState, clock: Clock, explore: bool = True
    ) -> Act:
        return super().act(obs, is_first, recurrent_state, clock)


class Willful(TinyQ):
    """Its agents explore in evaluations too, now and then."""

    def agent(self, rank: int = 0, ranks: int = 1) -> Epsilon:
        return WillfulAgent(self.net, self.agent_seeds(rank), self.outputs)
