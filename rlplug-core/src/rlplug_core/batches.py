"""Batches for learners: rollouts [T, N] as collected, and batches of samples or transitions on the device."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import InitVar, dataclass, field, fields
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from rlplug_core.accelerator import kernel, overridable
from rlplug_core.arrays import namespace
from rlplug_core.errors import UsageError
from rlplug_core.types import Array, Obs, RecurrentState, first_leaf, tree_map

T = TypeVar("T", bound="Batch")


@dataclass(slots=True)
class Batch:
    """The base of batches on the device: every field is a tensor [B, ...], a (nested) dictionary of them, or None.

    `weight` [B] is the only mask: 0 for rows that must not count, importance weights otherwise. `counts` [B] is the
    factor of each row in a mean, `weight / max(1, count(weight > 0))`; division by the sum of the weights would
    cancel their scale. The argument `share` is `counts` if the caller has computed them, else None; calls of
    `dataclasses.replace` need it, too.
    """

    weight: Tensor
    share: InitVar[Tensor | None]
    counts: Tensor = field(init=False, repr=False)

    def __post_init__(self, share: Tensor | None) -> None:
        self.counts = (
            self.weight / (self.weight > 0).sum().clamp_(min=1) if share is None else share
        )

    def mean(self, value: Tensor) -> Tensor:
        """Return the weighted mean of `value` [B], which keeps the weights' scale."""
        return value.dot(self.counts)

    def standard_normal(
        self,
        generator: np.random.Generator,
        shape: tuple[int, ...],
    ) -> Tensor:
        """Draw standard normal numbers of float32 on the device of the batch."""
        drawn = generator.standard_normal(shape, dtype=np.float32)
        return torch.from_numpy(drawn).to(self.weight.device, non_blocking=True)

    def map(self: T, function: Callable[[Tensor], Tensor]) -> T:
        """Apply `function` to every tensor of every field."""
        return type(self)(share=function(self.counts), **self._map_fields(function))

    def take(self: T, index: Tensor) -> T:
        """Return the rows at `index` [b] as a batch; its mean is over these rows only."""
        return type(self)(
            share=None, **self._map_fields(lambda tensor: tensor.index_select(0, index))
        )

    def parts(self: T, order: Tensor, size: int) -> Iterator[T]:
        """Yield the rows at `order` [n], `size` at a time; drop an incomplete last part. All are gathered at once."""
        count = len(order) // size
        gathered = self.take(order[: count * size])
        weight = gathered.weight.view(count, size)
        counts = weight / (weight > 0).sum(1, keepdim=True).clamp_(min=1)
        names = NAMES.get(type(self)) or field_names(self)
        columns = [_split_tree(getattr(gathered, name), count, size) for name in names]
        for share, *values in zip(counts.unbind(), *columns, strict=True):
            yield type(self)(share=share, **dict(zip(names, values, strict=True)))

    @kernel
    def split(self: T, size: int, share: Tensor) -> Iterator[T]:
        """Yield the rows in order, `size` at a time, as views; `share` [size] is each row's factor in a mean."""
        count = len(self.weight) // size
        names = NAMES.get(type(self)) or field_names(self)
        columns = [_split_tree(getattr(self, name), count, size) for name in names]
        for values in zip(*columns, strict=True):
            yield type(self)(share=share, **dict(zip(names, values, strict=True)))

    def _map_fields(self, function: Callable[..., object]) -> dict[str, Any]:
        return {
            name: tree_map(function, getattr(self, name))
            for name in NAMES.get(type(self)) or field_names(self)
        }

    def to(self: T, device: torch.device) -> T:
        if device.type == "cpu" and self.weight.is_cpu:
            return self
        return self.map(lambda tensor: tensor.to(device, non_blocking=True))


def _split_tree(tree: Obs, count: int, size: int) -> Iterable[Obs]:
    """Return `count` parts of nested dictionaries, `size` rows each, as views."""
    if isinstance(tree, dict):
        columns = [_split_tree(part, count, size) for part in tree.values()]
        if not tree:
            return ({} for _ in range(count))
        return (dict(zip(tree, values, strict=True)) for values in zip(*columns, strict=True))
    return [None] * count if tree is None else tree.view(count, size, *tree.shape[1:]).unbind()


#: The names of the fields of each kind of batch; listing them takes longer than most operations on a batch.
NAMES: dict[object, tuple[str, ...]] = {}


def field_names(batch: Batch) -> tuple[str, ...]:
    """Return the names of a batch's fields, and store them for the next batch of its kind."""
    names = NAMES[type(batch)] = tuple(entry.name for entry in fields(batch) if entry.init)
    return names


