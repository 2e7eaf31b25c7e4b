"""The batches that learners get: rollouts [T, N] as collected, and batches of samples or transitions on the device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import InitVar, dataclass, field, fields
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from rlplug_core.accelerator import overridable
from rlplug_core.errors import UsageError
from rlplug_core.types import Array, Obs, RecurrentState, first_leaf, tree_map

T = TypeVar("T", bound="Batch")


@dataclass(slots=True)
class Batch:
    """The base of batches on the device: every field is a tensor [B, ...], a (nested) dictionary of them, or None.

    `weight` [B] is the only mask: 0 for rows that must not count, importance weights otherwise. `counts` [B] is what
    each row counts for in a mean, `weight / max(1, count(weight > 0))`: dividing by the sum of the weights would cancel
    their scale. Whoever builds a batch, by `dataclasses.replace` too, passes it as `share` if it knows it, or None.
    """

    weight: Tensor
    share: InitVar[Tensor | None]
    counts: Tensor = field(init=False, repr=False)

    def __post_init__(self, share: Tensor | None) -> None:
        self.counts = (
            self.weight / (self.weight > 0).sum().clamp_(min=1) if share is None else share
        )

    def mean(self, value: Tensor) -> Tensor:
        """The weighted mean of `value` [B] that keeps the weights' scale."""
        return value.dot(self.counts)

    def standard_normal(self, generator: np.random.Generator, shape: tuple[int, ...]) -> Tensor:
        """Draw standard normal numbers of float32 on the device of the batch."""
        drawn = generator.standard_normal(shape, dtype=np.float32)
        return torch.from_numpy(drawn).to(self.weight.device, non_blocking=True)

    def map(self: T, function: Callable[[Any], Any]) -> T:
        """Apply `function` to every tensor of every field."""
        return type(self)(share=function(self.counts), **self._mapped(function))

    def take(self: T, index: Tensor) -> T:
        """The rows at `index` [b]; the others no longer count in their mean."""
        return type(self)(share=None, **self._mapped(lambda tensor: tensor.index_select(0, index)))

    def parts(self: T, order: Tensor, size: int) -> Iterator[T]:
        """The rows at `order` [n], `size` at a time, what fills no part left out; all are gathered at once."""
        count = len(order) // size
        gathered = self.take(order[: count * size])
        weight = gathered.weight.view(count, size)
        counts = weight / (weight > 0).sum(1, keepdim=True).clamp_(min=1)
        split = gathered._mapped(lambda tensor: tensor.split(size))
        for number, share in enumerate(counts.unbind()):
            yield type(self)(
                share=share,
                **{name: tree_map(itemgetter(number), each) for name, each in split.items()},
            )

    def split(self: T, size: int, share: Tensor) -> Iterator[T]:
        """Yield the rows in order, `size` at a time, as views; `share` [size] is what a row counts for in a mean."""
        count = len(self.weight) // size
        names = NAMES.get(type(self)) or field_names(self)
        columns = [_in_parts(getattr(self, name), count, size) for name in names]
        for parts in zip(*columns, strict=True):
            yield type(self)(share=share, **dict(zip(names, parts, strict=True)))

    def _mapped(self, function: Callable[[Any], Any]) -> dict[str, Any]:
        return {
            name: tree_map(function, getattr(self, name))
            for name in NAMES.get(type(self)) or field_names(self)
        }

    def to(self: T, device: torch.device) -> T:
        return (
            self
            if device.type == "cpu"
            else self.map(lambda tensor: tensor.to(device, non_blocking=True))
        )


def _in_parts(tree: Any, count: int, size: int) -> Iterable[Any]:
    """Return `count` parts of nested dictionaries, `size` rows each, as views."""
    if isinstance(tree, dict):
        columns = [_in_parts(each, count, size) for each in tree.values()]
        if not tree:
            return ({} for _ in range(count))
        return (dict(zip(tree, parts, strict=True)) for parts in zip(*columns, strict=True))
    return [None] * count if tree is None else tree.view(count, size, *tree.shape[1:]).unbind()


