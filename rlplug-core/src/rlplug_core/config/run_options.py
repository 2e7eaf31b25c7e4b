"""Declare the options of every run. Their names are reserved: no option of an algorithm may have one of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rlplug_core.config.options import (
    Config,
    Count,
    Natural,
    NonNegative,
    Positive,
    Repeated,
    Seed,
    Steps,
    UnitInterval,
)


@dataclass(frozen=True)
class RunOptions(Config):
    """The options of every run. Counts of steps are env steps, summed over all environments and workers."""

    total_timesteps: Steps = 100_000  # train for this many env steps
    num_envs: Count = 1  # number of environments stepped together, in each worker or actor
    seed: Seed = 1  # seed of all random numbers; 0 is a seed like any other
    # stop after this many episodes, over all environments and workers; 0 for no limit
    max_episodes: Natural = 0
    # stop after this many seconds, including those before a resume; 0 for no limit
    max_seconds: NonNegative = 0.0
    # stop at the first evaluation with at least this mean return
    target_return: float | None = None
    # stop after this many evaluations without improvement; 0 for never
    early_stopping_patience: Natural = 0
    # reduce learning rates after this many evaluations without improvement; 0 for never
    lr_patience: Natural = 0
    lr_factor: UnitInterval = 0.5  # multiply learning rates by this when they are reduced
    # an evaluation improves on the best one if it exceeds it by more than this
    min_delta: NonNegative = 0.0
    # env steps at the start in which neither patience counts evaluations
    patience_start: Natural = 0
    # wrapper, NAME or NAME:option=value,…; may be repeated, the last one is the outermost
    wrap: Repeated = ()
    # controller that steers the run, NAME or NAME:option=value,…; may be repeated
    controller: Repeated = ()
    # training loop; auto: the first one that the algorithm lists
    runner: Literal["auto", "sync", "async", "decoupled"] = "auto"
    # number of worker processes of the async runner; auto (0) is one for each core
    workers: Natural = 2
    actors: Count = 2  # number of actor processes of the decoupled runner
    # largest policy lag of an actor, in versions of the weights; default: 2 * actors - 1
    max_lag: Natural | None = None
    # steps of each environment an actor sends at once; default: n_steps, or 16
    chunk_steps: Count | None = None
    actor_device: str = "cpu"  # device of decoupled actors: cpu, cuda, cuda:1
    # place of decoupled actors: local, ray, or ray://HOST:PORT, a Ray cluster's address
    on: str = "local"
    cpus_per_actor: Positive = 1.0  # CPUs that Ray reserves for each actor
    gpus: Natural = 0  # GPUs of the learner's machine that Ray reserves for it
    # learners of the sync runner, with num_envs environments each; they share every gradient step
    learners: Count = 1
    # run workers or actors in turn in one process: deterministic, resumes bit for bit
    inline: bool = False
    # processes that step the environments under sync; 1: only the run's own, auto (0): rlplug chooses
    env_workers: Natural = 1
    # device of networks and batches: cpu, cuda, cuda:1; auto is cuda if there is a GPU, else cpu
    device: str = "auto"
    threads: Count = 1  # torch threads per process; 1 is fastest for small networks
    # library that computes actions; numpy for small nets
    inference_backend: Literal["auto", "numpy", "torch"] = "auto"
    compile: bool = False  # compile the loss with torch.compile
    # record gradient steps as CUDA graphs and replay them, with device cuda
    cudagraphs: bool = False
    eval_every: Natural = 0  # env steps between evaluations; 0 is a twentieth of the total
    # evaluate in this environment, which has the same spaces, instead of the one for training
    eval_env: str = ""
    # wrapper for evaluations, instead of those of wrap; none for no wrapper at all
    eval_wrap: Repeated = ()
    eval_episodes: Count = 10  # greedy episodes per evaluation
    # greedy episodes of the last and of the best weights at the end; 0 for none
    final_eval_episodes: Natural = 100
    checkpoint_every: Natural = 0  # env steps between checkpoints; 0 is a tenth of the total
    # restart episodes at checkpoints, for exact resume if the environment has no saved state
    resume_exact: bool = False
    # number of periodic checkpoints to keep, besides the best and the final one; all (0): every one; default: 3,
    # or 1 if each holds a replay buffer of 1 GiB or more
    keep_checkpoints: Natural | None = None
    # also log with these: csv, tensorboard, wandb, ./file.py:Class, NAME:option=value,…
    log: tuple[str, ...] = ()
    # options of an installed hook plugin, NAME:option=value,…; may be repeated
    hook: Repeated = ()
    log_every: Natural = 0  # env steps between log records; 0 is a hundredth of the total
    # episodes between log records, instead of env steps; 0 for env steps
    log_every_episodes: Natural = 0
    # number of the last training episodes that logs and displays summarize
    stats_window_size: Count = 100
    worker_timeout: Positive = 60.0  # seconds without a message after which a worker counts as hung
    # env steps between videos of an evaluation's first episode; 0 for none
    record_every: Natural = 0
    init: str = ""  # start from the weights of this run, checkpoint or export
    # parts to load from it: policy, critic, optimizer, buffer
    init_parts: tuple[str, ...] = ("policy", "critic")
    # do not train these parameters, by name prefix: policy.encoder
    freeze: tuple[str, ...] = ()
    # data set to learn from: FILE.npz or minari:ID; it fills the replay buffer if there is one
    dataset: str = ""
    # share of each batch that comes from the data set; default: in proportion to the transitions
    dataset_share: UnitInterval | None = None
    # learn only from the data set: steps count updates, and only evaluations use the environment
    offline: bool = False
