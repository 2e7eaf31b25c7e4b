"""Measure the training speed of a script of CleanRL or LeanRL, with its own loop, on gymnasium 1.4.

    python bench/peers/on_gpu.py FOLDER/leanrl/SCRIPT.py ENV STEPS [--mark N] [--seconds S] [--cpu] [its own flags]

FOLDER/cleanrl holds the scripts of the wheel of CleanRL 1.2.0, FOLDER/leanrl those of
https://github.com/pytorch-labs/LeanRL at commit 20bfe6794a: `dqn`, `ppo_continuous_action`, `sac_continuous_action` and
`td3_continuous_action`. They need tensordict (0.15), torchrl (0.14), tyro, tqdm, tensorboard and stable-baselines3.

A script runs unchanged except for `PATCHES`, which newer versions of its libraries require. The clock starts before env
step MARK. It stops before step STEPS, or at the end of the first whole period (an iteration of PPO, the steps between
two updates) after S seconds; it waits for the device both times. The script keeps its total steps and its schedules.
One line of JSON goes to stdout, the output of the script goes to stderr.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import linecache
import math
import os
import sys
import tempfile
import time
import types
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch

# gymnasium 1: the third argument is required; None keeps the space of the wrapped environment.
CLIP = (
    "env = gym.wrappers.TransformObservation(env, lambda obs: np.clip(obs, -10, 10))",
    "env = gym.wrappers.TransformObservation(env, lambda obs: np.clip(obs, -10, 10), None)",
)
# SAC and TD3 of CleanRL 1.2.0 are older than gymnasium; these lines are from its later versions.
OLD_GYM = (
    ("import gym\n", "import gymnasium as gym\n"),
    ("        env.seed(seed)\n", ""),
    ("obs = envs.reset()\n", "obs, _ = envs.reset(seed=args.seed)\n"),
    (
        "next_obs, rewards, dones, infos = envs.step(actions)\n",
        "next_obs, rewards, terminations, truncations, infos = envs.step(actions)\n"
        "        dones = terminations | truncations\n",
    ),
    ("        for info in infos:\n", '        for info in infos.get("final_info", ()):\n'),
    ('infos[idx]["terminal_observation"]', 'infos["final_observation"][idx]'),
    (
        "rb.add(obs, real_next_obs, actions, rewards, dones, infos)",
        "rb.add(obs, real_next_obs, actions, rewards, dones, "
        '[{"TimeLimit.truncated": t} for t in truncations & ~terminations])',
    ),
)


def tensors_stay(*modules: str) -> tuple[tuple[str, str], ...]:
    """Return patches that keep tensors as tensors; newer tensordicts make them parameters in `to_module`."""
    return tuple(
        (f".to_module({name})", f".to_module({name}, preserve_module_state=False)")
        for name in modules
    )


#: Texts of each script and their replacements; each text must occur.
PATCHES: dict[str, tuple[tuple[str, str], ...]] = {
    "cleanrl/dqn.py": (),
    "cleanrl/ppo_continuous_action.py": (CLIP,),
    "cleanrl/sac_continuous_action.py": OLD_GYM,
    "cleanrl/td3_continuous_action.py": OLD_GYM,
    "leanrl/dqn_torchcompile.py": tensors_stay("q_network_detach", "target_network"),
    "leanrl/ppo_continuous_action_torchcompile.py": (CLIP, *tensors_stay("agent_inference")),
    "leanrl/sac_continuous_action_torchcompile.py": (
        *tensors_stay("actor_detach", "qnet"),
        # newer tensordicts refuse outputs without a name, older ones dropped them
        (
            "TensorDictModule(actor_detach.get_action,",
            "TensorDictModule(lambda obs: actor_detach.get_action(obs)[0],",
        ),
    ),
    "leanrl/td3_continuous_action_torchcompile.py": (
        *tensors_stay("actor_detach", "qnet", "target_actor"),
        # the original fails on an empty array if an episode ends without truncation
        ('if "final_observation" in infos:', "if truncations.any():"),
    ),
}


class DoneError(BaseException):
    """Ends the script at its last step; it is not an `Exception`, so that no script catches it."""


class Clock:
    """Counts vector steps, and records the times of the first and the last measured step."""

    def __init__(
        self, script: types.ModuleType, name: str, steps: int, mark: float | None, seconds: float
    ) -> None:
        self.script = script
        self.name = name
        self.steps = steps
        self.mark = mark
        self.seconds = seconds
        self.made = time.perf_counter()
        self.calls = 0
        self.envs = 0
        self.start = 0.0
        self.end = 0.0
        self.first = -1
        self.last = -1
        self.period = 1
        self.measured = 0

    def plan(self, num_envs: int) -> None:
        """Compute the first and the last step from the arguments of the script."""
        args = self.script.args
        self.envs = num_envs
        ppo = "ppo" in self.name
        self.period = (
            args.num_steps
            if ppo
            else getattr(args, "train_frequency", getattr(args, "policy_frequency", 1))
        )
        usual = 5 * num_envs * args.num_steps if ppo else int(args.learning_starts) + 2000
        self.first, self.last = (
            math.ceil(steps / num_envs / self.period) * self.period
            for steps in (self.mark or usual, self.steps)
        )
        if not self.first < self.last <= int(args.total_timesteps) // num_envs:
            sys.exit(
                f"the mark, STEPS and --total-timesteps must increase: {self.first}, {self.last}"
            )

    def tick(self, num_envs: int) -> None:
        if self.first < 0:
            self.plan(num_envs)
        since = self.calls - self.first
        if since == 0:
            self.start = self.now()
        over = self.calls >= self.last or time.perf_counter() - self.start >= self.seconds
        if since > 0 and since % self.period == 0 and over:
            self.end = self.now()
            self.measured = since * num_envs
            raise DoneError
        self.calls += 1

    def now(self) -> float:
        if self.script.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def report(self, env: str, flags: list[str]) -> dict[str, object]:
        seconds = self.end - self.start
        return {
            "script": self.name,
            "env": env,
            "flags": " ".join(flags),
            "steps": self.measured,
            "steps_per_second": round(self.measured / seconds, 1),
            "seconds": round(seconds, 2),
            "before": round(self.start - self.made, 1),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "device": torch.cuda.get_device_name() if self.script.device.type == "cuda" else "cpu",
        }


def vectors(clock: Clock) -> type[gym.vector.SyncVectorEnv]:
    """Return a vector class that calls the clock, resets in the same step, and reports ends like gymnasium 0.29."""

    class Timed(gym.vector.SyncVectorEnv):
        def __init__(self, env_fns: Any, **named: Any) -> None:
            named.setdefault("autoreset_mode", gym.vector.AutoresetMode.SAME_STEP)
            super().__init__(env_fns, **named)

        def step(self, actions: Any) -> Any:
            clock.tick(self.num_envs)
            *step, infos = super().step(actions)
            if "final_info" in infos:
                episode = infos["final_info"]["episode"]
                ended = np.flatnonzero(infos["_final_info"])
                each = [
                    {"r": np.float32(episode["r"][i]), "l": np.int32(episode["l"][i])}
                    for i in ended
                ]
                final = [{"episode": one} for one in each]
                infos = {"final_observation": infos["final_obs"], "final_info": final}
            return *step, infos

    return Timed


def install_empty_modules() -> None:
    """Replace imports of a script that are not installed, or that would report to a server, with empty modules."""

    def nothing(*given: object, **named: object) -> None: ...

    def module(name: str, **parts: object) -> types.ModuleType:
        made = sys.modules[name] = types.ModuleType(name)
        vars(made).update(parts)
        return made

    module("wandb", init=nothing, log=nothing, finish=nothing, run=None)
    if importlib.util.find_spec("imageio") is None:  # MuJoCo's viewer imports it
        module("imageio")
    if importlib.util.find_spec("distutils") is None:  # removed in Python 3.12
        yes = ("y", "yes", "t", "true", "on", "1")
        module(
            "distutils",
            util=module("distutils.util", strtobool=lambda text: int(text.lower() in yes)),
        )


def take_option(rest: list[str], name: str) -> float | None:
    """Take an option of this script out of the arguments."""
    if name not in rest:
        return None
    place = rest.index(name)
    _ = rest.pop(place)
    value = rest.pop(place)
    return float(value)


def main() -> None:
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    file, env, steps, *flags = sys.argv[1:]
    path = Path(file)
    mark = take_option(flags, "--mark")
    seconds = take_option(flags, "--seconds")
    cpu = "--cpu" in flags
    flags = [flag for flag in flags if flag != "--cpu"]
    name = f"{path.parent.name}/{path.name}"
    source = path.read_text()
    for old, new in PATCHES[name]:
        if old not in source:
            sys.exit(f"{name} lacks {old!r}")
        source = source.replace(old, new)
    install_empty_modules()
    script = types.ModuleType("__main__")
    stdout = sys.stdout
    sys.stdout = sys.stderr
    shown = str(path.with_name("patched.py"))
    script.__file__ = shown
    clock = Clock(script, name, int(steps), mark, seconds or math.inf)
    gym.vector.SyncVectorEnv = vectors(clock)
    off: list[str] = []
    if cpu:
        off = ["--no-cuda"] if path.parent.name == "leanrl" else ["--cuda", "False"]
    sys.argv = [shown, "--env-id", env, *flags, *off]
    sys.modules["__main__"] = script  # torch.compile looks up the globals of a function there
    linecache.cache[shown] = (len(source), None, source.splitlines(True), shown)
    os.chdir(tempfile.mkdtemp(prefix="peer-"))  # CleanRL writes for TensorBoard
    with contextlib.suppress(DoneError):
        exec(compile(source, shown, "exec"), vars(script))
    if not clock.measured:
        sys.exit(f"{name} ended after {clock.calls} vector steps, before the last measured step")
    print(json.dumps(clock.report(env, flags)), file=stdout, flush=True)


if __name__ == "__main__":
    main()
