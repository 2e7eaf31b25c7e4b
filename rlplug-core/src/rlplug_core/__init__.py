"""rlplug-core: the protocols, the training loop and the plugin contract of rlplug.

Everything that an algorithm, a wrapper or a script needs is imported from here. Names are loaded when they are first
used, so importing this package costs nothing. `Policy` is what a user loads from a run; the network is `PolicyNetwork`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from rlplug_core.processor import tell_openblas

if TYPE_CHECKING:
    from rlplug_core.acting.behavior import BehaviorAgent
    from rlplug_core.acting.continuous import (
        ActionNoise,
        GaussianNoise,
        NoiseAgent,
        OrnsteinUhlenbeck,
        SampleAgent,
        action_noise,
    )
    from rlplug_core.acting.epsilon_greedy import EpsilonGreedy, NoisyGreedy, Softmax, of_action
    from rlplug_core.acting.explorer import (
        actor_epsilon,
        check_exploration,
        epsilon_schedule,
        explorer,
        final_epsilon,
    )
    from rlplug_core.acting.policy_agent import NetworkAgent, PolicyAgent
    from rlplug_core.acting.recurrent import (
        MemoryAgent,
        MemoryGreedy,
        check_no_units,
        check_whole_sequences,
        recurrent_values,
        sequences,
    )
    from rlplug_core.algorithm import Algorithm, Context, pure
    from rlplug_core.batches import (
        Batch,
        Rollout,
        Samples,
        Transitions,
        check_standardize,
        clipped_surrogate,
        to_tensors,
        value_error,
    )
    from rlplug_core.buffers.episodes import EpisodeBuffer
    from rlplug_core.buffers.make import PriorityOptions, RolloutReplay, replay_buffer
    from rlplug_core.buffers.pairs import PairBuffer
    from rlplug_core.buffers.prioritized import PrioritizedReplay, Priority
    from rlplug_core.buffers.replay import Pace, ReplayBuffer
    from rlplug_core.buffers.rollout import RolloutBuffer
    from rlplug_core.buffers.sequences import SequenceReplay, SequenceShape
    from rlplug_core.buffers.storage import Store
    from rlplug_core.buffers.trajectories import TrajectoryReplay
    from rlplug_core.clock import Clock, due
    from rlplug_core.config.options import (
        Config,
        Count,
        Fraction,
        Importable,
        Natural,
        NonNegative,
        Positive,
        Scheduled,
        Several,
        Share,
        choice,
        integer,
        log,
        uniform,
    )
    from rlplug_core.config.schedules import Schedule, constant, cosine, linear, piecewise
    from rlplug_core.errors import BadConfig, NonFinite, UsageError
    from rlplug_core.learning.corrections import log_probs, retrace, vtrace
    from rlplug_core.learning.estimators import gae, standardize
    from rlplug_core.learning.gaussian import gaussian_kl_slope, gaussian_score
    from rlplug_core.learning.kfac import KFAC
    from rlplug_core.learning.losses import (
        Regression,
        advantage_weight,
        categorical_projection,
        cross_entropy,
        expectile_loss,
        quantile_huber,
        regression,
        rescaled,
        sequence_priority,
        unscaled,
    )
    from rlplug_core.learning.natural import TrustRegion, within
    from rlplug_core.learning.optimizer import Optimizer, host
    from rlplug_core.learning.targets import Frozen, Target, target_network
    from rlplug_core.learning.temperature import Temperature, expected_of, soft_policy_loss
    from rlplug_core.learning.update_rules import OptimizerName, OptimizerOptions
    from rlplug_core.nets.continuous import (
        ActionCritic,
        ActionCritics,
        DeterministicPolicy,
        Ensemble,
    )
    from rlplug_core.nets.distributional import CategoricalQ, ImplicitQ, QuantileQ
    from rlplug_core.nets.encoders import observation_norm
    from rlplug_core.nets.fast_forward import fast_forward, fast_noisy
    from rlplug_core.nets.heads import ILLEGAL, SPACES, Gaussian, SquashedGaussian, masked, squashed
    from rlplug_core.nets.net import Net
    from rlplug_core.nets.node import log_softmax
    from rlplug_core.nets.noisy import Noise
    from rlplug_core.nets.normalize import RewardScale
    from rlplug_core.nets.policies import Critic, PolicyAndCritic, PolicyNetwork
    from rlplug_core.nets.q_networks import QNetwork, QNetworks, chosen, next_distribution
    from rlplug_core.nets.recurrent import CellName, RecurrentPolicyAndCritic, RecurrentQ
    from rlplug_core.nets.renorm import Moments, RenormCritic, RenormPolicy, absorb_moments
    from rlplug_core.nets.stochastic_dueling import StochasticDueling
    from rlplug_core.plugins.hook_specs import hookimpl
    from rlplug_core.plugins.transform import Transform
    from rlplug_core.protocols import Agent, Buffer, Env, Learner
    from rlplug_core.runs.api import load, resume, train
    from rlplug_core.runs.policy import Policy
    from rlplug_core.runs.run import Run, open_run
    from rlplug_core.seeds import Seeds
    from rlplug_core.types import (
        Act,
        Array,
        Obs,
        RecurrentState,
        Result,
        Spec,
        State,
        Step,
        Timestep,
        tree_map,
    )

__version__ = "0.1.0"

#: Which module defines which names.
_MODULES = {
    "acting.behavior": "BehaviorAgent",
    "acting.continuous": "ActionNoise GaussianNoise NoiseAgent OrnsteinUhlenbeck SampleAgent action_noise",
    "acting.epsilon_greedy": "EpsilonGreedy NoisyGreedy Softmax of_action",
    "acting.explorer": "actor_epsilon check_exploration epsilon_schedule explorer final_epsilon",
    "acting.policy_agent": "NetworkAgent PolicyAgent",
    "acting.recurrent": "MemoryAgent MemoryGreedy check_no_units check_whole_sequences recurrent_values sequences",
    "algorithm": "Algorithm Context pure",
    "batches": "Batch Rollout Samples Transitions check_standardize clipped_surrogate to_tensors value_error",
    "buffers.episodes": "EpisodeBuffer",
    "buffers.make": "PriorityOptions RolloutReplay replay_buffer",
    "buffers.pairs": "PairBuffer",
    "buffers.prioritized": "PrioritizedReplay Priority",
    "buffers.replay": "Pace ReplayBuffer",
    "buffers.rollout": "RolloutBuffer",
    "buffers.sequences": "SequenceReplay SequenceShape",
    "buffers.storage": "Store",
    "buffers.trajectories": "TrajectoryReplay",
    "clock": "Clock due",
    "config.options": (
        "Config Count Fraction Importable Natural NonNegative Positive "
        "Scheduled Several Share choice integer log uniform"
    ),
    "config.schedules": "Schedule constant cosine linear piecewise",
    "errors": "BadConfig NonFinite UsageError",
    "learning.corrections": "log_probs retrace vtrace",
    "learning.estimators": "gae standardize",
    "learning.gaussian": "gaussian_kl_slope gaussian_score",
    "learning.kfac": "KFAC",
    "learning.losses": (
        "Regression advantage_weight categorical_projection cross_entropy expectile_loss quantile_huber regression "
        "rescaled sequence_priority unscaled"
    ),
    "learning.natural": "TrustRegion within",
    "learning.optimizer": "Optimizer host",
    "learning.targets": "Frozen Target target_network",
    "learning.temperature": "Temperature expected_of soft_policy_loss",
    "learning.update_rules": "OptimizerName OptimizerOptions",
    "nets.continuous": "ActionCritic ActionCritics DeterministicPolicy Ensemble",
    "nets.distributional": "CategoricalQ ImplicitQ QuantileQ",
    "nets.encoders": "observation_norm",
    "nets.fast_forward": "fast_forward fast_noisy",
    "nets.heads": "Gaussian ILLEGAL SPACES SquashedGaussian masked squashed",
    "nets.net": "Net",
    "nets.node": "log_softmax",
    "nets.noisy": "Noise",
    "nets.normalize": "RewardScale",
    "nets.policies": "Critic PolicyAndCritic PolicyNetwork",
    "nets.q_networks": "QNetwork QNetworks chosen next_distribution",
    "nets.recurrent": "CellName RecurrentPolicyAndCritic RecurrentQ",
    "nets.renorm": "Moments RenormCritic RenormPolicy absorb_moments",
    "nets.stochastic_dueling": "StochasticDueling",
    "plugins.hook_specs": "hookimpl",
    "plugins.transform": "Transform",
    "protocols": "Agent Buffer Env Learner",
    "runs.policy": "Policy",
    "runs.run": "Run open_run",
    "runs.api": "load resume train",
    "seeds": "Seeds",
    "types": "Act Array Obs RecurrentState Result Spec State Step Timestep tree_map",
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = [  # noqa: RUF022  # sorted without regard to kind
    "Act",
    "ActionCritic",
    "ActionCritics",
    "ActionNoise",
    "Agent",
    "Algorithm",
    "Array",
    "BadConfig",
    "Batch",
    "BehaviorAgent",
    "Buffer",
    "CategoricalQ",
    "CellName",
    "Clock",
    "Config",
    "Context",
    "Count",
    "Critic",
    "DeterministicPolicy",
    "Ensemble",
    "Env",
    "EpisodeBuffer",
    "EpsilonGreedy",
    "Fraction",
    "Frozen",
    "Gaussian",
    "GaussianNoise",
    "ILLEGAL",
    "ImplicitQ",
    "Importable",
    "KFAC",
    "Learner",
    "MemoryAgent",
    "MemoryGreedy",
    "Moments",
    "Natural",
    "Net",
    "NetworkAgent",
    "Noise",
    "NoiseAgent",
    "NoisyGreedy",
    "NonFinite",
    "NonNegative",
    "Obs",
    "Optimizer",
    "OptimizerName",
    "OptimizerOptions",
    "OrnsteinUhlenbeck",
    "Pace",
    "PairBuffer",
    "Policy",
    "PolicyAgent",
    "PolicyAndCritic",
    "PolicyNetwork",
    "Positive",
    "PrioritizedReplay",
    "Priority",
    "PriorityOptions",
    "QNetwork",
    "QNetworks",
    "QuantileQ",
    "RecurrentPolicyAndCritic",
    "RecurrentQ",
    "RecurrentState",
    "Regression",
    "RenormCritic",
    "RenormPolicy",
    "ReplayBuffer",
    "Result",
    "RewardScale",
    "Rollout",
    "RolloutBuffer",
    "RolloutReplay",
    "Run",
    "SPACES",
    "SampleAgent",
    "Samples",
    "Schedule",
    "Scheduled",
    "Seeds",
    "SequenceReplay",
    "SequenceShape",
    "Several",
    "Share",
    "Softmax",
    "Spec",
    "SquashedGaussian",
    "State",
    "Step",
    "StochasticDueling",
    "Store",
    "Target",
    "Temperature",
    "Timestep",
    "TrajectoryReplay",
    "Transform",
    "Transitions",
    "TrustRegion",
    "UsageError",
    "absorb_moments",
    "action_noise",
    "actor_epsilon",
    "advantage_weight",
    "categorical_projection",
    "check_exploration",
    "check_no_units",
    "check_standardize",
    "check_whole_sequences",
    "choice",
    "chosen",
    "clipped_surrogate",
    "constant",
    "cosine",
    "cross_entropy",
    "due",
    "epsilon_schedule",
    "expected_of",
    "expectile_loss",
    "explorer",
    "fast_forward",
    "fast_noisy",
    "final_epsilon",
    "gae",
    "gaussian_kl_slope",
    "gaussian_score",
    "hookimpl",
    "host",
    "integer",
    "linear",
    "load",
    "log",
    "log_probs",
    "log_softmax",
    "masked",
    "next_distribution",
    "observation_norm",
    "of_action",
    "open_run",
    "piecewise",
    "pure",
    "quantile_huber",
    "recurrent_values",
    "regression",
    "replay_buffer",
    "rescaled",
    "resume",
    "retrace",
    "sequence_priority",
    "sequences",
    "soft_policy_loss",
    "squashed",
    "standardize",
    "target_network",
    "to_tensors",
    "train",
    "tree_map",
    "uniform",
    "unscaled",
    "value_error",
    "vtrace",
    "within",
]


tell_openblas()


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'rlplug_core' has no attribute '{name}'")
    found = globals()[name] = getattr(import_module(f"rlplug_core.{_HOMES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({name for name in globals() if name.startswith("__")} | {*__all__})
