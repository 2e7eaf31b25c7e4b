"""Stops runs at chosen moments and resumes them: the child processes of `test_resume.py`.

    python stopping.py train ROOT CASE/update/7...    each case once to its end, and once to each stop
    python stopping.py resume ROOT CASE/update/7...   resume the interrupted runs, and write each run's next actions

A stop is a real SIGTERM, sent after a number of updates or of vector steps.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from rlplug_algos.many_agents import independent, mappo, self_play
from rlplug_algos.off_policy import cql, crossq, ddpg, iql, sac, sac_discrete, td3, tqc
from rlplug_algos.policy_gradient import a2c, acer, acer_continuous, acktr, appo, impala, ppo, trpo, vpg
from rlplug_algos.value import c51, dqn, iqn, nstep_q, pqn, qrdqn, r2d2, vqn, vsarsa
from rlplug_core.buffers.dataset import FIELDS
from rlplug_core.clock import Clock
from rlplug_core.errors import Interrupted
from rlplug_core.loop.build import build
from rlplug_core.loop.torch_settings import set_torch
from rlplug_core.runs.api import Run, plan_of, resume, train
from rlplug_core.runs.checkpoint import Checkpoints
from rlplug_core.runs.data import with_dataset
from rlplug_core.runs.directory import RunDirectory
from rlplug_core.testing import envs, multi_agent, multi_part_actions


class Stop:
    """Counts updates and vector steps of this process and sends SIGTERM at a given number."""

    counts: ClassVar[dict[str, int]] = {}
    marks: ClassVar[dict[str, int]] = {}

    @classmethod
    def at(cls, what: str, mark: int) -> None:
        cls.counts = {"update": 0, "step": 0}
        cls.marks = {what: mark}

    @classmethod
    def count(cls, what: str) -> None:
        if what in cls.counts:
            cls.counts[what] += 1
            if cls.marks.get(what) == cls.counts[what]:
                os.kill(os.getpid(), signal.SIGTERM)


def random_data(env: Any, steps: int) -> dict[str, Any]:
    """Return a data set of random actions in one row of an environment."""
    env.spec.action.seed(0)
    now = env.reset(1)
    rows = []
    for _ in range(steps):
        obs = now.obs.copy()
        action = np.asarray([env.spec.action.sample()])
        now = env.step(action)
        rows.append((obs, action, now.reward.copy(), now.final_obs.copy(), now.terminated.copy(), now.truncated.copy()))
    return dict(zip(FIELDS, map(np.concatenate, zip(*rows, strict=True)), strict=True))


class Counted:
    """Counts its updates."""

    def learn(self, batch: Any, now: Any, clock: Clock) -> Any:
        result = super().learn(batch, now, clock)  # type: ignore[misc]
        Stop.count("update")
        return result


class A2C(Counted, a2c.A2C):
    pass


class A3C(Counted, a2c.A2C):
    pass


class PPO(Counted, ppo.PPO):
    pass


class DQN(Counted, dqn.DQN):
    pass


class DDPG(Counted, ddpg.DDPG):
    pass


class TD3(Counted, td3.TD3):
    pass


class SAC(Counted, sac.SAC):
    pass


class TQC(Counted, tqc.TQC):
    pass


class CrossQ(Counted, crossq.CrossQ):
    pass


class CQL(Counted, cql.CQL):
    pass


class IQL(Counted, iql.IQL):
    pass


class SACDiscrete(Counted, sac_discrete.SACDiscrete):
    pass


class ACER(Counted, acer.ACER):
    pass


class ContinuousACER(Counted, acer_continuous.ContinuousACER):
    pass


class ACKTR(Counted, acktr.ACKTR):
    pass


class IMPALA(Counted, impala.IMPALA):
    pass


class APPO(Counted, appo.APPO):
    pass


class TRPO(Counted, trpo.TRPO):
    pass


class VPG(Counted, vpg.VPG):
    pass


class VAC(Counted, a2c.A2C):
    pass


class VQN(Counted, vqn.VQN):
    pass


class PQN(Counted, pqn.PQN):
    pass


class VSarsa(Counted, vsarsa.VSarsa):
    pass


class NStepQ(Counted, nstep_q.NStepQ):
    pass


class C51(Counted, c51.C51):
    pass


class IQN(Counted, iqn.IQN):
    pass


class QRDQN(Counted, qrdqn.QRDQN):
    pass


class R2D2(Counted, r2d2.R2D2):
    pass


class MAPPO(Counted, mappo.MAPPO):
    pass


class Independent(independent.Independent):
    def update(self, batch: Any, clock: Clock) -> Any:
        result = super().update(batch, clock)
        Stop.count("update")
        return result


class SelfPlay(self_play.SelfPlay):
    def update(self, batch: Any, clock: Clock) -> Any:
        result = super().update(batch, clock)
        Stop.count("update")
        return result


#: Rows of an evaluation, with steps that do not count; training uses fewer.
EVALUATION = 6


class CountedSteps:
    """Counts its steps, except in evaluations."""

    def step(self, action: Any) -> Any:
        if self.spec.num_envs not in (EVALUATION, 2 * EVALUATION):  # type: ignore[attr-defined]
            Stop.count("step")
        return super().step(action)  # type: ignore[misc]


class Chain(CountedSteps, envs.Chain):
    pass


class Recall(CountedSteps, envs.Recall):
    pass


class Masked(CountedSteps, envs.Masked):
    pass


class Continuous(CountedSteps, envs.Continuous):
    pass


class MaskedDials(CountedSteps, multi_part_actions.MaskedDials):
    pass


class Panel(CountedSteps, multi_part_actions.Panel):
    pass


class Dilemma(CountedSteps, multi_agent.Dilemma):
    pass


COMMON = {
    "total_timesteps": 1200, "eval_every": 400, "eval_episodes": EVALUATION, "final_eval_episodes": 0, "log_every": 120,
    "checkpoint_every": 5000, "seed": 3,
}  # fmt: skip
REPLAY = {
    "train_freq": 8,
    "gradient_steps": 4,
    "learning_starts": 32,
    "batch_size": 16,
    "exploration_fraction": 0.8,
    "target_update_interval": 6,
}
#: Half as many gradient steps, for slow algorithms.
SELDOM = {**REPLAY, "train_freq": 16}
RECORDED, CHAIN = "continuous.npz", "chain.npz"
OFF_POLICY = {
    "train_freq": 16,
    "gradient_steps": 3,
    "learning_starts": 32,
    "random_steps": 40,
    "batch_size": 16,
    "net.hidden": [16],
    "buffer_size": 400,
}
WITHOUT_RANDOM = {name: value for name, value in OFF_POLICY.items() if name != "random_steps"}
OFFLINE = {"batch_size": 16, "net.hidden": [16], "offline": True, "dataset": RECORDED}
SCALED = {"net.normalize_obs": True, "normalize_reward": True}
RAINBOW = {
    **SELDOM, "num_envs": 2, "buffer_size": 400, "n_step": 3, "double": True, "dueling": True, "noisy": "factorized",
    "priority.alpha": 0.5, "net.hidden": [16, 16], "random_steps": 60,
}  # fmt: skip

#: Name to algorithm, environment, options and stops. DQN learns in bursts of four updates: 185 to 188 at step 400 with
#: an evaluation, 433 to 436 at step 896, after the ring was filled twice, and 585 to 588 at the last step.
CASES: dict[str, tuple[str, str, dict[str, Any], list[tuple[str, int]]]] = {
    "a2c": (
        "A2C", "Continuous", {"num_envs": 3, "n_steps": 4, "anneal_lr": True},
        [("update", 1), ("update", 50), ("step", 201)],
    ),
    "ppo": (
        "PPO", "Chain",
        {"num_envs": 2, "n_steps": 48, "batch_size": 16, "n_epochs": 2, "target_kl": 0.01, "desired_kl": 0.02},
        [("update", 1), ("update", 7), ("step", 1), ("step", 139), ("step", 300)],
    ),
    "ppo-panel": (
        "PPO", "Panel", {"num_envs": 2, "n_steps": 48, "batch_size": 16, "n_epochs": 2, "net.std": "state"},
        [("update", 7), ("step", 139)],
    ),
    "a2c-masked-dials": ("A2C", "MaskedDials", {"num_envs": 3, "n_steps": 4}, [("update", 50), ("step", 202)]),
    "ppo-recurrent": (
        "PPO", "Recall",
        {
            "num_envs": 3, "n_steps": 48, "batch_size": 100, "n_epochs": 2, "recurrent_cell": "lstm",
            "recurrent_hidden_size": 16,
        },
        [("update", 1), ("update", 4), ("step", 3), ("step", 139)],
    ),
    "dqn": (
        "DQN", "Chain", {**REPLAY, "num_envs": 2, "buffer_size": 400, "n_step": 3, "double": True, "dueling": True},
        [*(("update", mark) for mark in (1, 2, 3, 4, 186, 434, 587)), ("step", 7)],
    ),
    "dqn-masked": (
        "DQN", "Masked", {**REPLAY, "buffer_size": 2000, "buffer_storage": "disk"}, [("update", 201), ("step", 610)],
    ),
    "rainbow": ("C51", "Masked", {**RAINBOW, "n_atoms": 11}, [("update", 1), ("update", 218), ("step", 25)]),
    "rainbow-iqn": ("IQN", "Chain", RAINBOW, [("update", 201), ("step", 303)]),
    "qrdqn": (
        "QRDQN", "Chain",
        {**SELDOM, "num_envs": 2, "buffer_size": 400, "n_quantiles": 8, "priority.alpha": 0.6, "tau": 0.5},
        [("update", 218), ("step", 303)],
    ),
    "a3c-inline": (
        "A3C", "Chain", {"inline": True, "workers": 3, "num_envs": 2, "n_steps": 5},
        [("update", 1), ("update", 20), ("step", 2), ("step", 101)],
    ),
    "acer": (
        "ACER", "Chain", {"num_envs": 2, "n_steps": 12, "buffer_size": 240, "learning_starts": 48, "replay_ratio": 3.0},
        [("update", 1), ("update", 7), ("update", 130), ("step", 201), ("step", 450)],
    ),
    "acer-continuous": (
        "ContinuousACER", "Continuous",
        {"num_envs": 2, "n_steps": 12, "buffer_size": 240, "learning_starts": 48, "replay_ratio": 3.0},
        [("update", 7), ("step", 450)],
    ),
    "acktr": (
        "ACKTR", "Continuous", {"num_envs": 3, "n_steps": 4, "kfac_update_interval": 7},
        [("update", 1), ("update", 60), ("step", 201)],
    ),
    "impala-inline": (
        "IMPALA", "Continuous", {"inline": True, "actors": 2, "max_lag": 2, "num_envs": 2, "n_steps": 5},
        [("update", 1), ("update", 20), ("step", 3), ("step", 101)],
    ),
    "impala-masked": ("IMPALA", "Masked", {"runner": "sync", "num_envs": 2, "n_steps": 7}, [("step", 101)]),
    "appo-inline": (
        "APPO", "Chain",
        {
            "inline": True, "actors": 3, "num_envs": 2, "n_steps": 16, "chunk_steps": 24, "batch_size": 16,
            "n_epochs": 2, "target_update_interval": 3,
        },
        [("update", 1), ("update", 5), ("update", 17), ("step", 139)],
    ),
    "a2c-noisy": (
        "A2C", "Continuous", {"num_envs": 3, "n_steps": 4, "noisy": "factorized"}, [("update", 50), ("step", 201)],
    ),
    "ppo-noisy": (
        "PPO", "Masked", {"num_envs": 2, "n_steps": 48, "batch_size": 16, "n_epochs": 2, "noisy": "independent"},
        [("update", 7), ("step", 139)],
    ),
    "acer-noisy": (
        "ACER", "Chain",
        {"num_envs": 2, "n_steps": 12, "buffer_size": 240, "learning_starts": 48, "noisy": "factorized"},
        [("update", 7), ("step", 201)],
    ),
    "impala-noisy-replay-inline": (
        "IMPALA", "Chain",
        {
            "inline": True, "actors": 2, "num_envs": 2, "n_steps": 5, "noisy": "factorized", "replay_ratio": 1.5,
            "buffer_size": 100,
        },
        [("update", 20), ("step", 101)],
    ),
    "a3c-replay-inline": (
        "A3C", "Masked",
        {"inline": True, "workers": 2, "num_envs": 2, "n_steps": 5, "replay_ratio": 1.5, "buffer_size": 60},
        [("update", 9), ("update", 130), ("step", 101)],
    ),
    "a2c-replay-only": (
        "A2C", "Continuous",
        {"num_envs": 3, "n_steps": 4, "replay_ratio": 2.0, "replay_only": True, "buffer_size": 120},
        [("update", 50), ("step", 202)],
    ),
    "acer-async-inline": (
        "ACER", "Chain",
        {
            "runner": "async", "inline": True, "workers": 3, "num_envs": 2, "n_steps": 5, "buffer_size": 100,
            "learning_starts": 20, "replay_ratio": 1.5,
        },
        [("update", 20), ("update", 130), ("step", 101)],
    ),
    "acer-decoupled-inline": (
        "ACER", "Masked",
        {
            "runner": "decoupled", "inline": True, "actors": 2, "num_envs": 2, "n_steps": 5, "buffer_size": 100,
            "learning_starts": 20, "replay_ratio": 1.5,
        },
        [("update", 20), ("update", 130), ("step", 101)],
    ),
    "r2d2": (
        "R2D2", "Recall",
        {
            **SELDOM, "num_envs": 3, "buffer_size": 420, "learning_starts": 90, "sequence_length": 6, "burn_in": 3,
            "n_step": 3, "recurrent_hidden_size": 8, "net.hidden": [8, 8], "batch_size": 4,
        },
        [("update", 1), ("update", 201), ("step", 5), ("step", 303)],
    ),
    "dqn-gru": (
        "DQN", "Recall",
        {
            **SELDOM, "num_envs": 3, "buffer_size": 420, "learning_starts": 90, "sequence_length": 6, "burn_in": 3,
            "n_step": 3, "memory": "gru:units=8", "net.hidden": [8, 8], "batch_size": 24, "priority.alpha": 0.6,
        },
        [("update", 1), ("update", 201), ("step", 303)],
    ),
    "rainbow-gru": (
        "C51", "Masked",
        {
            **SELDOM, "num_envs": 3, "buffer_size": 420, "learning_starts": 90, "sequence_length": 6, "burn_in": 3,
            "n_step": 3, "memory": "gru:units=8", "net.hidden": [8, 8], "batch_size": 24, "priority.alpha": 0.6,
            "noisy": "factorized", "double": True, "n_atoms": 7,
        },
        [("update", 1), ("step", 303)],
    ),
    "iqn-lstm-decoupled-inline": (
        "IQN", "Recall",
        {
            **SELDOM, "runner": "decoupled", "inline": True, "actors": 2, "num_envs": 2, "buffer_size": 420,
            "learning_starts": 90, "sequence_length": 6, "burn_in": 3, "memory": "lstm:units=8", "net.hidden": [8, 8],
            "batch_size": 24, "softmax_temperature": 0.5,
        },
        [("update", 101), ("step", 303)],
    ),
    "r2d2-decoupled-inline": (
        "R2D2", "Masked",
        {
            **SELDOM, "runner": "decoupled", "inline": True, "actors": 2, "num_envs": 2, "buffer_size": 420,
            "learning_starts": 90, "sequence_length": 6, "burn_in": 0, "sequence_period": 4, "recurrent_cell": "gru",
            "recurrent_hidden_size": 8, "net.hidden": [8], "batch_size": 4, "n_step": 1,
        },
        [("update", 202), ("step", 101)],
    ),
    "trpo": (
        "TRPO", "Masked", {"num_envs": 2, "n_steps": 48, "batch_size": 16, "sub_sampling_factor": 2},
        [("update", 3), ("step", 301)],
    ),
    "vpg": ("VPG", "Chain", {"num_envs": 3, "n_steps": 60}, [("update", 1), ("update", 9), ("step", 151)]),
    "vac": ("VAC", "Continuous", {"num_envs": 3, "n_steps": 1}, [("update", 202), ("step", 201)]),
    "vqn": ("VQN", "Masked", {"num_envs": 3, "anneal_lr": True}, [("update", 201), ("step", 202)]),
    "pqn": ("PQN", "Masked", {"num_envs": 3, "n_steps": 8, "batch_size": 12}, [("update", 20), ("step", 202)]),
    "vsarsa": (
        "VSarsa", "Masked", {"num_envs": 3, "noisy": "factorized"},
        [("update", 1), ("update", 201), ("step", 2), ("step", 202)],
    ),
    "nstep-q-inline": (
        "NStepQ", "Chain",
        {"inline": True, "workers": 3, "num_envs": 2, "n_steps": 5, "target_update_interval": 3, "double": True},
        [("update", 1), ("update", 20), ("step", 2), ("step", 101)],
    ),
    "nstep-q-replay-inline": (
        "NStepQ", "Masked",
        {
            "inline": True, "workers": 2, "num_envs": 2, "n_steps": 5, "target_update_interval": 7, "replay_ratio": 1.5,
            "buffer_size": 60,
        },
        [("update", 9), ("update", 130), ("step", 101)],
    ),
    "nstep-q-replay-sync": (
        "NStepQ", "Chain", {"runner": "sync", "num_envs": 2, "n_steps": 5, "replay_ratio": 2.0, "buffer_size": 100},
        [("update", 10), ("update", 200), ("step", 303)],
    ),
    "ddpg": (
        "DDPG", "Continuous", {**OFF_POLICY, "num_envs": 2, "action_noise": "ornstein-uhlenbeck"},
        [("update", 6), ("step", 9)],
    ),
    "td3": (
        "TD3", "Continuous", {**OFF_POLICY, "anneal_lr": True, "buffer_storage": "disk"},
        [("update", 1), ("update", 62)],
    ),
    "sac": ("SAC", "Continuous", {**OFF_POLICY, "num_envs": 2, "n_step": 2}, [("update", 3), ("update", 62)]),
    "td3-gru-own": (
        "TD3", "Continuous",
        {
            **OFF_POLICY, "num_envs": 2, "n_step": 2, "memory": "gru:units=6", "critic_net.hidden": [7, 5],
            "sequence_length": 4, "burn_in": 2, "batch_size": 16,
        },
        [("update", 62)],
    ),
    "tqc": ("TQC", "Continuous", OFF_POLICY, [("update", 62)]),
    "crossq": ("CrossQ", "Continuous", {**OFF_POLICY, "renorm_warmup": 30}, [("update", 2), ("update", 62)]),
    # With numba, each thread computes a critic or half of the rows through all layers.
    "td3-threads": (
        "TD3", "Continuous", {**OFF_POLICY, "batch_size": 128, "net.hidden": [96, 96], "threads": 2}, [("update", 62)],
    ),
    "sac-discrete": (
        "SACDiscrete", "Masked", {k: v for k, v in OFF_POLICY.items() if k != "random_steps"}, [("update", 62)],
    ),
    "ppo-scaled": (
        "PPO", "Chain", {"num_envs": 2, "n_steps": 48, "batch_size": 16, "n_epochs": 2, **SCALED, "popart": True},
        [("update", 1), ("update", 7), ("step", 139)],
    ),
    "a2c-scaled": ("A2C", "Continuous", {"num_envs": 3, "n_steps": 4, **SCALED, "popart": True}, [("update", 50)]),
    "a3c-scaled": (
        "A3C", "Chain", {"inline": True, "workers": 3, "num_envs": 2, "n_steps": 5, **SCALED},
        [("update", 20), ("step", 101)],
    ),
    "dqn-scaled": ("DQN", "Masked", {**REPLAY, "net.normalize_obs": True}, [("update", 2), ("step", 610)]),
    "sac-scaled": ("SAC", "Continuous", {**OFF_POLICY, "num_envs": 2, "net.normalize_obs": True}, [("update", 62)]),
    "a3c-sync": ("A3C", "Chain", {"runner": "sync", "n_steps": 20}, [("step", 610)]),
    "cql": ("CQL", "Continuous", {**OFF_POLICY, "n_action_samples": 3}, [("update", 62)]),
    "iql": ("IQL", "Continuous", WITHOUT_RANDOM, [("update", 62)]),
    "cql-offline": ("CQL", "Continuous", {**OFFLINE, "n_action_samples": 3}, [("update", 62)]),
    "iql-offline": ("IQL", "Continuous", {**OFFLINE, "net.normalize_obs": True}, [("update", 1), ("update", 62)]),
    "iql-warm": ("IQL", "Continuous", {**WITHOUT_RANDOM, "dataset": RECORDED}, [("update", 62)]),
    "mappo": ("MAPPO", "Dilemma", {"num_envs": 2, "n_steps": 15, "net.hidden": [8]}, [("update", 7), ("step", 139)]),
    "independent": (
        "Independent", "Dilemma", {"num_envs": 2, "agent": ["row=dqn:learning_starts=32,batch_size=8", "column=ppo"]},
        [("update", 62), ("step", 139)],
    ),
    "self-play": (
        "SelfPlay", "Dilemma", {"num_envs": 4, "snapshot_every": 160, "swap_every": 96, "player": "ppo:n_steps=15"},
        [("update", 7), ("step", 101)],
    ),
    "per-dqn-offline": (
        "DQN", "Chain", {**OFFLINE, "priority.alpha": 0.6, "n_step": 3, "dataset": CHAIN}, [("update", 62)],
    ),
}  # fmt: skip
#: The data sets of runs that learn from one, and the environments in which random actions record them.
DATA = {RECORDED: envs.Continuous, CHAIN: envs.Chain}


def main(command: str, root: Path, words: list[str]) -> None:
    os.chdir(root)
    if command == "train":
        for name, learner in DATA.items():
            np.savez(root / name, **random_data(learner(1), 300))
    stops = [(case, what, int(mark)) for case, what, mark in (word.split("/") for word in words)]
    runs: dict[str, tuple[str, Any]] = {f"{case}-whole": (case, None) for case, _, _ in stops}
    runs |= {f"{case}-{what}-{mark}": (case, (what, mark)) for case, what, mark in stops}
    for name, (case, stop) in runs.items():
        algorithm, env, options, _ = CASES[case]
        if command == "train":
            _train(root, name, f"stopping:{algorithm}", f"stopping:{env}", {**COMMON, **options}, stop)
        else:
            _resume(root / name)


def _train(root: Path, name: str, algorithm: str, env: str, options: dict[str, Any], stop: Any) -> None:
    Stop.at(*(stop or ("never", 0)))
    try:
        train(algorithm, env, options, out=root, name=name, hooks=False)
    except Interrupted:
        assert stop is not None
        _, components, _, _ = Checkpoints(root / name / "checkpoints").load(("step",))
        (root / name / "stopped.json").write_text(json.dumps(_unfinished(components)))
        return
    assert stop is None, f"{name} ran to its end"


def _resume(path: Path) -> None:
    Stop.at("never", 0)
    run = Run(RunDirectory.open(path))
    if run.status == "interrupted":
        resume(run, hooks=False)
    (path / "next.json").write_text(json.dumps(_next_actions(run)))


def _unfinished(components: dict[str, Any]) -> dict[str, int]:
    """Return the unfinished work in the buffer of a stopped run."""
    buffer = components["workers"]["all"][0]["buffer"] if "workers" in components else components["buffer"]
    return {name: buffer[name] for name in ("position", "owed") if name in buffer}


def _next_actions(run: Run) -> list[list[float]]:
    """Return the actions of the run (of its first worker) in the next five vector steps."""
    plan = with_dataset(plan_of(run))
    if plan.options.offline:
        return []
    set_torch(1)
    runner: Any = build(plan, Clock(plan.options.total_timesteps))
    _, components, _, _ = Checkpoints(run.directory.checkpoints_path).load(("final",))
    runner.load_state_dict(components)
    firsts = {"sync": lambda: runner.actor, "async": lambda: runner.workers[0].actor}
    actor = firsts.get(plan.runner, lambda: runner.fleet.actors[0])()
    actions = [actor.step().action.ravel().tolist() for _ in range(5)]
    runner.close()
    return actions


if __name__ == "__main__":
    import stopping  # the module that the runs import and share counters with; this one is `__main__`

    stopping.main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
