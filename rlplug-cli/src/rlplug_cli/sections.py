"""Sorts the options of `rlplug run ALGORITHM --help` into sections, the most used first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

#: Sections that algorithms share: their titles, and patterns of the options in them.
SHARED = {
    "How long and how much data": (
        "total_timesteps",
        "num_envs",
        "n_steps",
        "batch_size",
        "n_epochs",
        "buffer_*",
        "learning_starts",
        "train_freq",
        "gradient_steps",
        "replay_ratio",
        "n_step",
        "random_steps",
        "her",
    ),
    "Exploration": (
        "exploration_*",
        "eval_eps",
        "softmax_temperature",
        "noisy*",
        "action_noise",
        "noise_*",
    ),
    "Loss": (
        "gamma",
        "gae_lambda",
        "clip_range*",
        "target_kl",
        "normalize_*",
        "popart",
        "ent_coef",
        "vf_coef",
        "autotune",
        "target_entropy",
        "double",
        "loss",
        "kappa",
        "tau",
        "target_update_interval",
        "target_*noise*",
        "policy_delay",
        "priority.*",
        "v_min",
        "v_max",
        "*n_atoms",
        "*quantiles*",
        "max_importance_weight",
        "trust_region_delta",
        "average_policy_decay",
        "n_action_samples",
        "n_critics",
        "symmetry",
    ),
    "Network": ("net", "net.*", "dueling", "memory*", "recurrent_*", "renorm_*"),
    "Network of the critic": ("critic_net", "critic_net.*"),
    "Optimizer": (
        "*learning_rate",
        "anneal_lr",
        "desired_kl",
        "optimizer",
        "momentum",
        "optimizer_kwargs.*",
        "max_grad_norm",
        "n_critic_updates",
        "*kfac_*",
        "cg_*",
        "line_search_max_iter",
        "sub_sampling_factor",
    ),
}
#: Sections of the options that every run has.
RUNS = {
    "Seed and end of the run": (
        "seed",
        "max_episodes",
        "max_seconds",
        "target_return",
        "early_stopping_*",
        "lr_*",
        "min_delta",
        "patience_start",
        "controller",
    ),
    "Evaluation": ("eval_*", "final_eval_*", "record_every"),
    "Checkpoints and logs": (
        "checkpoint_every",
        "resume_exact",
        "keep_checkpoints",
        "log",
        "hook",
        "log_every",
        "log_every_episodes",
        "stats_window_size",
    ),
    "Starting weights and data sets": (
        "init",
        "init_parts",
        "freeze",
        "dataset",
        "dataset_share",
        "offline",
    ),
    "Wrappers, processes and devices": ("*",),
}


def titles(algorithm: str) -> Iterable[str]:
    """Return the titles of all sections: the algorithm's own section is the second."""
    first, *others = SHARED
    return (first, f"Options of {algorithm}", *others, *RUNS, "Input and output")


def title(option: str, algorithm: str, is_own: bool) -> str:
    """Return the section of an option: a shared one, the algorithm's own, or one of those that every run has."""
    return _section(option, SHARED) or (
        f"Options of {algorithm}" if is_own else _section(option, RUNS)
    )


def _section(option: str, sections: Mapping[str, Sequence[str]]) -> str:
    for title, patterns in sections.items():
        if any(fnmatchcase(option, pattern) for pattern in patterns):
            return title
    return ""
