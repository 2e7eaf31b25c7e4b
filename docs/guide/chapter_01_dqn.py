# %% [markdown]
# # 1. Deep Q-learning
#
# An agent sees an observation s, takes an action a, gets a reward r and sees the next observation s'. It wants a large
# *return*: the sum of all future rewards, with a factor γᵏ for the reward after k steps. Q(s, a) is the return of an
# agent that takes a in s and acts as well as possible afterwards. If you know Q, you know how to act: take the action
# with the highest value. Q satisfies an equation, because the best return from s is one reward plus the best return
# from s':
#
#     Q(s, a) = E[ r + γ max_a' Q(s', a') ]                                     (Bellman's equation)
#
# Deep Q-learning (Mnih et al., 2015, doi:10.1038/nature14236) approximates Q by a network and moves the left side of
# this equation towards the right side, one batch at a time:
#
#     L = huber( r + γ max_a' Q_target(s', a') - Q(s, a) )
#
# Three things make this work. rlplug has a part for each:
#
# - **A replay buffer.** Consecutive steps are similar. A `ReplayBuffer` stores many steps and returns random ones.
# - **A target network.** With the same network on both sides, each update would move its own target. So the right side
#   uses a copy that changes only from time to time: `target_network` makes it, `Target` moves it.
# - **Exploration.** The agent never learns the value of an action that it never takes. `EpsilonGreedy` takes a random
#   action with a probability ε that falls from 1 to nearly 0.

# %%
from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

import rlplug_core as rl

# %% [markdown]
# A configuration is a dataclass. Every field is an option of the command line. Its comment is the help text, and rlplug
# checks its type. These defaults suit CartPole-v1: 128 gradient steps after every 256 env steps.


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
    exploration_final_eps: rl.Fraction = 0.04  # final probability of a random action
    exploration_fraction: rl.Positive = 0.16  # fraction of the run for the decay
    learning_rate: rl.Positive = 2.3e-3  # learning rate of Adam
    target_update_interval: rl.Count = 128  # gradient steps between copies to the target network
    max_grad_norm: rl.Positive = 10.0  # clip the gradient to this norm
    net: rl.Net = rl.Net(hidden=(256, 256), activation="relu")


# %% [markdown]
# The learner makes its networks (`network`, `build`), the agent that acts (`agent`) and the replay buffer (`buffer`),
# and takes one gradient step (`learn`, `loss`). It has no loop: the runner steps environments, fills the buffer and
# calls the learner with each due batch. `now` contains the options, with the current values of schedules.
#
# A batch of transitions already handles the ends of episodes. Its `discount` is γ, or 0 if s' is terminal, because
# there are no more rewards. A time limit is different: s' still has a value, and `discount` stays γ.


# %%
def gather_actions(values: Tensor, action: Tensor) -> Tensor:
    """Return the values of one action per transition [B, ...] from `values` [B, A, ...]."""
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

    def pace(self) -> rl.ReplaySchedule:
        """Return the batch size, and the schedule of due batches."""
        return rl.ReplaySchedule(
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
        """Return the loss of each transition [B] and its absolute TD error [B], which chapter 3 needs."""
        value = self.current_values(batch)
        target = batch.reward + batch.discount * self.next_values(batch)
        return nn.functional.smooth_l1_loss(value, target, reduction="none"), (target - value).abs()

    def current_values(self, batch: rl.Transitions) -> Tensor:
        """Return Q(s, a) [B]."""
        return gather_actions(self.q_network(batch.obs), batch.action)

    @torch.no_grad()
    def next_values(self, batch: rl.Transitions) -> Tensor:
        """Return Q_target(s', a') [B] of the best next action a'."""
        target_values = self.target_values(batch)
        return gather_actions(target_values, self.next_action(batch, target_values))

    def target_values(self, batch: rl.Transitions) -> Tensor:
        """Return Q_target(s', ·) [B, A]."""
        values: Tensor = self.target_network(batch.next_obs)
        return values

    def next_action(self, batch: rl.Transitions, target_values: Tensor) -> Tensor:
        """Return the best next action a' [B], here according to the target network."""
        return target_values.argmax(1)


# %% [markdown]
# ## Check by hand
#
# For one transition with reward 1, γ = 0.9 and next values 2 and 3, the target is 1 + 0.9 · 3. If s' is terminal, it is
# 1.


# %%
def by_hand() -> None:
    next_values = torch.tensor([[2.0, 3.0], [2.0, 3.0]])
    reward = torch.ones(2)
    discount = torch.tensor([0.9, 0.0])
    target = reward + discount * gather_actions(next_values, next_values.argmax(1))
    print("targets:", [round(number, 2) for number in target.tolist()])
    assert torch.allclose(target, torch.tensor([1 + 0.9 * 3, 1.0]))


# %% [markdown]
# ## The packaged algorithm
#
# The packaged `dqn` is this learner with more options: `rlplug run dqn CartPole-v1` gives the same weights, bit for
# bit. This file is also a plugin: `rlplug run ./docs/guide/chapter_01_dqn.py:DQN CartPole-v1 --learning-rate 1e-3`.

# %%
if __name__ == "__main__":
    from lesson import lesson

    by_hand()
    lesson("chapter_01_dqn:DQN")