#: The names of the fields of each kind of batch: listing them takes longer than most of what is done to them.
NAMES: dict[object, tuple[str, ...]] = {}


def field_names(batch: Batch) -> tuple[str, ...]:
    """Return the names of a batch's fields, and note them for the next batch of its kind."""
    names = NAMES[type(batch)] = tuple(each.name for each in fields(batch) if each.init)
    return names


@dataclass(slots=True)
class Transitions(Batch):
    """A batch of B transitions for value learning: `target = reward + discount * V(next_obs)`.

    Attributes:
        obs, action, next_obs: [B, ...]; `next_obs` is where an n-step window ends.
        reward: [B] the (n-step, discounted) sum of rewards.
        discount: [B] gamma^k for k steps, 0 where the window ended in a terminal state.
        index: [B] where the buffer keeps them; what `feedback` reports priorities for.
    """

    obs: Any
    action: Tensor
    reward: Tensor
    discount: Tensor
    next_obs: Any
    index: Tensor
    extras: dict[str, Tensor]
    recurrent_state: Any = None


@dataclass(slots=True)
class Samples(Batch):
    """A batch of B flattened rollout rows for policy gradients; `advantage` and `target` (of the value) are [B]."""

    obs: Any
    action: Tensor
    advantage: Tensor
    target: Tensor
    extras: dict[str, Tensor]

    @property
    def inputs(self) -> tuple[Any, ...]:
        """Return the arguments of a network for these samples: observations, and noise on its weights if any."""
        noise = self.extras.get("noise")
        return (self.obs,) if noise is None else (self.obs, noise)

    def minibatches(self, size: int, generator: np.random.Generator) -> Iterator[Samples]:
        """The rows in random order, `size` at a time; all at once where `size` covers them."""
        return split_shuffled(self, self.weight.shape[0], size, generator)


@dataclass(slots=True)
class Cuts:
    """True successors of episodes that were truncated inside a rollout: `obs` [K, ...], of which `count` are in use.

    `index` [K] says where they belong in the flattened [T * N] rows. K grows by doubling, so shapes rarely change.
    """

    obs: Obs
    index: Array
    count: int


@dataclass(slots=True)
class Rollout:
    """T consecutive steps of N environments, as numpy arrays; valid until the buffer's next `add`.

    Attributes:
        obs: [T + 1, N, ...]; the last row is the true successor of the last action.
        action, reward, terminated, truncated, is_first: [T, N, ...].
        weight: [T, N] float32, 0 where a row holds no transition.
        cuts: the successors of rows that were truncated before the last step.
        extras: what the agent sent along, [T, N, ...] each.
        recurrent_state: the agent's memory at the first row, [N, ...] or None.
        whole: whether every row holds a transition.
        views: the same memory flattened, made when first needed.
    """

    obs: Obs
    action: Array
    reward: Array
    terminated: Array
    truncated: Array
    is_first: Array
    weight: Array
    cuts: Cuts
    extras: dict[str, Array]
    recurrent_state: RecurrentState
    whole: bool = True
    views: Views | None = None

    def values(self, critic: Callable[[Obs], Array]) -> tuple[Array, Array]:
        """V of every observation and of every step's true successor, both [T, N]; `critic` maps [B, ...] to [B]."""
        steps, num_envs = self.reward.shape
        if self.views is None:
            self.views = Views(self)
        value = critic(self.views.all_obs).reshape(steps + 1, num_envs)
        successor = value[1:]
        if self.cuts.count:
            successor = successor.copy()
            successor.reshape(-1)[self.cuts.index[: self.cuts.count]] = critic(self.cuts.obs)[
                : self.cuts.count
            ]
        return value[:-1], successor

    def samples(self, advantage: Array, target: Array, device: torch.device) -> Samples:
        """The rows flattened to [T * N] tensors on `device`, which share this rollout's memory on the CPU."""
        if self.views is None:
            self.views = Views(self)
        views = self.views
        tensor = torch.from_numpy
        share = views.equal if self.whole else None
        by_value = tensor(advantage.reshape(-1)), tensor(target.reshape(-1))
        made = Samples(views.weight, share, views.obs, views.action, *by_value, views.extras)
        return made.to(device)