@dataclass(slots=True)
class Transitions(Batch):
    """A batch of B transitions for value learning: `target = reward + discount * V(next_obs)`.

    Attributes:
        obs, action, next_obs: [B, ...]; `next_obs` is the observation after the n-step window.
        reward: [B] the (n-step, discounted) sum of rewards.
        discount: [B] gamma^k for k steps, 0 if the window ended in a terminal state.
        index: [B] positions in the buffer; `feedback` assigns priorities to them.
    """

    obs: Obs
    action: Tensor
    reward: Tensor
    discount: Tensor
    next_obs: Obs
    index: Tensor
    extras: dict[str, Tensor]
    recurrent_state: RecurrentState = None


@dataclass(slots=True)
class Samples(Batch):
    """A batch of B flattened rollout rows for policy gradients; `advantage` and `target` (of the value) are [B]."""

    obs: Obs
    action: Tensor
    advantage: Tensor
    target: Tensor
    extras: dict[str, Tensor]

    @property
    def inputs(self) -> tuple[Obs, ...]:
        """Return the arguments of a network for these samples: observations, and noise on its weights if any."""
        noise = self.extras.get("noise")
        return (self.obs,) if noise is None else (self.obs, noise)

    def every(self, nth: int) -> Samples:
        """Return each `nth` row as a batch."""
        return self.take(torch.arange(0, len(self.weight), nth, device=self.weight.device))

    @kernel
    def minibatches(
        self,
        size: int,
        generator: np.random.Generator,
    ) -> Iterator[Samples]:
        """Yield the rows in random order, `size` at a time; if there are no more than `size`, this batch itself."""
        return split_shuffled(self, self.weight.shape[0], size, generator)


@dataclass(slots=True)
class Truncations:
    """The final observations of episodes that were truncated inside a rollout.

    Attributes:
        obs: [K, ...] the observations; only the first `count` are in use. K grows by doubling, so shapes rarely change.
        index: [K] their rows in the flattened [T * N] rollout.
        count: the number of truncated episodes.
    """

    obs: Obs
    index: Array
    count: int


@dataclass(slots=True)
class Rollout:
    """T consecutive steps of N environments, valid until the buffer's next `add`.

    The fields are numpy arrays; if the environment gives tensors on a device, they are tensors there.

    Attributes:
        obs: [T + 1, N, ...]; the last row is the observation after the last action.
        action, reward, terminated, truncated, is_first: [T, N, ...].
        weight: [T, N] float32, 0 for a row without a transition.
        truncations: the final observations of episodes that were truncated before the last step.
        extras: the agent's other outputs, such as log-probabilities, [T, N, ...] each.
        recurrent_state: the agent's memory at the first row, [N, ...] or None.
        whole: whether every row has a transition.
        views: flat views of these fields, made at their first use.
    """

    obs: Obs
    action: Array
    reward: Array
    terminated: Array
    truncated: Array
    is_first: Array
    weight: Array
    truncations: Truncations
    extras: dict[str, Array]
    recurrent_state: RecurrentState
    whole: bool = True
    views: Views | None = None

    @property
    def cuts(self) -> Truncations:
        """Return `truncations` under its former name, which the next version removes."""
        warnings.warn("Rollout.cuts is now Rollout.truncations", DeprecationWarning, stacklevel=2)
        return self.truncations

    @property
    def size(self) -> int:
        """Return the number of steps of all environments, T * N."""
        steps, num_envs = self.reward.shape
        return int(steps * num_envs)

    @property
    def flat_obs(self) -> Obs:
        """Return the observations of the actions as [T * N, ...]; on the CPU they share this rollout's memory."""
        if self.views is None:
            self.views = Views(self)
        return self.views.obs

    def values(self, critic: Callable[[Obs], Array]) -> tuple[Array, Array]:
        """Return V(obs) and V(next_obs) of every step, both [T, N]; `critic` maps observations [B, ...] to [B]."""
        steps, num_envs = self.reward.shape
        if self.views is None:
            self.views = Views(self)
        value = critic(self.views.all_obs).reshape(steps + 1, num_envs)
        successor = value[1:]
        if self.truncations.count:
            successor = deepcopy(successor)
            successor.reshape(-1)[self.truncations.index[: self.truncations.count]] = critic(
                self.truncations.obs
            )[: self.truncations.count]
        return value[:-1], successor

    def samples(
        self,
        advantage: Array,
        target: Array,
        device: torch.device,
    ) -> Samples:
        """Return the rows flattened to [T * N] tensors on `device`; on the CPU they share this rollout's memory."""
        if self.views is None:
            self.views = Views(self)
        views = self.views
        share = views.equal_shares if self.whole else None
        estimates = advantage.reshape(-1), target.reshape(-1)
        columns = (views.weight, share, views.obs, views.action, *estimates, views.extras)
        return from_arrays(Samples, columns).to(device)


