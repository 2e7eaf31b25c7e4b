"""Read a local data set of Minari (Farama Foundation); nothing is downloaded."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlplug_core.buffers.dataset import FIELDS, MINARI, NEXT_OBS, OBS, Dataset
from rlplug_core.errors import MissingPackage, UsageError, plain
from rlplug_core.types import tree_map


def from_minari(place: str) -> Dataset:
    """Return the data set `minari:ID`, one episode after another; a tuple becomes a dictionary with keys "0", "1", ….

    Raises:
        MissingPackage: minari is not installed. UsageError: the data set is not on this machine.
    """
    name = place.removeprefix(MINARI)
    try:
        import minari

        dataset = minari.load_dataset(name)
    except ImportError as error:
        raise MissingPackage(
            f"{place} needs minari; install it with: python -m pip install 'rlplug-core[minari]'"
        ) from error
    # ValueError: Minari refuses the name.
    except (FileNotFoundError, ValueError) as error:
        raise UsageError(
            f"there is no data set {place} here: {plain(str(error), 100)}; `minari download {name}` fetches it"
        ) from error
    episodes = [_transitions(episode) for episode in dataset.iterate_episodes()]
    if not episodes:
        raise UsageError(f"the data set {place} has no transitions")
    env = dataset.env_spec.id if dataset.env_spec is not None else ""
    arrays = {
        name: tree_map(
            lambda *leaves: np.concatenate(leaves), *(episode[name] for episode in episodes)
        )
        for name in FIELDS
    }
    return Dataset(place, arrays, env)


def _transitions(episode: Any) -> dict[str, object]:
    """Return the arrays [T, ...] of an episode; it has T + 1 observations."""
    obs = _plain(episode.observations)
    action = _plain(episode.actions)
    return {
        OBS: tree_map(lambda array: array[:-1], obs),
        "actions": action,
        "rewards": np.asarray(episode.rewards),
        NEXT_OBS: tree_map(lambda array: array[1:], obs),
        "terminations": np.asarray(episode.terminations),
        "truncations": np.asarray(episode.truncations),
    }


def _plain(tree: object) -> object:
    """Return a tree with dictionaries in place of tuples, and arrays as leaves."""
    if isinstance(tree, dict):
        return {name: _plain(part) for name, part in tree.items()}
    if isinstance(tree, tuple):
        return {str(number): _plain(part) for number, part in enumerate(tree)}
    return np.asarray(tree)