class Views:
    """A rollout's storage as tensors that are flattened once, since its memory stays the same."""

    __slots__ = ("action", "all_obs", "equal", "extras", "obs", "weight")

    def __init__(self, rollout: Rollout) -> None:
        steps, num_envs = rollout.reward.shape

        def flat(array: Array) -> Tensor:
            return torch.from_numpy(array[:steps].reshape(steps * num_envs, *array.shape[2:]))

        self.all_obs = tree_map(
            lambda a: a.reshape((steps + 1) * num_envs, *a.shape[2:]), rollout.obs
        )
        self.equal = torch.full((steps * num_envs,), 1 / (steps * num_envs))
        stored = (rollout.weight, rollout.obs, rollout.action, rollout.extras)
        self.weight, self.obs, self.action, self.extras = (tree_map(flat, each) for each in stored)


def split_shuffled(batch: T, rows: int, size: int, generator: np.random.Generator) -> Iterator[T]:
    """`batch` in parts: its `rows` in random order, `size` at a time; the batch itself where `size` covers them."""
    if size >= rows:
        yield batch
        return
    order = torch.from_numpy(generator.permutation(rows))
    yield from batch.parts(order.to(batch.weight.device), size)


def along_rows(name: str, parts: list[Any]) -> Any:
    """Concatenate the tensors [b, ...] of a field."""
    joined: Tensor = torch.cat(parts)
    return joined


def concatenate(parts: Sequence[T], put: Callable[[str, list[Any]], Any] = along_rows) -> T:
    """Put batches of one kind together.

    Args:
        parts: the batches.
        put: makes one tensor of those that they have in a field; it gets the field's name.
    """
    first = parts[0]
    if len(parts) == 1:
        return first
    found: dict[str, Any] = {
        name: tree_map(
            lambda *each, name=name: put(name, list(each)), *(getattr(part, name) for part in parts)
        )
        for name in NAMES.get(type(first)) or field_names(first)
    }
    return type(first)(share=None, **found)


def rows_of(obs: Obs) -> int:
    """The leading dimension of an observation."""
    return int(first_leaf(obs).shape[0])


def to_tensors(tree: object, device: torch.device) -> Any:
    """Arrays to tensors; on the CPU they share memory."""
    if device.type == "cpu":
        return tree_map(torch.from_numpy, tree)
    return tree_map(lambda array: torch.from_numpy(array).to(device, non_blocking=True), tree)


def check_standardize(on: bool, samples: int) -> None:
    """Raise UsageError where it is on and batches have one sample, which less its mean is 0."""
    if on and samples < 2:
        raise UsageError(
            "an advantage alone in its batch is 0 once it is scaled to mean 0, and no policy learns from it; give more "
            "--num-envs, --n-steps or (for ppo) --batch-size, or --no-normalize-advantage"
        )


@overridable
def clipped_surrogate(ratio: Tensor, advantage: Tensor, clip_range: float) -> Tensor:
    """Compute min(r A, clip(r, 1 - ε, 1 + ε) A), what PPO maximizes (Schulman et al., 2017, arXiv:1707.06347, eq. 7).

    Args:
        ratio: [B] probabilities of the actions now over those when they were chosen.
        advantage: [B].
        clip_range: ε.

    Returns:
        Terms [B], with a gradient in `ratio`.
    """
    low = 1 - clip_range
    high = 1 + clip_range
    return (ratio * advantage).minimum(ratio.clamp(low, high) * advantage)


def value_error(
    value: Tensor, target: Tensor, before: Tensor, clip: float | None, unit: Tensor | float = 1.0
) -> Tensor:
    """Squared errors of values [B]; with `clip` those of the values within `clip * unit` of `before`, where larger.

    Part of PPO's published code and not of its paper (Engstrom et al., 2020, arXiv:2005.12729, section 3).
    """
    error = (value - target).square()
    if clip is None:
        return error
    moved = ((value - before) / unit).clamp(-clip, clip) * unit
    return error.maximum((before + moved - target).square())
