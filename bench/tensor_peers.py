"""PPO of skrl and rsl_rl on CartPole in torch, for `bench/tensor.py`: one rollout and update per call.

These are their own loops without logging. rsl_rl's runner has no discrete actions, so the sign of its action moves the
cart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from gymnasium.spaces import Box, Discrete
from torch import nn

from rlplug_envs.tensors.cart_pole import CartPole

ROLLOUT = 32
EPOCHS = 4
PARTS = 4
GAMMA = 0.99
LAMBDA = 0.95
CLIP = 0.2
RATE = 3e-4
ENTROPY = 0.01


def network(outputs: int) -> nn.Module:
    """Return a network with two hidden layers of 64 units, like that of `ppo`."""
    return nn.Sequential(
        nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs)
    )


def skrl_ppo(rows: int) -> Callable[[], int]:
    """Return a function that makes one rollout and update of skrl's PPO, by the calls of its sequential trainer."""
    agent = skrl_agent(rows)
    world = CartPole(rows)
    obs, _ = world.reset(seed=0)
    when = {"timestep": 0, "timesteps": 10**9}

    def run() -> int:
        nonlocal obs
        for _ in range(ROLLOUT):
            agent.pre_interaction(**when)
            with torch.no_grad():
                action, _ = agent.act(obs, None, **when)
                after, reward, terminated, truncated, info = world.step(action.squeeze(-1))
                agent.record_transition(
                    observations=obs,
                    states=None,
                    actions=action,
                    rewards=reward.unsqueeze(-1),
                    next_observations=after,
                    next_states=None,
                    terminated=terminated.unsqueeze(-1),
                    truncated=truncated.unsqueeze(-1),
                    infos=info,
                    **when,
                )
            agent.post_interaction(**when)
            obs = after
        return ROLLOUT * rows

    return run


#: Options of skrl's PPO.
SKRL: dict[str, Any] = {
    "rollouts": ROLLOUT,
    "learning_epochs": EPOCHS,
    "mini_batches": PARTS,
    "discount_factor": GAMMA,
    "gae_lambda": LAMBDA,
    "learning_rate": RATE,
    "ratio_clip": CLIP,
    "value_clip": 0,
    "entropy_loss_scale": ENTROPY,
    "value_loss_scale": 0.5,
}
#: Spaces of CartPole as skrl takes them.
SPACES: dict[str, Any] = {
    "observation_space": Box(-9, 9, (4,)),
    "state_space": None,
    "action_space": Discrete(2),
}


def skrl_agent(rows: int) -> Any:
    """Return skrl's PPO in training mode, without logs and checkpoints."""
    from skrl.agents.torch.ppo import PPO
    from skrl.memories.torch import RandomMemory

    agent = PPO(
        models=skrl_models(),
        memory=RandomMemory(memory_size=ROLLOUT, num_envs=rows, device="cpu"),
        **SPACES,
        device="cpu",
        cfg=dict(SKRL),
    )
    agent.cfg.experiment.write_interval = 0
    agent.cfg.experiment.checkpoint_interval = 0
    agent.init()
    agent.enable_training_mode(True)
    return agent


def skrl_models() -> dict[str, Any]:
    """Return policy and value as models of skrl."""
    from skrl.models.torch import CategoricalMixin, DeterministicMixin, Model

    class Policy(CategoricalMixin, Model):  # type: ignore[misc]  # a class of skrl's
        def __init__(self) -> None:
            Model.__init__(self, **SPACES, device="cpu")
            CategoricalMixin.__init__(self)
            self.layers = network(2)

        def compute(self, inputs: Any, role: str) -> Any:
            return self.layers(inputs["observations"]), {}

    class Value(DeterministicMixin, Model):  # type: ignore[misc]  # a class of skrl's
        def __init__(self) -> None:
            Model.__init__(self, **SPACES, device="cpu")
            DeterministicMixin.__init__(self)
            self.layers = network(1)

        def compute(self, inputs: Any, role: str) -> Any:
            return self.layers(inputs["observations"]), {}

    return {"policy": Policy(), "value": Value()}


def rsl_ppo(rows: int) -> Callable[[], int]:
    """Return a function that makes one rollout and update of rsl_rl's PPO, by the calls of its runner."""
    from tensordict import TensorDict

    def to_observation(obs: torch.Tensor) -> Any:
        return TensorDict({"policy": obs}, batch_size=[rows])

    world = CartPole(rows)
    obs = to_observation(world.reset(seed=0)[0])
    agent = rsl_agent(rows, obs)

    def run() -> int:
        nonlocal obs
        with torch.inference_mode():
            for _ in range(ROLLOUT):
                action = agent.act(obs)
                seen, reward, terminated, truncated, _ = world.step((action[:, 0] > 0).long())
                obs = to_observation(seen)
                over = terminated | truncated
                agent.process_env_step(obs, reward, over, {"time_outs": truncated})
            agent.compute_returns(obs)
        agent.update()
        return ROLLOUT * rows

    return run


def rsl_agent(rows: int, obs: Any) -> Any:
    """Return rsl_rl's PPO in training mode, for observations like `obs`."""
    from rsl_rl.algorithms import PPO
    from rsl_rl.models import MLPModel
    from rsl_rl.storage import RolloutStorage

    groups = {"actor": ["policy"], "critic": ["policy"]}
    layers = {"hidden_dims": [64, 64], "activation": "tanh"}
    gaussian = {"class_name": "GaussianDistribution", "init_std": 1.0}
    agent = PPO(
        MLPModel(obs, groups, "actor", 1, **layers, distribution_cfg=gaussian),
        MLPModel(obs, groups, "critic", 1, **layers),
        RolloutStorage("rl", rows, ROLLOUT, obs, [1], "cpu"),
        num_learning_epochs=EPOCHS,
        num_mini_batches=PARTS,
        clip_param=CLIP,
        gamma=GAMMA,
        lam=LAMBDA,
        value_loss_coef=0.5,
        entropy_coef=ENTROPY,
        learning_rate=RATE,
        max_grad_norm=0.5,
        use_clipped_value_loss=False,
        schedule="fixed",
        normalize_advantage_per_mini_batch=True,
    )
    agent.train_mode()
    return agent
