"""Run a process that steps some of the environments of a run."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from rlplug_core.errors import RlplugError, UsageError
from rlplug_core.loop.child_process import post
from rlplug_core.loop.env_block import Block
from rlplug_core.loop.plan_words import PlanWords
from rlplug_core.plugins.env_base import complete
from rlplug_core.protocols import Env, SupportsPart
from rlplug_core.seeds import Seeds, global_state, load_global_state
from rlplug_core.types import Array, Episode, Spec, State, Timestep, tree_map

#: The requests for a step into the first or the second set of arrays; every other message is a pickled call.
TURNS = (b"0", b"1")
#: The message that ends a worker.
CLOSE = b"2"


@dataclass(frozen=True)
class Part:
    """A part of the environments of a run: `num_envs` rows, from the row `first`."""

    words: PlanWords
    rank: int
    first: int
    num_envs: int


@dataclass(frozen=True)
class WorkerEnvs:
    """A worker's description of its environments; `goals_end` means that a reached goal ends the task."""

    spec: Spec
    action_space: Any
    goals: bool
    goals_end: bool


@dataclass(frozen=True)
class StepEvents:
    """The rest of a step's result, sent if an episode ended or started; arrays of one worker's environments."""

    terminated: Array
    truncated: Array
    is_first: Array
    valid: Array
    episodes: list[Episode]
    ended: bool
    has_final: bool


class EnvWorker:
    """The environments of one worker process. Its messages are requests for steps, and calls of its methods."""

    def __init__(self, part: Part, parent: Connection) -> None:
        self.part = part
        self.parent = parent
        self.rows = slice(part.first, part.first + part.num_envs)
        self.keys: list[str] = []
        self.env: Env
        self.block: Block

    def run(self) -> None:
        while True:
            message = self.parent.recv_bytes()
            if message == CLOSE:
                return self.env.close()
            if message in TURNS:
                self.parent.send_bytes(self.step(TURNS.index(message)))
                continue
            name, *arguments = pickle.loads(message)
            try:
                post(self.parent, ("done", getattr(self, name)(*arguments)))
            except RlplugError as error:
                post(self.parent, ("refused", error))

    def make(self) -> WorkerEnvs:
        plan = self.part.words.start("env-worker", self.part.rank)
        env = plan.bare_env(self.part.num_envs)
        if complete(env).threads:
            raise UsageError(f"{env.spec.id} steps in its own threads; leave out --env-workers")
        return self._set_env(env)

    def inside(self, wrap: Callable[[Any], Any]) -> WorkerEnvs:
        return self._set_env(complete(self.env).inside(wrap))

    def _set_env(self, env: Env) -> WorkerEnvs:
        self.env = env
        if isinstance(env, SupportsPart):
            env.part(self.part.first)
        goals = env.spec.goals
        return WorkerEnvs(
            # Functions of goals may hold an environment that cannot be pickled; they are called here.
            spec=replace(env.spec, goals=None),
            action_space=complete(env).action_space,
            goals=goals is not None,
            goals_end=goals is not None and goals.terminated is not None,
        )

    def goals(self, field: str, achieved: Array, desired: Array) -> Array:
        """Return the field `reward` or `terminated` of `Goals` for achieved and desired goals [B, ...]."""
        goals = self.env.spec.goals
        assert goals is not None
        function = goals.reward if field == "reward" else goals.terminated
        assert function is not None
        return function(achieved, desired)

    def attach(self, num_envs: int, path: str) -> None:
        self.block = Block(replace(self.env.spec, num_envs=num_envs), path)
        self.final = tree_map(lambda array: array[self.rows], self.block.final)
        self.obs = [tree_map(lambda array: array[self.rows], obs) for obs in self.block.obs]
        self.reward = [reward[self.rows] for reward in self.block.reward]
        self.action = self.block.action[self.rows]

    def limit(self, steps: int) -> None:
        complete(self.env).limit(steps)

    def configure(self, settings: dict[str, object]) -> None:
        complete(self.env).configure(settings)

    def reset(self, seed: int, turn: int) -> None:
        # An environment that knows its part seeds its rows as in one process.
        if not isinstance(self.env, SupportsPart) and self.part.rank:
            seed = Seeds(seed).child("env-worker", self.part.rank).integer()
        tree_map(np.copyto, self.obs[turn], self.env.reset(seed).obs)

    def step(self, turn: int) -> bytes:
        now = self.env.step(self.action.copy())  # a copy, because an environment may keep the array
        tree_map(np.copyto, self.obs[turn], now.obs)
        self.reward[turn][:] = now.reward
        values = [self.read_info(key) for key in self.keys]
        if not now.ended and now.count == self.part.num_envs and not np.count_nonzero(now.is_first):
            return pickle.dumps((values, None)) if values else b""
        return pickle.dumps((values, self._step_events(now)))

    def _step_events(self, now: Timestep) -> StepEvents:
        has_final = now.final_obs is not now.obs
        if has_final:
            tree_map(np.copyto, self.final, now.final_obs)
        return StepEvents(
            terminated=now.terminated,
            truncated=now.truncated,
            is_first=now.is_first,
            valid=now.valid,
            episodes=list(now.episodes),
            ended=now.ended,
            has_final=has_final,
        )

    def subscribe(self, key: str) -> list[Any]:
        """Return the values of a key in the last step's `info`, and send them with every step from now on."""
        self.keys.append(key)
        return self.read_info(key)

    def read_info(self, key: str) -> list[Any]:
        return complete(self.env).info(key)

    def info_names(self) -> list[str]:
        return complete(self.env).info_names()

    def translate(self, action: Array) -> object:
        return complete(self.env).translate(action)

    def state(self) -> State:
        return {"env": self.env.state_dict(), "globals": global_state()}

    def load(self, state: State) -> None:
        self.env.load_state_dict(state["env"])
        load_global_state(state["globals"])
