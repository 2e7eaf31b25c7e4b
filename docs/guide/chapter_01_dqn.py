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
# Three things make this stable. rlplug has a part for each:
#
# - **A replay buffer.** Consecutive steps are alike. A `ReplayBuffer` keeps many steps and returns random ones.
# - **A target network.** If Q stood on both sides, each update would move what it aims at. So the right side has a copy
#   that is updated only now and then: `target_network` makes it, `Target` moves it.
# - **Exploration.** Values of actions that are never taken are never learned. `EpsilonGreedy` takes a random action
#   with a probability ε that falls from 1 to nearly 0.

# %%
from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

import rlplug_core as rl

# %% [markdown]
# A configuration is a dataclass. The comment beside a field is its help text, its type is checked, and every field is
# an option of the command line. These defaults suit CartPole-v1: after every 256 env steps come 128 gradient steps.


# %%
@dataclass(frozen=True)
class DQNConfig(rl.Config):
    buffer_size: rl.Count = 100_000  # transitions kept in the replay buffer
    batch_size: rl.Count = 64  # transitions per gradient step
    train_freq: rl.Count = 256  # env steps between updates
    gradient_steps: rl.Count = 128  # gradient steps per update
    learning_starts: rl.Count = 1_000  # env steps before the first gradient step
    gamma: rl.Fraction = 0.99  # discount per step
    n_step: rl.Count = 1  # rewards summed before bootstrapping
    exploration_final_eps: rl.Fraction = 0.04  # chance of a random action at the end
    exploration_fraction: rl.Positive = 0.16  # share of the run over which that chance falls
    learning_rate: rl.Positive = 2.3e-3  # learning rate of Adam
    target_update_interval: rl.Count = 128  # gradient steps between copies to the target network
    max_grad_norm: rl.Positive = 10.0  # clip the gradient to this norm
    net: rl.Net = rl.Net(hidden=(256, 256), activation="relu")


# %% [markdown]
# The learner makes its networks (`network`, `build`), the agent that acts (`agent`) and the replay buffer (`buffer`),
# and takes one gradient step (`learn`, `loss`). It has no loop: the runner steps environments, fills the buffer and
# calls the learner with each batch that is due. `now` holds the options, with schedules at their current values.
#
# A batch of transitions already knows where episodes end. Its `discount` is γ, but 0 where s' is terminal, so that
# nothing is expected from beyond the end. A time limit is no such end: s' still has a value, and `discount` stays γ.


# %%
def chosen(values: Tensor, action: Tensor) -> Tensor:
    """Return the values of one action per transition, [B, ...], out of `values` [B, A, ...]."""
    return values[torch.arange(len(action), device=action.device), action]


class DQN(rl.Algorithm[rl.Transitions]):
    """Deep Q-learning."""

    Config = DQNConfig
    config: DQNConfig
    actions = ("Discrete",)

    def network(self) -> rl.QNetwork:
        return rl.QNetwork(self.spec, self.config.net)

    def build(self) -> None:
        self.q_network = self.network().to(self.device)
        self.target_network = rl.target_network(self.q_network)
        self.target = rl.Target(self.q_network, self.target_network)
        self.adam = self.optimizer(
            "adam",
            [self.q_network],
            learning_rate=self.config.learning_rate,
            max_grad_norm=self.config.max_grad_norm,
        )

    def agent(self, rank: int = 0, ranks: int = 1) -> rl.EpsilonGreedy:
        epsilon = rl.linear(
            1.0, self.config.exploration_final_eps, self.config.exploration_fraction
        )
        return rl.EpsilonGreedy(
            self.q_network, epsilon, self.agent_seeds(rank), self.inference_backend
        )

    def pace(self) -> rl.Pace:
        """Return when batches are due, and how large they are."""
        return rl.Pace(
            self.config.batch_size,
            self.config.train_freq,
            self.config.gradient_steps,
            self.config.learning_starts,
        )

    def buffer(self) -> rl.ReplayBuffer:
        c = self.config
        return rl.ReplayBuffer(
            c.buffer_size,
            self.pace(),
            n_step=c.n_step,
            gamma=c.gamma,
            seeds=self.seeds.child("buffer"),
            device=self.device,
        )

    def learn(self, batch: rl.Transitions, now: DQNConfig, clock: rl.Clock) -> rl.Result:
        loss, metrics, error = self.loss(batch)
        self.adam.minimize(loss, clock)
        if rl.due(clock.updates, clock.updates + 1, now.target_update_interval):
            self.target.move()
        return rl.Result(metrics, error)

    def loss(self, batch: rl.Transitions) -> tuple[Tensor, dict[str, Tensor], Tensor]:
        losses, error = self.losses(batch)
        loss = batch.mean(losses)
        return loss, {"loss/value": loss.detach()}, error.detach()

    def losses(self, batch: rl.Transitions) -> tuple[Tensor, Tensor]:
        """Return the loss of each transition [B], and its absolute TD error (chapter 3 needs that)."""
        value = self.taken(batch)
        target = batch.reward + batch.discount * self.following(batch)
        return nn.functional.smooth_l1_loss(value, target, reduction="none"), (target - value).abs()

    def taken(self, batch: rl.Transitions) -> Tensor:
        """Q(s, a)."""
        return chosen(self.q_network(batch.obs), batch.action)

    @torch.no_grad()
    def following(self, batch: rl.Transitions) -> Tensor:
        """Q_target(s', a') of the best next action a'."""
        ahead = self.ahead(batch)
        return chosen(ahead, self.best(batch, ahead))

    def ahead(self, batch: rl.Transitions) -> Tensor:
        """Q_target(s', ·)."""
        values: Tensor = self.target_network(batch.next_obs)
        return values

    def best(self, batch: rl.Transitions, ahead: Tensor) -> Tensor:
        """The best next action a', here by the target network."""
        return ahead.argmax(1)


# %% [markdown]
# ## By hand
#
# One transition with reward 1, γ = 0.9 and next values 2 and 3: the target is 1 + 0.9 · 3. At a terminal s' it is 1.


# %%
def by_hand() -> None:
    ahead = torch.tensor([[2.0, 3.0], [2.0, 3.0]])
    reward = torch.ones(2)
    discount = torch.tensor([0.9, 0.0])
    target = reward + discount * chosen(ahead, ahead.argmax(1))
    print("targets:", [round(number, 2) for number in target.tolist()])
    assert torch.allclose(target, torch.tensor([1 + 0.9 * 3, 1.0]))


# %% [markdown]
# ## The packaged algorithm
#
# The packaged `dqn` is this learner with more options: `rlplug run dqn CartPole-v1` gives the same weights, bit for
# bit. This file is a plugin, too: `rlplug run ./docs/guide/chapter_01_dqn.py:DQN CartPole-v1 --learning-rate 1e-3`.

# %%
if __name__ == "__main__":
    from lesson import lesson

    by_hand()
    lesson("chapter_01_dqn:DQN")
