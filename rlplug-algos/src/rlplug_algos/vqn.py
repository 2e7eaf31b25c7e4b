"""Online Q-learning with a network (Watkins, 1989; Mnih et al., 2013): no replay, the newest step of many rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from rlplug_algos.action_values import ONLINE, TARGET, ActionValueConfig, ActionValueLearner, noise_of
from rlplug_core.accelerate.forward import TorchForward, forward
from rlplug_core.batches import Rollout, Samples
from rlplug_core.buffers.rollout import RolloutBuffer
from rlplug_core.clock import Clock
from rlplug_core.config import Positive, log
from rlplug_core.estimators import gae
from rlplug_core.losses import Regression, regression
from rlplug_core.nets.modules import QNetwork
from rlplug_core.protocols import Buffer
from rlplug_core.types import Array, Obs, Result


@dataclass(frozen=True)
class VQNConfig(ActionValueConfig):
    """Options of VQN."""

    loss: Regression = "mse"  # of the error: square within 1 and linear beyond, or square
    clip: Positive = 1.0  # largest gradient norm

    search = {"lr": log(1e-5, 1e-2)}


class VQN(ActionValueLearner[Rollout]):
    """One gradient step on every vector step; what makes up for the missing replay is the number of rows.

    Attributes:
        uses: how many uses of a network have noise of their own in an update, where layers are noisy.
    """

    Config = VQNConfig
    runners: ClassVar[tuple[str, ...]] = ("sync", "async")
    config: VQNConfig
    uses: int = 2

    def build(self) -> None:
        super().build()
        c = self.config
        lr, rule = self.step_size("lr", c.anneal), c.optimiser.rule(c.rule)
        self.optim = self.optimiser([self.online], lr, self.schedule("clip"), rule)
        self.values = self.hosted(self.online)

    def hosted(self, network: QNetwork) -> Callable[..., Array]:
        """A network's values on the host; noise, where layers are noisy, is a further argument."""
        return forward(network, self.acting) if self.config.noisy is None else TorchForward(network)

    def buffer(self) -> Buffer[Rollout]:
        return RolloutBuffer(steps=1)

    def update(self, batch: Rollout, clock: Clock) -> Result:
        noise = self.drawn(self.uses)
        target = self.targets(batch, clock, noise)
        samples = batch.samples(target, target, self.device)  # values have no advantages
        samples.extras = samples.extras | self.carried(noise)
        loss, metrics = self.loss(samples)
        metrics["loss/gradient_norm"] = self.optim.minimise(loss, clock)
        return Result(metrics)

    def targets(self, batch: Rollout, clock: Clock, noise: Sequence[Array] = ()) -> Array:
        """The rewards [T, N] to the end of the rollout or episode, and from there gamma^k max_a Q(s, a)."""
        value, successor = batch.values(lambda obs: self.best(obs, noise))
        return gae(batch, value, successor, self.config.gamma, lam=1.0)[1]

    def best(self, obs: Obs, noise: Sequence[Array] = ()) -> Array:
        """The value [B] of the best legal action: max_a Q(s, a)."""
        value: Array = self.values(obs, *only(noise, TARGET)).max(-1)
        return value

    def loss(self, batch: Samples) -> tuple[Tensor, dict[str, Tensor]]:
        """The error of Q(s, a) from its target, squared or as `loss` says; no gradient reaches the target."""
        values = self.online(batch.obs, noise_of(batch, ONLINE)).gather(1, batch.action.unsqueeze(1)).squeeze(1)
        loss = batch.mean(regression(values, batch.target, self.config.loss))
        return loss, {"loss/value": loss.detach(), "loss/q_mean": batch.mean(values.detach())}


def only(noise: Sequence[Array], use: int) -> Sequence[Array]:
    """Of the noise for all uses of a network that for one, or nothing where layers are plain."""
    return noise[use : use + 1]
