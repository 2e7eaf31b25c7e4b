"""Make the replay buffer for an algorithm's options: of transitions, sequences or rollouts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch

from rlplug_core.buffers.device_replay import DeviceReplay
from rlplug_core.buffers.hindsight import HindsightReplay, goals_of
from rlplug_core.buffers.prioritized import PrioritizedReplay, Priority
from rlplug_core.buffers.replay import ReplayBuffer, ReplaySchedule
from rlplug_core.buffers.rollout import RolloutBuffer
from rlplug_core.buffers.sampled import SampledReplay
from rlplug_core.buffers.sequences import SequenceReplay, SequenceShape
from rlplug_core.buffers.storage import Store
from rlplug_core.buffers.trajectories import TrajectoryReplay
from rlplug_core.config.options import Fraction, NonNegative, Positive, Scheduled
from rlplug_core.config.schedules import Constant, Schedule, linear, throughout
from rlplug_core.errors import BadConfig, UsageError
from rlplug_core.nets.memory_trunk import BURN_IN
from rlplug_core.seeds import Seeds
from rlplug_core.types import Goals, Spec, State

#: The most batches of uniform replay that are sampled together, because one large sample needs fewer calls.
TOGETHER = 32
#: The default number of steps of a sequence that train the networks.
SEQUENCE_LENGTH = 20


@dataclass(frozen=True)
class PriorityOptions:
    """Prioritized replay (Schaul et al., 2016, arXiv:1511.05952).

    Raises:
        ValueError: eviction depends on priorities, but alpha is 0.
    """

    # exponent of priorities: how strongly replay prefers large TD errors; 0 samples uniformly
    alpha: NonNegative = 0.0
    # exponent of importance weights at the start; it rises to 1 over the run
    beta: Scheduled[Fraction] = 0.4
    eps: Positive = 1e-6  # added to every TD error, so that no priority is 0
    # which transition is evicted: the oldest, or one sampled among small errors
    eviction: Literal["oldest", "sampled"] = "oldest"

    def __post_init__(self) -> None:
        if self.eviction == "sampled" and self.alpha == 0:
            raise ValueError(
                "eviction sampled uses priorities; set priority.alpha above 0, such as 0.6"
            )


def replay_buffer(
    buffer_size: int,
    pace: ReplaySchedule,
    *,
    n_step: int,
    gamma: Schedule | float,
    seeds: Seeds,
    device: torch.device,
    storage: Store = "memory",
    priority: PriorityOptions = PriorityOptions(),
    beta: Schedule | None = None,
    her: int = 0,
    spec: Spec | None = None,
    agents: int = 0,
) -> ReplayBuffer:
    """Make a replay buffer of `buffer_size` transitions.

    Args:
        buffer_size: number of transitions to keep.
        pace: the schedule and the size of batches.
        n_step: how many rewards a transition sums.
        gamma: discount per step, a number or a function of progress.
        seeds: seeds of the draws.
        device: device of the batches.
        storage: storage of the observations: `memory`, `disk`, or a torch device such as `cuda`.
        priority: which transitions are preferred.
        beta: the exponent of importance weights as a function of progress; None: linear from `priority.beta` to 1.
        her: number of replayed transitions with other goals for each one with its own goal; 0 for none.
        spec: spec of the environment, with the goals for hindsight replay.
        agents: number of agents of a world if their rows form one joint transition; 0 if rows are separate.

    Raises:
        UsageError: the storage is not available, sampled eviction is combined with a schedule of `gamma`, or hindsight
            replay with an environment without goals, n-step returns, priorities or joint transitions.
    """
    shared: State = {
        "capacity": buffer_size,
        "pace": pace,
        "gamma": gamma,
        "seeds": seeds,
        "device": device,
        "store": storage,
    }
    if her:
        return HindsightReplay(_goals(spec, n_step, priority, agents), k=her, **shared)
    shared |= {"n_step": n_step, "agents": agents}
    if priority.alpha == 0:
        return ReplayBuffer(together=TOGETHER, **shared)
    if priority.eviction == "sampled" and not isinstance(throughout(gamma), Constant):
        raise UsageError(
            "priority.eviction sampled keeps discounted sums; leave it at oldest, or give gamma a number"
        )
    kind = SampledReplay if priority.eviction == "sampled" else PrioritizedReplay
    preference = Priority(priority.alpha, beta or linear(priority.beta, 1.0), priority.eps)
    return kind(priority=preference, **shared)


def _goals(
    spec: Spec | None,
    n_step: int,
    priority: PriorityOptions,
    agents: int,
) -> Goals:
    """Return the goals for hindsight replay; raise UsageError for options that cannot be combined with it."""
    if spec is None or n_step > 1 or priority.alpha > 0 or agents:
        raise UsageError(
            "her changes the reward of each transition when it is sampled; leave n_step at 1, and do not use "
            "priorities or joint transitions"
        )
    return goals_of(spec)


class ReplayLearner(Protocol):
    """The parts of an `Algorithm` that its replay buffer depends on."""

    config: Any
    spec: Spec
    seeds: Seeds
    device: torch.device

    def schedule(self, name: str, anneal: bool = False) -> Schedule: ...


def replay_from_options(
    learner: ReplayLearner,
    agents: int = 0,
) -> ReplayBuffer:
    """Make the replay buffer for a learner's options.

    The config has `buffer_size`, `buffer_storage`, `batch_size`, `train_freq`, `gradient_steps`, `learning_starts` and
    `gamma`. It may have `n_step`, `priority` and `her`. With a `memory` the batches are sequences, and it may have
    `sequence_length`, `burn_in` and `sequence_period`.

    Args:
        learner: an `Algorithm`.
        agents: number of agents of a world if their rows form one joint transition; 0 if rows are separate.

    Raises:
        UsageError: as `replay_buffer`, or a memory and joint transitions are combined.
    """
    options = learner.config
    _check_joint(learner, agents)
    if getattr(options, "memory", None) is not None:
        return sequences_from_options(learner)
    pace = _pace(options, options.batch_size)
    shared: State = {
        "n_step": getattr(options, "n_step", 1),
        "gamma": learner.schedule("gamma"),
        "seeds": learner.seeds.child("buffer"),
        "device": learner.device,
    }
    if not agents and _stays_on_device(learner):
        return DeviceReplay(options.buffer_size, pace, store=str(learner.spec.device), **shared)
    return replay_buffer(
        options.buffer_size,
        pace,
        **shared,
        storage=options.buffer_storage,
        priority=getattr(options, "priority", PriorityOptions()),
        beta=options.schedules.get("priority.beta"),
        her=getattr(options, "her", 0),
        spec=learner.spec,
        agents=agents,
    )


def _pace(options: Any, batch_size: int) -> ReplaySchedule:
    return ReplaySchedule(
        batch_size, options.train_freq, options.gradient_steps, options.learning_starts
    )


def _check_joint(learner: ReplayLearner, agents: int) -> None:
    """Raise UsageError if joint transitions are impossible: agents act in turn, or a memory needs sequences."""
    if agents > 1 and learner.spec.turns:
        raise UsageError(
            f"the agents of {learner.spec.id} act in turn, so their actions form no joint transition; use independent "
            "or self-play instead"
        )
    if agents and getattr(learner.config, "memory", None) is not None:
        raise UsageError(
            "a memory needs sequences, and joint transitions are single steps; use joint_step in a SequenceReplay"
        )


def _stays_on_device(learner: ReplayLearner) -> bool:
    """Return whether the environment returns tensors, and the options select plain uniform replay on its device."""
    options = learner.config
    plain = not getattr(options, "her", 0) and options.buffer_storage == "memory"
    priority = getattr(options, "priority", PriorityOptions())
    return learner.spec.device is not None and plain and priority.alpha == 0


def sequences_from_options(
    learner: ReplayLearner,
    batch_size: int | None = None,
) -> SequenceReplay:
    """Make the replay of sequences for a learner with a memory.

    The config has the options of `replay_from_options`. It may have `sequence_length`, `burn_in`, `sequence_period`,
    `n_step` and `priority`; None means the default.

    Args:
        learner: an `Algorithm`.
        batch_size: sequences per batch; None: as many as have `batch_size` steps of the config together.

    Raises:
        UsageError: hindsight replay is on.
        BadConfig: a batch is smaller than a sequence, or eviction depends on priorities.
    """
    options = learner.config
    length = getattr(options, "sequence_length", None) or SEQUENCE_LENGTH
    sequences = options.batch_size // length if batch_size is None else batch_size
    _check_sequences(options, sequences, length)
    burn_in = getattr(options, "burn_in", None)
    period = getattr(options, "sequence_period", None) or (length + 1) // 2
    priority: PriorityOptions = getattr(options, "priority", PriorityOptions())
    beta = options.schedules.get("priority.beta") or linear(priority.beta, 1.0)
    return SequenceReplay(
        SequenceShape(length, BURN_IN if burn_in is None else burn_in, period),
        options.buffer_size,
        _pace(options, sequences),
        n_step=getattr(options, "n_step", 1),
        gamma=learner.schedule("gamma"),
        seeds=learner.seeds.child("buffer"),
        device=learner.device,
        priority=Priority(priority.alpha, beta, priority.eps),
        store=options.buffer_storage,
    )


def _check_sequences(options: Any, sequences: int, length: int) -> None:
    """Raise UsageError or BadConfig if options do not allow batches of `sequences` sequences of `length` steps."""
    if getattr(options, "her", 0):
        raise UsageError(
            "her replays single transitions, and a memory needs sequences; leave one out"
        )
    if getattr(options, "priority", PriorityOptions()).eviction != "oldest":
        raise BadConfig(
            "sequences overlap, so only the oldest step can be evicted; leave priority.eviction at oldest"
        )
    if not sequences:
        raise BadConfig(
            f"with a memory a batch is made of sequences of {length} steps; give --batch-size {length} or more"
        )


def check_no_sequences(
    memory: str | None,
    sequence_length: int | None,
    burn_in: int | None,
    period: int | None,
) -> None:
    """Raise ValueError if options of sequences are set without a memory."""
    options = {"sequence_length": sequence_length, "burn_in": burn_in, "sequence_period": period}
    chosen = [name for name, value in options.items() if value is not None]
    if memory is None and chosen:
        raise ValueError(
            f"{chosen[0]} is an option of sequences for a memory; give --memory gru too"
        )


@dataclass(frozen=True)
class RolloutReplay:
    """Makes the buffer for the options of an algorithm that learns from rollouts and may replay them.

    Attributes:
        ratio: average number of replayed rollouts per new one, a number or a function of progress; 0 stores none.
        buffer_size: number of env steps to keep, in whole rollouts.
        only: whether all batches are replayed rollouts.
        learning_starts: env steps stored before the first rollout is replayed.
        alpha: preference for rollouts with large gradients; 0 makes all equally likely.
    """

    ratio: Schedule | float
    buffer_size: int
    only: bool = False
    learning_starts: int = 0
    alpha: float = 0.0

    @property
    def on(self) -> bool:
        """Return whether there is any replay."""
        ratio = throughout(self.ratio)
        return not isinstance(ratio, Constant) or ratio.value > 0

    def buffer(
        self,
        n_steps: int,
        num_envs: int,
        seeds: Seeds,
    ) -> RolloutBuffer | TrajectoryReplay:
        """Make the buffer.

        Args:
            n_steps: rollout length per environment.
            num_envs: number of environments.
            seeds: seeds of the draws.

        Raises:
            UsageError: `only` is set without replay, so there would never be a batch.
        """
        if self.on:
            rollout = n_steps * num_envs
            capacity = max(1, self.buffer_size // rollout)
            start = -(-self.learning_starts // rollout)
            return TrajectoryReplay(
                n_steps, capacity, self.ratio, start, seeds, fresh=not self.only, alpha=self.alpha
            )
        if self.only:
            raise UsageError(
                "replay_only leaves nothing to learn from without replay; give --replay-ratio 4 too"
            )
        return RolloutBuffer(n_steps)
