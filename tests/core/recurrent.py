"""A recurrent actor-critic with an action mask and a dictionary of observations."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlplug_core.algorithm import Algorithm
from rlplug_core.batches import Rollout
from rlplug_core.buffers.rollout import RolloutBuffer
from rlplug_core.clock import Clock
from rlplug_core.config.schedules import constant
from rlplug_core.learning.estimators import gae
from rlplug_core.nets.heads import Categorical, masked
from rlplug_core.seeds import Draws
from rlplug_core.testing.envs import Recall
from rlplug_core.types import Act, Array, Obs, RecurrentState, Result, State, tree_map
from tests.core.fakes import TinyConfig


class MaskedRecall(Recall):
    """`Recall` with a third, forbidden action, which raises."""

    action = spaces.Discrete(3)
    obs = spaces.Dict({**Recall.obs.spaces, "action_mask": spaces.MultiBinary(3)})

    def observe(self) -> Obs:
        return {**super().observe(), "action_mask": np.tile(np.array([1, 1, 0], np.int8), (self.num_envs, 1))}

    def move(self, action: Array) -> tuple[Array, Array, Array]:
        if (action == 2).any():
            raise ValueError("the forbidden action was taken")
        return super().move(action)


class Memory(nn.Module):
    """A gated recurrent unit with a policy and a value on top; `step` is one step of N rows."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.cell = nn.GRUCell(2, size)
        self.policy = nn.Linear(size, 3)
        self.value = nn.Linear(size, 1)

    def step(self, obs: Any, is_first: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return logits [N, 3], values [N] and the new memory [N, H]; the first step of an episode resets a row."""
        memory = memory * ~is_first.unsqueeze(1)
        memory = self.cell(torch.cat([obs["cue"], obs["asked"]], 1), memory)
        return masked(self.policy(memory), obs), self.value(memory).squeeze(1), memory

    def unroll(self, obs: Any, is_first: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the same for [T, N], starting from `memory`."""
        logits, values = [], []
        for t in range(len(is_first)):
            at: Any = tree_map(lambda tensor, t=t: tensor[t], obs)
            logit, value, memory = self.step(at, is_first[t], memory)
            logits.append(logit)
            values.append(value)
        return torch.stack(logits), torch.stack(values), memory


class MemoryAgent:
    """Carries its memory from step to step."""

    def __init__(self, learner: RecurrentA2C, rank: int) -> None:
        self.learner = learner
        self.seeds = learner.agent_seeds(rank)
        self.head = Categorical(3)

    def weights(self) -> State:
        return dict(self.learner.memory.state_dict())

    def initial(self, num_envs: int) -> RecurrentState:
        self.draws = Draws(self.seeds.generator(), lambda generator, size: self.head.noise(generator, (size, num_envs)))
        return {"h": np.zeros((num_envs, self.learner.size), np.float32)}

    def act(
        self, obs: Obs, is_first: Array, recurrent_state: RecurrentState, clock: Clock, explore: bool = True
    ) -> Act:
        with torch.no_grad():
            tensors = tree_map(torch.from_numpy, obs)
            logits, _, memory = self.learner.memory.step(
                tensors, torch.from_numpy(is_first), torch.from_numpy(recurrent_state["h"])
            )
        after = {"h": memory.numpy()}
        if not explore:
            return Act(self.head.mode(logits.numpy()), after)
        action = self.head.sample(logits.numpy(), self.draws.next())
        return Act(action, after, {"log_prob": self.head.host_log_prob(logits.numpy(), action)})

    def state_dict(self) -> State:
        return {"draws": self.draws.state_dict()}

    def load_state_dict(self, state: State) -> None:
        self.draws.load_state_dict(state["draws"])


class RecurrentA2C(Algorithm[Rollout]):
    """Unrolls each rollout from its first memory."""

    Config = TinyConfig
    runners: ClassVar[tuple[str, ...]] = ("sync", "async")
    config: TinyConfig
    size = 12

    def build(self) -> None:
        self.memory = Memory(self.size)
        self.optim = self.optimizer(
            "memory", [self.memory], learning_rate=constant(self.config.learning_rate), max_grad_norm=0.5
        )

    def agent(self, rank: int = 0, ranks: int = 1) -> MemoryAgent:
        return MemoryAgent(self, rank)

    def buffer(self) -> RolloutBuffer:
        return RolloutBuffer(self.config.n_steps)

    def unroll(self, batch: Rollout) -> tuple[Tensor, Tensor, Array]:
        """Return logits and values [T, N], and the values after the last step."""
        steps = len(batch.reward)
        obs: Any = tree_map(torch.from_numpy, batch.obs)
        first = torch.from_numpy(batch.is_first)
        taken: Any = tree_map(lambda tensor: tensor[:steps], obs)
        logits, values, memory = self.memory.unroll(taken, first, torch.from_numpy(batch.recurrent_state["h"]))
        with torch.no_grad():
            last: Any = tree_map(lambda tensor: tensor[steps], obs)
            after = self.memory.step(last, torch.zeros(first.shape[1], dtype=torch.bool), memory)[1]
        return logits, values, after.numpy()

    def log_probs(self, batch: Rollout) -> Tensor:
        logits, _, _ = self.unroll(batch)
        return Categorical(3).log_prob(logits, torch.from_numpy(batch.action))

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        logits, values, after = self.unroll(batch)
        host = values.detach().numpy()
        advantage, target = gae(batch, host, np.concatenate([host[1:], after[None]]), 0.99, 0.95)
        log_prob, entropy = Categorical(3).log_prob_and_entropy(logits, torch.from_numpy(batch.action))
        weight = torch.from_numpy(batch.weight)
        policy = -log_prob * torch.from_numpy(advantage) - 0.01 * entropy
        loss = (weight * (policy + 0.5 * (values - torch.from_numpy(target)).square())).mean()
        self.optim.minimize(loss, clock)
        return Result({"loss/all": loss.detach()})
