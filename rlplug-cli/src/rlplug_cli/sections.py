"""Sort the options of `rlplug run ALGORITHM --help` into sections, in the order in which someone looks for them."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

#: Sections that algorithms share: their titles, and patterns of the options in them.
SHARED = {
    "How long and how much data": (
        "total_timesteps", "num_envs", "n_steps", "batch_size", "n_epochs", "buffer_*", "learning_starts", "train_freq",
        "gradient_steps", "replay_ratio", "n_step", "random_steps",
    ),
    "Exploration": ("exploration_*", "eval_eps", "softmax_temperature", "noisy*", "action_noise", "noise_*"),
    "Loss": (
        "gamma", "gae_lambda", "clip_range*", "target_kl", "normalize_*", "popart", "ent_coef", "vf_coef", "autotune",
        "target_entropy", "double", "loss", "kappa", "tau", "target_update_interval", "target_*noise*", "policy_delay",
        "priority.*", "v_min", "v_max", "*n_atoms", "*quantiles*", "max_importance_weight", "trust_region_delta",
        "average_policy_decay", "n_action_samples", "n_critics",
    ),
    "Network": ("net", "net.*", "critic_net.*", "dueling", "recurrent_*", "renorm_*"),
    "Optimizer": (
        "*learning_rate", "anneal_lr", "optimizer", "optimizer_kwargs.*", "max_grad_norm", "n_critic_updates",
        "*kfac_*", "cg_*", "line_search_max_iter", "sub_sampling_factor",
    ),
}  # fmt: skip


def titles(algorithm: str) -> Iterable[str]:
    """Return the titles of all sections: what is particular to an algorithm comes after how long it trains."""
    first, *rest = SHARED
    return (first, f"Options of {algorithm}", *rest, "Every run", "Input and output")


def title(option: str, algorithm: str, own: bool) -> str:
    """Return the section of an option: a shared one, the algorithm's, or that of every run's other options."""
    for section, patterns in SHARED.items():
        if any(fnmatchcase(option, pattern) for pattern in patterns):
            return section
    return f"Options of {algorithm}" if own else "Every run"
