# %% [markdown]
# # 1. Deep Q-learning
#
# An agent sees an observation s, takes an action a, gets a reward r and sees the next observation s'. It wants a large
# *return*: the sum of all rewards to come, where a reward k steps ahead counts γᵏ. Write Q(s, a) for the return of
# taking a in s and acting as well as possible from then on. Whoever knows Q knows how to act: take the action of
# highest value. And Q explains itself, for the best return from here is one reward and the best return from there:
#
#     Q(s, a) = E[ r + γ max_a' Q(s', a') ]                                     (Bellman's equation)
#
# Deep Q-learning (Mnih et al., 2015, doi:10.1038/nature14236) lets a network stand for Q and pulls its left side
# towards its right side, one batch at a time:
#
#     L = huber( r + γ max_a' Q_target(s', a') - Q(s, a) )
#
# Three things keep this from falling apart, and each is a part that rlplug has ready:
#
# - **Replay.** Steps that follow one another are alike. A `ReplayBuffer` keeps many and hands out random ones.
# - **A target network.** If Q stood on both sides, each update would move what it aims at. So the right side has a copy
#   that stands still and is renewed now and then: `target_network` and `move_target`.
# - **Exploration.** Values of actions that are never taken are never learned. `EpsilonGreedy` takes a random action
#   with a probability ε that falls from 1 to nearly 0.

# %%
from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rlplug_core import Algorithm, Config
from rlplug_core.algorithm import move_target, target_network
from rlplug_core.batches import Transitions
from rlplug_core.buffers.replay import Pace, ReplayBuffer
from rlplug_core.clock import Clock, due
from rlplug_core.config import Count, Fraction, Positive
from rlplug_core.exploration import EpsilonGreedy
from rlplug_core.nets.modules import QNetwork
from rlplug_core.nets.net import Net
from rlplug_core.schedules import constant, linear
from rlplug_core.types import Result

# %% [markdown]
# A configuration is a dataclass. The comment beside a field is its help text, its type is checked, and every field is
# an option of the command line. These defaults suit CartPole-v1: after every 256 env steps come 128 gradient steps.


# %%
@dataclass(frozen=True)
class DQNConfig(Config):
    capacity: Count = 100_000  # transitions kept for replay
    batch: Count = 64  # transitions per gradient step
    every: Count = 256  # env steps between bursts of gradient steps
    updates: Count = 128  # gradient steps per burst
    start: Count = 1_000  # env steps before the first gradient step
    gamma: Fraction = 0.99  # discount per step
    n_step: Count = 1  # rewards summed before bootstrapping
    epsilon_end: Fraction = 0.04  # chance of a random action in the end
    epsilon_until: Positive = 0.16  # share of the run over which it falls
    lr: Positive = 2.3e-3  # step size of Adam
    target_every: Count = 128  # gradient steps between copies to the target network
    gradient_clip: Positive = 10.0  # largest gradient norm
    net: Net = Net(hidden=(256, 256), activation="relu")


# %% [markdown]
# The learner says what it is made of (`network`, `build`), who acts (`agent`), what is remembered (`buffer`) and what
# one gradient step does (`update`, `loss`). It has no loop: the runner steps environments, fills the buffer and calls
# `update` with each batch that is due.
#
# A batch of transitions already knows where episodes end. Its `discount` is γ, but 0 where s' is terminal, so that
# nothing is expected from beyond the end. A time limit is no such end: s' still has a value, and `discount` stays γ.


# %%
def chosen(values: Tensor, action: Tensor) -> Tensor:
    """Of `values` [B, A, ...] those of one action per row: [B, ...]."""
    return values[torch.arange(len(action), device=action.device), action]


class DQN(Algorithm[Transitions]):
    """Deep Q-learning."""

    Config = DQNConfig
    config: DQNConfig
    actions = ("Discrete",)

    def network(self) -> QNetwork:
        return QNetwork(self.spec, self.config.net)

    def build(self) -> None:
        self.online = self.network().to(self.device)
        self.target = target_network(self.online)
        self.optim = self.optimiser([self.online], constant(self.config.lr), self.config.gradient_clip)

    def agent(self, rank: int = 0, ranks: int = 1) -> EpsilonGreedy:
        epsilon = linear(1.0, self.config.epsilon_end, self.config.epsilon_until)
        return EpsilonGreedy(self.online, epsilon, self.agent_seeds(rank), self.acting)

    def pace(self) -> Pace:
        """When which batches are due."""
        return Pace(self.config.batch, self.config.every, self.config.updates, self.config.start)

    def buffer(self) -> ReplayBuffer:
        c = self.config
        return ReplayBuffer(c.capacity, self.pace(), c.n_step, c.gamma, self.seeds.child("buffer"), self.device)

    def update(self, batch: Transitions, clock: Clock) -> Result:
        loss, metrics, error = self.loss(batch)
        self.optim.minimise(loss, clock)
        if due(clock.updates, clock.updates + 1, self.config.target_every):
            move_target(self.target, self.online)
        return Result(metrics, error)

    def loss(self, batch: Transitions) -> tuple[Tensor, dict[str, Tensor], Tensor]:
        losses, error = self.losses(batch)
        loss = batch.mean(losses)
        return loss, {"loss/value": loss.detach()}, error.detach()

    def losses(self, batch: Transitions) -> tuple[Tensor, Tensor]:
        """The loss of each transition [B], and how wrong its value was (chapter 3 needs that)."""
        value = self.taken(batch)
        target = batch.reward + batch.discount * self.following(batch)
        return nn.functional.smooth_l1_loss(value, target, reduction="none"), (target - value).abs()

    def taken(self, batch: Transitions) -> Tensor:
        """Q(s, a)."""
        return chosen(self.online(batch.obs), batch.action)

    @torch.no_grad()
    def following(self, batch: Transitions) -> Tensor:
        """Q_target(s', a') of the best next action a'."""
        ahead = self.ahead(batch)
        return chosen(ahead, self.best(batch, ahead))

    def ahead(self, batch: Transitions) -> Tensor:
        """Q_target(s', ·)."""
        values: Tensor = self.target(batch.next_obs)
        return values

    def best(self, batch: Transitions, ahead: Tensor) -> Tensor:
        """The best next action a', here by the target network."""
        return ahead.argmax(1)


# %% [markdown]
# ## By hand
#
# One transition with reward 1, γ = 0.9 and next values 2 and 3: the target is 1 + 0.9 · 3. At a terminal s' it is 1.


# %%
def by_hand() -> None:
    ahead = torch.tensor([[2.0, 3.0], [2.0, 3.0]])
    reward, discount = torch.ones(2), torch.tensor([0.9, 0.0])
    target = reward + discount * chosen(ahead, ahead.argmax(1))
    print("targets:", [round(number, 2) for number in target.tolist()])
    assert torch.allclose(target, torch.tensor([1 + 0.9 * 3, 1.0]))


# %% [markdown]
# ## What came out
#
# The packaged `dqn` is this learner with more switches: `rlplug run dqn CartPole-v1` gives the same weights, bit for
# bit. And this file is a plugin as it stands: `rlplug run ./docs/guide/chapter_01_dqn.py:DQN CartPole-v1 --lr 1e-3`.

# %%
if __name__ == "__main__":
    from lesson import lesson

    by_hand()
    lesson("chapter_01_dqn:DQN")
