"""The data set of a run: whether a learner or its replay buffer gets it, and what fits an environment."""

from __future__ import annotations

from dataclasses import replace

import torch

from rlplug_core.buffers.dataset import Dataset, Fitted
from rlplug_core.config.run_options import RunOptions
from rlplug_core.errors import UsageError
from rlplug_core.learner_dataset import LearnerDataset
from rlplug_core.plugins.env_base import complete
from rlplug_core.protocols import Env
from rlplug_core.seeds import Seeds


def gets_dataset(learner: type[object]) -> bool:
    """Return whether the learner itself gets the data set, and not its replay buffer."""
    return getattr(learner, "dataset_use", "replay") != "replay"


def check_dataset(
    algorithm: str,
    learner: type[object],
    runner: str,
    options: RunOptions,
) -> None:
    """Refuse options of data sets that do not go together.

    Raises:
        UsageError: a data set is missing, or the runner or another option does not support it.
    """
    to_learner = gets_dataset(learner)
    if not options.dataset and getattr(learner, "dataset_use", "") == "required":
        raise UsageError(
            f"{algorithm} learns from a data set; name it: --dataset FILE.npz, or minari:ID"
        )
    if options.dataset and runner != "sync" and not to_learner:
        raise UsageError(
            f"{algorithm} runs under '{runner}', and --dataset works only with --runner sync"
        )
    if options.dataset_share is not None and (not options.dataset or options.offline or to_learner):
        raise UsageError(
            "--dataset-share mixes a data set with the run's own steps in the batches of a replay buffer: it needs "
            "--dataset, an algorithm with a replay buffer, such as sac, and no --offline"
        )
    if options.offline and not options.dataset:
        raise UsageError(
            "an offline run learns only from a data set; name it: --dataset FILE.npz, or minari:ID"
        )
    if options.offline and options.max_episodes:
        raise UsageError(
            "an offline run has no training episodes to count; leave out --max-episodes"
        )


def fit_dataset(dataset: Dataset, env: Env) -> Fitted:
    """Return the data set in the spaces that the learners of an environment see.

    Raises:
        UsageError: it does not fit.
    """
    action_space = complete(env).action_space
    fitted = dataset.fit(env.spec, action_space)
    return replace(fitted, reward=complete(env).reward(fitted.reward))


def learner_dataset(
    data: Fitted,
    seeds: Seeds,
    device: torch.device,
) -> LearnerDataset:
    """Return a data set for `self.dataset` of a learner, with its own generator."""
    return LearnerDataset(
        sha256=data.sha256,
        obs=data.obs,
        action=data.action,
        reward=data.reward,
        next_obs=data.next_obs,
        terminated=data.terminated,
        truncated=data.truncated,
        generator=seeds.generator(),
        device=device,
    )
