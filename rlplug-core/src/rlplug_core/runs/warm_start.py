"""Start a run from another one: its weights, optimizers or replay, or the policy of an export."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlplug_core.algorithm import Algorithm
from rlplug_core.config.import_string import message_of
from rlplug_core.errors import UsageError, did_you_mean, warn
from rlplug_core.learning.targets import Target
from rlplug_core.protocols import AnyBuffer, AnyLearner, SupportsRestart
from rlplug_core.runs.checkpoint import UNFIT, Checkpoints, read
from rlplug_core.runs.evaluation import learner_state
from rlplug_core.runs.listing import find
from rlplug_core.sharing.words import is_source

#: The parts that can be loaded. If a learner has no policy network, all its weights are the policy, as those of DQN.
PARTS = ("policy", "critic", "optimizer", "buffer")


@dataclass(frozen=True)
class WarmStart:
    """Loads `parts` of the checkpoint or export at `path` into a new learner."""

    path: Path
    parts: tuple[str, ...]

    @classmethod
    def of(cls, start: str, parts: Sequence[str]) -> WarmStart:
        """Return a warm start from a run, a checkpoint or an export.

        Of a run it takes the best checkpoint, or the latest one if the parts include the buffer or the optimizers.

        Args:
            start: a path, a run's name, or a source of a shared agent.
            parts: some of `PARTS`.

        Raises:
            UsageError: the run or the part does not exist. BadCheckpoint: no checkpoint can be read.
        """
        for part in parts:
            if part not in PARTS:
                raise UsageError(
                    f"--init-parts {part}: no such part{did_you_mean(part, PARTS)} ({', '.join(PARTS)})"
                )
        location = find(start) if is_source(start) else Path(start)
        if (location / "policy.json").is_file() or (location / "manifest.json").is_file():
            return cls(location.absolute(), tuple(parts))
        if location.parent.name == "checkpoints" and not location.exists():
            raise UsageError(
                f"--init {start}: this checkpoint is gone, because later ones of its run replaced it; "
                "name the run, or an export of it, which stays"
            )
        training_parts = {"buffer", "optimizer"} & {*parts}
        checkpoints = Checkpoints(find(start) / "checkpoints")
        return cls(
            learner_state(checkpoints, "latest" if training_parts else "best")[0].path.absolute(),
            tuple(parts),
        )

    def __call__(self, learner: AnyLearner) -> None:
        """Load the weights into a new learner.

        Raises:
            UsageError: a shape or a name differs; the message names it.
        """
        if not isinstance(learner, Algorithm):
            raise UsageError(
                f"--init needs a learner that builds on Algorithm, which {type(learner).__name__} does not"
            )
        if (self.path / "policy.json").is_file():
            self._load_export(learner)
            return
        saved = read(self.path, "learner")[0]["learner"]
        if {"policy", "critic"} & {*self.parts}:
            self._copy(self._choose(learner.state_dict()), self._choose(saved))
        if "optimizer" in self.parts:
            if learner.context.runner != "sync":
                raise UsageError("--init-parts optimizer and buffer work only with --runner sync")
            self._load_optimizers(learner, saved["_extra_state"]["optimizers"])

    def _choose(self, state: Mapping[str, object]) -> dict[str, Tensor]:
        """Return the tensors of a learner's state that belong to the parts."""
        tensors = {name: value for name, value in state.items() if isinstance(value, Tensor)}
        return {
            name: value for name, value in tensors.items() if part_of(name, tensors) in self.parts
        }

    def _load_optimizers(self, learner: Algorithm[Any], saved: object) -> None:
        try:
            learner.set_extra_state({**learner.get_extra_state(), "optimizers": saved})
        except UNFIT as error:  # another update rule, or tensors of other sizes
            raise UsageError(
                f"the optimizers at {self.path} do not fit: {message_of(error)}; use the same algorithm, network and "
                "optimizer, or leave the optimizer out of --init-parts"
            ) from error

    def warn_of_wrappers(self) -> None:
        """Warn if wrappers of the other run have learned state, which is not loaded."""
        if {"policy", "critic"} & {*self.parts} and (self.path / "wrappers.json").is_file():
            warn(
                f"the wrappers of {self.path} have learned state, such as running means, which --init does not load: "
                "the wrappers of this run start without it, so the weights get other inputs at first; the state of "
                "--net.normalize-obs is loaded"
            )

    def buffer(self) -> Mapping[str, object] | None:
        """Return the state of the buffer if it is among the parts, else None.

        Raises:
            UsageError: this checkpoint has no buffer.
        """
        if "buffer" not in self.parts:
            return None
        if not (self.path / "buffer.json").is_file():
            raise UsageError(
                f"{self.path} holds no buffer; name a run, or a checkpoint of the kind step or final"
            )
        state: Mapping[str, object] = read(self.path, "buffer")[0]["buffer"]
        if isinstance(state.get("data"), str) or "recorded" in state:
            raise UsageError(
                f"the buffer at {self.path} is filled from a data set; name that one with --dataset"
            )
        return state

    def check(
        self,
        buffer: Mapping[str, Any],
        empty: Mapping[str, Any],
        num_envs: int,
    ) -> None:
        """Refuse the state of a buffer that was made with other options than this run's.

        Args:
            buffer: the state to load.
            empty: the state of this run's empty buffer.
            num_envs: number of environments of this run.

        Raises:
            UsageError: they differ; the message names them.
        """
        settings = {"num_envs": num_envs, **empty.get("made", {})}
        saved_settings = {**_num_envs_of(buffer), **buffer.get("made", {})}
        # Older checkpoints do not have "made".
        names = [*settings, *saved_settings] if "made" in buffer else saved_settings
        differences = [
            f"{name} is {there} there and {here} here"
            for name in dict.fromkeys(names)
            if (there := saved_settings.get(name, "none")) != (here := settings.get(name, "none"))
        ]
        if differences:
            raise UsageError(
                f"the buffer at {self.path} does not fit: {'; '.join(differences)}; give the same numbers, or leave "
                "the buffer out of --init-parts"
            )

    def _load_export(self, learner: Algorithm[Any]) -> None:
        from rlplug_core.export.bundle import read as read_export
        from rlplug_core.export.flat import Flat
        from rlplug_core.export.greedy import greedy

        if self.parts != ("policy",):
            raise UsageError(
                f"{self.path} is an export, which has only a policy; add --init-parts policy"
            )
        flat = Flat(greedy(learner.agent()), learner.spec.obs)
        self._copy(dict(flat.state_dict()), read_export(self.path).program.tensors)
        for target in targets_of(learner):
            target.network.load_state_dict(target.online.state_dict())

    def _copy(
        self,
        current: Mapping[str, Tensor],
        saved: Mapping[str, Tensor],
    ) -> None:
        if differences := [
            sentence
            for name in {**current, **saved}
            if (sentence := _difference(name, current, saved))
        ]:
            more = f", and {len(differences) - 3} more" if len(differences) > 3 else ""
            raise UsageError(
                f"the weights at {self.path} do not fit: {'; '.join(differences[:3])}{more}; use the same algorithm, "
                "network and spaces, or load fewer parts with --init-parts"
            )
        if not current:
            raise UsageError(f"{self.path} has nothing for this learner's {', '.join(self.parts)}")
        with torch.no_grad():
            for name, tensor in current.items():
                tensor.copy_(saved[name])