class Views:
    """Flat views [T * N, ...] of a rollout's fields; all rollouts of a buffer use the same memory, so they stay valid.

    Attributes:
        obs: observations of the actions.
        all_obs: these and the observations after the last actions, [(T + 1) * N, ...].
        weight, action, extras: as in the rollout.
        equal_shares: the factor of each row in a mean if every row has a transition.
    """

    __slots__ = ("action", "all_obs", "equal_shares", "extras", "obs", "weight")

    def __init__(self, rollout: Rollout) -> None:
        steps, num_envs = rollout.reward.shape

        def flat(array: Array) -> Array:
            return array[:steps].reshape(steps * num_envs, *array.shape[2:])

        self.all_obs = tree_map(
            lambda a: a.reshape((steps + 1) * num_envs, *a.shape[2:]), rollout.obs
        )
        stored = (rollout.weight, rollout.obs, rollout.action, rollout.extras)
        self.weight, self.obs, self.action, self.extras = (tree_map(flat, tree) for tree in stored)
        self.equal_shares = namespace(self.weight).full_like(self.weight, 1 / (steps * num_envs))


def split_shuffled(
    batch: T,
    rows: int,
    size: int,
    generator: np.random.Generator,
) -> Iterator[T]:
    """Yield the `rows` of a batch in random order, `size` at a time; the batch itself if it has no more than `size`."""
    if size >= rows:
        yield batch
        return
    order = torch.from_numpy(generator.permutation(rows))
    yield from batch.parts(order.to(batch.weight.device), size)


@kernel
def from_arrays(kind: type[T], parts: Sequence[object]) -> T:
    """Make a batch of tensors that share the memory of arrays on the CPU, or of tensors on a device.

    Args:
        kind: the class of the batch.
        parts: its arguments, as arrays or tensors [B, ...].
    """
    return kind(*(tree_map(torch.as_tensor, part) for part in parts))


def concatenate(
    batches: Sequence[T],
    join: Callable[[str, list[Tensor]], Tensor] = lambda name, tensors: torch.cat(tensors),
) -> T:
    """Concatenate batches of one kind.

    Args:
        batches: the batches.
        join: concatenates the tensors of one field; its first argument is the field's name.
    """
    first = batches[0]
    if len(batches) == 1:
        return first
    columns: dict[str, Any] = {
        name: tree_map(
            lambda *tensors, name=name: join(name, list(tensors)),
            *(getattr(batch, name) for batch in batches),
        )
        for name in NAMES.get(type(first)) or field_names(first)
    }
    return type(first)(share=None, **columns)


def rows_of(obs: Obs) -> int:
    """Return the number of rows of observations [B, ...]."""
    return int(first_leaf(obs).shape[0])


def to_tensors(tree: object, device: torch.device) -> Any:
    """Convert arrays to tensors on a device; on the CPU they share memory. Tensors are returned unchanged."""
    if device.type == "cpu":
        return tree_map(torch.as_tensor, tree)
    return tree_map(lambda array: torch.as_tensor(array).to(device, non_blocking=True), tree)


def check_normalize_advantage(normalize: bool, samples: int) -> None:
    """Raise UsageError if advantages are normalized over a single sample: its advantage would always be 0."""
    if normalize and samples < 2:
        raise UsageError(
            "the normalized advantage of a batch with one sample is always 0, so the policy would not learn; increase "
            "--num-envs, --n-steps or (for ppo) --batch-size, or use --no-normalize-advantage"
        )


@overridable
def clipped_surrogate(
    ratio: Tensor,
    advantage: Tensor,
    clip_range: float,
) -> Tensor:
    """Compute min(r A, clip(r, 1 - ε, 1 + ε) A), PPO's objective (Schulman et al., 2017, arXiv:1707.06347, eq. 7).

    Args:
        ratio: [B] the actions' probabilities under the current policy over those under the old one.
        advantage: [B].
        clip_range: ε.

    Returns:
        Terms [B], with a gradient in `ratio`.
    """
    low = 1 - clip_range
    high = 1 + clip_range
    return (ratio * advantage).minimum(ratio.clamp(low, high) * advantage)


def value_error(
    value: Tensor,
    target: Tensor,
    before: Tensor,
    clip: float | None,
) -> Tensor:
    """Compute squared errors of values [B], or with `clip` PPO's clipped value loss.

    The clipped loss is in PPO's published code and not in its paper (Engstrom et al., 2020, arXiv:2005.12729, section
    3): the larger one of the errors of `value` and of `value` clipped to within `clip` of `before`.

    Args:
        value: [B] values by the critic.
        target: [B] value targets.
        before: [B] values by the critic before the update.
        clip: the largest change of a value; None for plain squared errors.
    """
    error = (value - target).square()
    if clip is None:
        return error
    change = (value - before).clamp(-clip, clip)
    return error.maximum((before + change - target).square())
