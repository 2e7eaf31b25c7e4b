"""`EnvWorkers`: the environments of one actor in several processes; each steps several of them.

They use one block of shared memory, and one message per worker and step in each direction. A message takes as
long as a step of many environments, so each worker steps several of them.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from rlplug_core.errors import BadEnv, UsageError, WorkerFailed
from rlplug_core.loop.child_process import Child, ChildLost
from rlplug_core.loop.env_block import Block
from rlplug_core.loop.env_worker import CLOSE, TURNS, EnvWorker, Part, StepEvents, WorkerEnvs
from rlplug_core.loop.plan import Plan
from rlplug_core.loop.plan_words import PlanWords
from rlplug_core.types import Array, Goals, Spec, State, Timestep, tree_map


class EnvWorkers:
    """A vector environment with the same transitions as in one process, in the same order.

    Raises:
        WorkerFailed: a worker raised, hung or died; all others are ended. RlplugError: an environment refuses.
    """

    def __init__(self, plan: Plan) -> None:
        num_envs = plan.options.num_envs
        workers = min(plan.options.env_workers, num_envs)
        self._steps = 0
        ends = [num_envs * rank // workers for rank in range(workers + 1)]
        self._rows = [slice(*pair) for pair in pairwise(ends)]
        self.spec = Spec(None, None, num_envs, plan.env)  # type: ignore[arg-type] # until a worker has sent it
        self._children = [self._start(plan, rank) for rank in range(workers)]
        with ExitStack() as failing:
            failing.callback(self._end)
            self._adopt(self._ask("make"))
            failing.pop_all()

    def _start(self, plan: Plan, rank: int) -> Child:
        rows = self._rows[rank]
        part = Part(PlanWords.of(plan), rank, rows.start, rows.stop - rows.start)
        return Child("environment worker", rank, EnvWorker, part, plan.options.worker_timeout)

    def _adopt(self, workers: list[WorkerEnvs]) -> None:
        """Store the spaces that the workers send; make the shared arrays, and the results of steps without events."""
        spec = workers[0].spec
        self.action_space = workers[0].action_space
        if spec.agents:
            raise UsageError(
                f"{spec.id} is a multi-agent environment, which steps in one process; leave out --env-workers"
            )
        if spec.device is not None:
            raise UsageError(
                f"{spec.id} gives tensors on {spec.device}, stepped in one process; leave out --env-workers"
            )
        num_envs = self.spec.num_envs
        self.spec = replace(spec, num_envs=num_envs, goals=self._goals(workers[0]))
        self._block = block = Block(self.spec)
        self._ask("attach", num_envs, block.path)
        block.unlink()
        self._false = np.zeros(num_envs, np.bool_)
        self._true = np.ones(num_envs, np.bool_)
        arrays = zip(block.obs, block.reward, strict=True)
        self._quiet = [
            Timestep.quiet(obs, reward, self._false, self._true) for obs, reward in arrays
        ]
        self._turn = 0
        self._ready = False
        self._keys: list[str] = []
        self._cached_values: dict[str, list[object]] = {}

    def _goals(self, worker: WorkerEnvs) -> Goals | None:
        """Return the goals of the first worker's environments; the worker computes their rewards."""
        if not worker.goals:
            return None
        ends = partial(self._ask_first, "goals", "terminated") if worker.goals_end else None
        return Goals(partial(self._ask_first, "goals", "reward"), ends)

    def reset(self, seed: int) -> Timestep:
        """Start every environment, from the same seed as in one process."""
        self._turn = 1 - self._turn
        self._set_ready()
        self._ask("reset", seed, self._turn)
        obs = self._block.obs[self._turn]
        reward = self._block.reward[self._turn]
        reward[:] = 0
        return Timestep.opening(obs, reward, self._true, self._false)

    def step(self, action: Array) -> Timestep:
        """Step every environment with its action [N, ...]."""
        if not self._ready or action.shape != self._block.action.shape:
            mismatch = f"the actions have shape {action.shape}, expected {self._block.action.shape}"
            raise BadEnv(
                f"{self.spec.id}: {mismatch if self._ready else 'step was called before reset'}"
            )
        self._turn = turn = 1 - self._turn
        self._block.action[...] = action
        self._steps += 1
        for child in self._children:
            self._send(child, TURNS[turn])
        messages = [self._receive(child) for child in self._children]
        return self._read_events(messages) if any(messages) else self._quiet[turn]

    def _read_events(self, messages: list[Any]) -> Timestep:
        """Return the result of a step if workers sent more than their arrays."""
        answers: list[Any] = [message or ([], None) for message in messages]
        for number, key in enumerate(self._keys):
            self._cached_values[key] = [
                value for columns, _ in answers for value in columns[number]
            ]
        events = [
            (rows, event)
            for rows, (_, event) in zip(self._rows, answers, strict=True)
            if event is not None
        ]
        quiet = self._quiet[self._turn]
        return self._end_timestep(quiet, events) if events else quiet

    def _end_timestep(
        self,
        quiet: Timestep,
        events: list[tuple[slice, StepEvents]],
    ) -> Timestep:
        obs = final = quiet.obs
        if any(event.has_final for _, event in events):
            final = tree_map(np.copy, obs)
        now = replace(
            quiet, final_obs=final, episodes=[], ended=any(event.ended for _, event in events)
        )
        now.terminated, now.truncated, now.is_first = np.zeros((3, self.spec.num_envs), np.bool_)
        now.valid = self._true.copy()
        for rows, event in events:
            now.terminated[rows], now.truncated[rows] = event.terminated, event.truncated
            now.is_first[rows], now.valid[rows] = event.is_first, event.valid
            now.episodes = [
                *now.episodes,
                *(replace(episode, row=episode.row + rows.start) for episode in event.episodes),
            ]
            if event.has_final:
                tree_map(
                    lambda target, source, rows=rows: np.copyto(target[rows], source[rows]),
                    final,
                    self._block.final,
                )
        now.count = int(np.count_nonzero(now.valid))
        return now

    def inside(self, wrap: Callable[[object], object]) -> EnvWorkers:
        """Return the same environments, each wrapped by `wrap`; it replaces this one before the first reset."""
        try:
            pickle.dumps(wrap)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise UsageError(
                f"{wrap} cannot be sent to other processes; leave --env-workers at 1"
            ) from error
        self._adopt(self._ask("inside", wrap))
        return self

    def configure(self, settings: Mapping[str, object]) -> None:
        """Set attributes, in each environment from its next reset on."""
        self._ask("configure", dict(settings))

    def limit(self, steps: int) -> None:
        """Truncate after `steps` steps, or earlier if the environments do so already."""
        self._ask("limit", steps)

    def info(self, key: str) -> list[Any]:
        """Return the value of `key` in the last step's `info` for each row; None if it has no such key."""
        if key not in self._cached_values:
            self._cached_values[key] = [
                value for column in self._ask("subscribe", key) for value in column
            ]
            self._keys.append(key)
        return self._cached_values[key]

    def info_names(self) -> list[str]:
        """Return the keys of the last step's `info`, of all rows together."""
        return sorted({name for names in self._ask("info_names") for name in names})

    def translate(self, action: Array) -> object:
        """Return canonical actions [B, ...] in the form of the environments."""
        return self._ask_first("translate", action)

    def state_dict(self) -> State:
        """Return the states of all workers; only the reason if one is inexact."""
        states = self._ask("state")
        for state in states:
            if "inexact" in state["env"]:
                return {"inexact": state["env"]["inexact"]}
        return {"parts": states}

    def load_state_dict(self, state: State) -> None:
        """Continue from a state of `state_dict`, with as many workers."""
        if "inexact" in state:
            raise BadEnv(
                f"{self.spec.id}: its state was not saved ({state['inexact']}); reset it instead"
            )
        states = state["parts"]
        if len(states) != len(self._children):
            raise BadEnv(
                f"{self.spec.id}: its state is that of {len(states)} workers; use --env-workers {len(states)}"
            )
        self._set_ready()
        self._ask_each("load", [(worker_state,) for worker_state in states])

    def close(self) -> None:
        """Let the workers close their environments; those that do not are killed."""
        for child in self._children:
            with suppress(OSError):  # it is gone
                child.connection.send_bytes(CLOSE)
            child.done = True
        self._end()

    def _end(self) -> None:
        for child in self._children:
            child.end()

    def _set_ready(self) -> None:
        """Let workers be silent for no longer than `worker_timeout` from now on."""
        self._ready = True
        for child in self._children:
            child.ready = True

    def _ask(self, name: str, *arguments: object) -> list[Any]:
        """Call a method of every worker; return the results."""
        return self._ask_each(name, [arguments] * len(self._children))

    def _ask_first(self, name: str, *arguments: object) -> Any:
        """Call a method of the first worker; return the result."""
        self._send(self._children[0], pickle.dumps((name, *arguments), pickle.HIGHEST_PROTOCOL))
        return self._result(self._children[0])

    def _ask_each(
        self,
        name: str,
        arguments: list[tuple[object, ...]],
    ) -> list[object]:
        """Call a method of every worker, each with its own arguments; return the results."""
        for child, call in zip(self._children, arguments, strict=True):
            self._send(child, pickle.dumps((name, *call), pickle.HIGHEST_PROTOCOL))
        return [self._result(child) for child in self._children]

    def _result(self, child: Child) -> object:
        kind, value = self._receive(child)
        if kind == "refused":
            self.close()
            raise value
        return value

    def _send(self, child: Child, message: bytes) -> None:
        try:
            child.send_bytes(message)
        except ChildLost as lost:
            raise self._fail(child, lost.how) from None

    def _receive(self, child: Child) -> Any:
        """Return a worker's message, None for a step without events; an exception in it ends the run."""
        try:
            child.wait()
            message = child.receive_bytes()
        except ChildLost as lost:
            raise self._fail(child, f"{lost.how}{lost.advice}") from None
        if not message:
            return None
        content = pickle.loads(message)
        if content[0] in ("error", "not finite"):
            reason, details = content[1]
            raise self._fail(child, f"raised {reason}", details)
        return content

    def _fail(
        self,
        child: Child,
        how: str,
        details: str = "",
    ) -> WorkerFailed:
        """Return an error with the worker and the cause, after ending all workers."""
        rows = self._rows[child.rank]
        is_single = rows.stop - rows.start == 1
        where = (
            f"environment {rows.start}"
            if is_single
            else f"environments {rows.start} to {rows.stop - 1}"
        )
        moment = (
            f"in step {self._steps}"
            if self._steps
            else "before the first step, while it is made and tested,"
        )
        sentence = f"{self.spec.id}: {moment} the worker of {where} {how}"
        self._end()
        return WorkerFailed(sentence, details or sentence)
