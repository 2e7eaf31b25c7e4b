"""Choose how an agent of action values explores: by epsilon, by a softmax over values, or by noise on the weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count, islice
from typing import Any, Protocol

import numpy as np

from rlplug_core.acting.epsilon_greedy import EpsilonGreedy, NoisyGreedy, Softmax
from rlplug_core.acting.recurrent import MemoryGreedy
from rlplug_core.config.schedules import Schedule, piecewise
from rlplug_core.nets.q_networks import QNetwork
from rlplug_core.nets.recurrent_q import RecurrentQ
from rlplug_core.seeds import Seeds
from rlplug_core.types import State


def explorer(
    q_network: QNetwork | RecurrentQ,
    epsilon: Schedule,
    seeds: Seeds,
    *,
    softmax_temperature: Schedule | None = None,
    inference_backend: str = "auto",
    random_steps: int = 0,
    eval_eps: float = 0.0,
) -> EpsilonGreedy:
    """Make the agent for a network and the options of its exploration.

    A network with noisy layers explores by their noise, a `softmax_temperature` by a softmax; otherwise `epsilon` is
    the probability of a random action, as a function of progress.

    Args:
        q_network: a network of action values.
        epsilon: the probability of a random action.
        seeds: seeds of the draws.
        softmax_temperature: action values are divided by it before the softmax.
        inference_backend: `auto`, `numpy` or `torch`.
        random_steps: env steps at the start with random actions.
        eval_eps: the probability of a random action in evaluation.
    """
    network = q_network.q_network if isinstance(q_network, RecurrentQ) else q_network
    make: Callable[..., EpsilonGreedy]
    if network.noisy:
        make = partial(NoisyGreedy, network, network.draw)
    elif softmax_temperature is not None:
        make = partial(Softmax, network, softmax_temperature)
    else:
        make = partial(EpsilonGreedy, network, epsilon)
    shared: State = {"warmup": random_steps, "evaluation": eval_eps}
    if isinstance(q_network, RecurrentQ):
        return MemoryGreedy(
            q_network, epsilon, seeds, inference_backend, **shared, chooser=make(seeds, **shared)
        )
    return make(seeds, inference_backend=inference_backend, **shared)


class ExploringLearner(Protocol):
    """The parts of an `Algorithm` that its exploration depends on."""

    config: Any
    inference_backend: str

    def schedule(self, name: str, anneal: bool = False) -> Schedule: ...

    def agent_seeds(self, rank: int) -> Seeds: ...


def explorer_from_options(
    learner: ExploringLearner,
    q_network: QNetwork | RecurrentQ,
    rank: int = 0,
    ranks: int = 1,
    final_eps: float | None = None,
) -> EpsilonGreedy:
    """Make the agent for the exploration options of a learner.

    The config has `exploration_initial_eps`, `exploration_final_eps`, `exploration_fraction`, `exploration_points`,
    `softmax_temperature`, `random_steps` and `eval_eps`. It may have `exploration_alpha`.

    Args:
        learner: an `Algorithm`.
        q_network: a network of action values.
        rank, ranks: the number of this actor, from 0, and the number of actors.
        final_eps: the final probability of a random action, in place of `exploration_final_eps`.
    """
    options = learner.config
    epsilon = epsilon_schedule(
        options.exploration_initial_eps,
        options.exploration_final_eps if final_eps is None else final_eps,
        options.exploration_fraction,
        options.exploration_points,
    )
    softmax = options.softmax_temperature is not None
    return explorer(
        q_network,
        actor_epsilon(epsilon, rank, ranks, getattr(options, "exploration_alpha", 0.0)),
        learner.agent_seeds(rank),
        softmax_temperature=learner.schedule("softmax_temperature") if softmax else None,
        inference_backend=learner.inference_backend,
        random_steps=options.random_steps,
        eval_eps=options.eval_eps,
    )


def epsilon_schedule(
    initial: float,
    final: float,
    fraction: float,
    points: Sequence[float] = (),
) -> Schedule:
    """Return the schedule of epsilon: from `initial` to `final` in the first `fraction` of the run, then constant.

    `points` are further points of the schedule in between: a fraction of the run, epsilon there, and so on.
    """
    between = zip(points[::2], points[1::2], strict=True)
    return piecewise([(0.0, initial), *between, (fraction, final)])


def actor_epsilon(
    epsilon: Schedule,
    rank: int,
    ranks: int,
    alpha: float,
) -> Schedule:
    """Return the epsilon of actor `rank` of `ranks`: epsilon ** (1 + alpha * rank / (ranks - 1)).

    So some actors explore and others act greedily (Horgan et al., 2018, arXiv:1803.00933, section 4.1, with alpha 7 and
    epsilon 0.4). With alpha 0, and for the first actor, it is `epsilon`.
    """
    if not alpha or not rank:
        return epsilon
    power = 1 + alpha * rank / (ranks - 1)
    return lambda progress: epsilon(progress) ** power


def check_exploration(
    fraction: float,
    points: Sequence[float],
    noisy: str | None,
    softmax_temperature: float | None,
) -> None:
    """Raise ValueError if two options replace epsilon, or if `points` are not points of a schedule of epsilon."""
    if noisy is not None and softmax_temperature is not None:
        raise ValueError(
            "noisy and softmax_temperature both replace epsilon; set one of them to none"
        )
    shares = list(points[::2])
    probabilities = points[1::2]
    in_order = shares == sorted(shares) and all(0 < share < fraction for share in shares)
    are_probabilities = all(0 <= chance <= 1 for chance in probabilities)
    if len(shares) != len(probabilities) or not in_order or not are_probabilities:
        raise ValueError(
            f"exploration_points needs pairs, a share of the run between 0 and exploration_fraction ({fraction:g}) and "
            f"the probability there from 0 to 1, in the order of the shares, such as {fraction / 2:g},0.5; it is "
            f"{','.join(f'{number:g}' for number in points)}"
        )


def final_epsilon(
    rank: int,
    usual: float,
    others: Sequence[float],
    seeds: Seeds,
) -> float:
    """Return the final epsilon of worker `rank` (Mnih et al., 2016, section 5.1).

    The paper samples it for each worker: `usual` with probability 0.4, else one of `others`. Here `take_turns` chooses,
    so a few workers have different values, and many have them in these proportions.
    """
    probabilities = [0.4, *[0.6 / len(others)] * len(others)] if others else [1.0]
    turns = take_turns(probabilities, seeds.generator())
    return (usual, *others)[next(islice(turns, rank, None))]


def take_turns(
    chances: Sequence[float],
    generator: np.random.Generator,
) -> Iterator[int]:
    """Yield indices: first each index once, in random order, then the one furthest below its probability.

    So after n items each index has occurred about n times its probability.
    """
    order = generator.choice(len(chances), len(chances), replace=False, p=chances)
    counts = np.zeros(len(chances))
    for turn in count():
        index = (
            order[turn] if turn < len(order) else (np.multiply(chances, turn + 1) - counts).argmax()
        )
        counts[index] += 1
        yield int(index)
