"""Symmetry: learn from samples and their mirror images (Mittal et al., 2024, arXiv:2403.04359)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from torch import Tensor, nn

from rlplug_core.batches import Samples, concatenate
from rlplug_core.config.import_string import load_target
from rlplug_core.errors import PluginError, UsageError
from rlplug_core.types import Obs, tree_map

#: A function of observations [B, ...] and actions [B, ...] to their mirror images, of the same shapes.
Mirror: TypeAlias = Callable[[Obs, Tensor], tuple[Obs, Tensor]]


def symmetry(
    words: str | None,
    memory: str = "",
) -> Callable[[Samples], Samples]:
    """Return a function that adds the mirror image of each sample to a batch of samples.

    An image has the advantage, the value target and the old log-probability of its sample.

    Args:
        words: the mirror, `module:name` or `./file.py:name`: a function of observations and actions [B, ...] that
            returns both mirrored; None for no images.
        memory: the name and options of a memory; "" for none.

    Raises:
        UsageError, PluginError: it cannot be imported, or is combined with a memory, which has no mirror image. The
            returned function raises PluginError if the images have other shapes.
    """
    if words is None:
        return nn.Identity()
    if memory:
        raise UsageError("a memory has no mirror image; leave out --symmetry or --memory")
    mirror: Mirror = load_target(words, "symmetry")

    def augment(samples: Samples) -> Samples:
        obs, action = mirror(samples.obs, samples.action)
        _check_shapes(words, (obs, action), samples)
        image = replace(samples, obs=obs, action=action, share=samples.counts)
        return concatenate([samples, image])

    return augment


def _check_shapes(
    words: str,
    image: tuple[Obs, Tensor],
    samples: Samples,
) -> None:
    def shapes(obs: Obs, action: Tensor) -> object:
        return tree_map(
            lambda part: (tuple(part.shape), part.dtype), {"obs": obs, "action": action}
        )

    before = shapes(samples.obs, samples.action)
    after = shapes(*image)
    if before != after:
        raise PluginError(
            f"the symmetry '{words}' returns {after} for {before}; return mirrored observations and actions of the "
            "same shapes and types"
        )