def targets_of(learner: Algorithm[Any]) -> list[Target]:
    """Return the target networks of a learner: its attributes of type `Target`, also in lists."""
    values = [
        item
        for value in vars(learner).values()
        for item in (value if isinstance(value, list) else [value])
    ]
    return [item for item in values if isinstance(item, Target)]


def part_of(name: str, names: Iterable[str]) -> str:
    """Return the part of a learner that a tensor belongs to; everything but the policy is the critic's."""
    no_policy = not any("policy" in tensor_name.partition(".")[0] for tensor_name in names)
    return "policy" if no_policy or "policy" in name.partition(".")[0] else "critic"


def _difference(
    name: str,
    current: Mapping[str, Tensor],
    saved: Mapping[str, Tensor],
) -> str:
    if name not in saved:
        return f"there is no {name}"
    if name not in current:
        return f"{name} is there and not here"
    saved_shape = saved[name].shape
    shape = current[name].shape
    return "" if saved_shape == shape else f"{name} is {[*saved_shape]} there and {[*shape]} here"


def _num_envs_of(buffer: Mapping[str, object]) -> dict[str, int]:
    """Return the number of environments in a replay buffer's state as an option; {} if it has none."""
    data = buffer.get("data")
    if not isinstance(data, Mapping) or "fields" not in data:
        return {}
    return {"num_envs": int(data["fields"]["reward"].shape[1])}


def load_buffer(
    buffer: AnyBuffer,
    state: Mapping[str, object],
    source: str,
) -> None:
    """Load the buffer of another run, `source`.

    Raises:
        UsageError: its arrays have other shapes than this run's.
    """
    try:
        buffer.load_state_dict(dict(state))
        if isinstance(buffer, SupportsRestart):
            buffer.restart()  # the next steps do not follow the other run's last ones
    except (ValueError, KeyError, RuntimeError, IndexError) as error:  # shapes differ
        raise UsageError(f"the buffer of {source} does not fit this run: {error}") from error
