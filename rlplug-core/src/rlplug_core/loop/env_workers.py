"""`EnvWorkers`: the environments of one actor in several processes; each steps several of them.

They use one block of shared memory, and one message per worker and step in each direction. A message takes as
long as a step of many environments, so each worker steps several of them.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from rlplug_core.errors import BadEnv, UsageError, WorkerFailed
from rlplug_core.loop.async_processes import GLANCE, STARTUP, Remote
from rlplug_core.loop.env_block import Block
from rlplug_core.loop.env_worker import CLOSE, TURNS, Ended, Part, WorkerEnvs, serve
from rlplug_core.loop.plan import Plan
from rlplug_core.types import Array, Goals, Spec, State, Timestep, tree_map


class EnvWorkers:
    """A vector environment with the same transitions as in one process, in the same order.

    Raises:
        WorkerFailed: a worker raised, hung or died; all others are ended. RlplugError: an environment refuses.
    """

    def __init__(self, plan: Plan) -> None:
        num_envs = plan.options.num_envs
        workers = min(plan.options.env_workers, num_envs)
        self._timeout = plan.options.worker_timeout
        self._steps = 0
        ends = [num_envs * rank // workers for rank in range(workers + 1)]
        self._rows = [slice(*pair) for pair in pairwise(ends)]
        parts = [_part(plan, rank, rows) for rank, rows in enumerate(self._rows)]
        self.spec = Spec(None, None, num_envs, plan.env)  # type: ignore[arg-type] # until a worker has sent it
        self._remotes = [Remote(part.rank, serve, part) for part in parts]
        self._startup = max(STARTUP, self._timeout)
        with ExitStack() as failing:
            failing.callback(self._end)
            self._adopt(self._ask("make", limit=self._startup))
            failing.pop_all()

    def _adopt(self, workers: list[WorkerEnvs]) -> None:
        """Store the spaces that the workers send, and allocate memory for them."""
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
        self._ready = True
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
        for remote in self._remotes:
            self._send(remote, TURNS[turn])
        messages = [self._receive(remote, self._timeout) for remote in self._remotes]
        return self._read_events(messages) if any(messages) else self._quiet[turn]

    def _read_events(self, messages: list[bytes]) -> Timestep:
        """Return the result of a step if workers sent more than their arrays."""
        answers = [pickle.loads(message) if message else ([], None) for message in messages]
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
        events: list[tuple[slice, Ended]],
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
        self._adopt(self._ask("inside", wrap, limit=self._startup))
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
                value for column in self._ask("tell", key) for value in column
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
        parts = state["parts"]
        if len(parts) != len(self._remotes):
            raise BadEnv(
                f"{self.spec.id}: its state is that of {len(parts)} workers; use --env-workers {len(parts)}"
            )
        self._ready = True
        self._ask_each("load", [(part,) for part in parts], self._timeout)

    def close(self) -> None:
        """Let the workers close their environments; those that do not are killed."""
        for remote in self._remotes:
            with suppress(OSError):  # it is gone
                remote.connection.send_bytes(CLOSE)
            remote.done = True
        self._end()

    def _end(self) -> None:
        for remote in self._remotes:
            remote.end()

    def _ask(
        self,
        name: str,
        *arguments: object,
        limit: float = 0.0,
    ) -> list[Any]:
        """Send every worker the same request, and return their answers."""
        return self._ask_each(name, [arguments] * len(self._remotes), limit or self._timeout)

    def _ask_first(self, name: str, *arguments: object) -> Any:
        """Send the first worker a request, and return its answer."""
        self._send(self._remotes[0], pickle.dumps((name, *arguments), pickle.HIGHEST_PROTOCOL))
        return self._value(self._remotes[0], self._timeout)

    def _ask_each(
        self,
        name: str,
        arguments: list[tuple[object, ...]],
        limit: float,
    ) -> list[object]:
        for remote, call in zip(self._remotes, arguments, strict=True):
            self._send(remote, pickle.dumps((name, *call), pickle.HIGHEST_PROTOCOL))
        return [self._value(remote, limit) for remote in self._remotes]

    def _value(self, remote: Remote, limit: float) -> object:
        kind, value = pickle.loads(self._receive(remote, limit))
        if kind == "refused":
            self.close()
            raise value
        return value

    def _send(self, remote: Remote, message: bytes) -> None:
        try:
            remote.connection.send_bytes(message)
        except OSError:
            raise self._fail(remote, remote.describe_exit()) from None

    def _receive(self, remote: Remote, limit: float) -> bytes:
        """Return a worker's answer; an exception in it ends the run."""
        remote.silent = 0.0
        now = time.monotonic()
        while not remote.connection.poll(GLANCE):
            # The process may have ended while its children hold its pipe open.
            if remote.process.exitcode is not None and not remote.connection.poll():
                raise self._fail(remote, remote.describe_exit())
            before = now
            now = time.monotonic()
            if remote.is_overdue(now - before, limit):
                raise self._fail(
                    remote, f"gave no answer for {limit:g} s (--worker-timeout waits longer)"
                )
        try:
            answer = remote.connection.recv_bytes()
        except (EOFError, OSError):
            raise self._fail(remote, remote.describe_exit()) from None
        return self._check_error(remote, answer)

    def _check_error(self, remote: Remote, answer: bytes) -> bytes:
        if answer:
            content = pickle.loads(answer)
            if content[0] in ("error", "not finite"):
                reason, details = content[1]
                raise self._fail(remote, f"raised {reason}", details)
        return answer

    def _fail(
        self,
        remote: Remote,
        how: str,
        details: str = "",
    ) -> WorkerFailed:
        """Return an error with the worker and the cause, after ending all workers."""
        rows = self._rows[remote.rank]
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


def _part(plan: Plan, rank: int, rows: slice) -> Part:
    """Return the input of the worker `rank`, which steps these rows."""
    return Part(
        algorithm=plan.algorithm,
        env=plan.env,
        values=plan.flat,
        rank=rank,
        first=rows.start,
        num_envs=rows.stop - rows.start,
    )
