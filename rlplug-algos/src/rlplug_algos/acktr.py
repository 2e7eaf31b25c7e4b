"""Actor-critic using Kronecker-factored trust regions (Wu et al., 2017, arXiv:1708.05144)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlplug_algos.actor_critic import ActorCritic, ActorCriticConfig
from rlplug_core.batches import Rollout, Samples
from rlplug_core.clock import Clock, due
from rlplug_core.config import Count, Fraction, Positive, log, uniform
from rlplug_core.errors import UsageError
from rlplug_core.kfac import KFAC
from rlplug_core.optimiser import Optimiser
from rlplug_core.scheduled import unguarded
from rlplug_core.schedules import Schedule
from rlplug_core.types import Result


@dataclass(frozen=True)
class ACKTRConfig(ActorCriticConfig):
    """Options of ACKTR."""

    steps: Count = 20  # rollout length per environment row
    lr: Positive = 0.25  # largest step size along the natural gradient
    kl: Positive = 2e-3  # how far the policy may move per update, as KL divergence
    critic_kl: Positive = 2e-3  # how far the critic may move per update, likewise, as a Gaussian's mean
    damping: Positive = 0.01  # what is added to the eigenvalues of the Fisher matrix
    momentum: Fraction = 0.9  # share of the previous direction in the next
    refresh: Count = 10  # updates between decompositions of the Fisher matrix

    search = {"lr": log(0.01, 1.0), "kl": log(1e-4, 1e-2), "lam": uniform(0.8, 1.0)}


class ACKTR(ActorCritic):
    """A2C whose gradient is preconditioned with K-FAC, for policy and critic."""

    Config = ACKTRConfig
    runners: ClassVar[tuple[str, ...]] = ("sync",)
    config: ACKTRConfig

    def minimiser(self, lr: Schedule) -> Optimiser:
        c = self.config
        if c.net.shared:
            raise UsageError("acktr has a trust region for each of policy and critic; leave net.shared at false")
        start = unguarded(c)  # `update` follows these
        regions = [(self.policy, start.kl), (self.critic, start.critic_kl)]
        self.kfac = KFAC(regions, start.damping, start.momentum)
        return self.optimiser([self.policy, self.critic], lr, None, self.kfac)

    def update(self, batch: Rollout, clock: Clock) -> Result:
        c, samples = self.config, self.samples(batch)
        smaller = clock.scale**2  # so that a plateau shortens steps within the regions too
        self.kfac.tune((c.kl * smaller, c.critic_kl * smaller), c.damping, c.momentum)
        self.observe(samples)
        if clock.updates == 0 or due(clock.updates, clock.updates + 1, c.refresh):
            self.kfac.refresh()
        loss, metrics = self.loss(samples)
        metrics["loss/gradient_norm"] = self.optim.minimise(loss, clock, age=batch.weight.size)
        self.kfac.rescale(self.critic.output, self.critic.absorb(samples))
        return Result(metrics)

    def observe(self, batch: Samples) -> None:
        """The curvature of the policy at the actions it drew, and of the critic as a Gaussian's mean (section 3.1).

        The Gaussian is one number, so the gradient of its mean has the moments of its score: nothing is drawn. Its
        variance is the mean squared error, so that the critic's region does not depend on the scale of rewards. All of
        it is in the critic's unit, as the loss is.
        """
        with self.kfac.capture() as seen:
            log_prob = self.policy.head.log_prob(self.policy(batch.obs), batch.action)
            mean = self.critic(batch.obs) / self.critic.unit
        self.kfac.observe(seen, log_prob + mean, batch.weight)
        used = batch.weight > 0
        error = (mean.detach() - batch.target / self.critic.unit).square() * used
        self.kfac.widen(1, error.sum() / used.sum().clamp(min=1))
