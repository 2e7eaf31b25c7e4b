"""The plan of a run as words, from which other processes of the run make the plan again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rlplug_core.loop.plan import Plan
from rlplug_core.loop.torch_settings import set_torch
from rlplug_core.seeds import Seeds, seed_globals


@dataclass(frozen=True)
class PlanWords:
    """The words of a plan; other processes get them instead of the plan, so that no class is pickled.

    Attributes:
        values: the options by dotted name.
    """

    algorithm: str
    env: str
    values: dict[str, Any]

    @classmethod
    def of(
        cls,
        plan: Plan,
        changes: Mapping[str, object] | None = None,
    ) -> PlanWords:
        """Return the words of a plan, with other values of some options."""
        return cls(plan.algorithm, plan.env, {**plan.flat, **(changes or {})})

    def start(self, stream: str, rank: int) -> Plan:
        """Make the plan in a new process: set torch, and seed the global generators by a stream and the rank in it."""
        plan = Plan.make(self.algorithm, self.env, self.values)
        set_torch(plan.options.threads)
        seed_globals(plan.seeds().child(stream, rank))
        return plan

    def for_actor(self, rank: int, generation: int) -> PlanWords:
        """Return the words for a decoupled actor; one that replaces `generation` others draws other random numbers."""
        if not generation:
            return self
        seed = Seeds(self.values["seed"]).child(f"actor {rank}", generation).integer()
        return replace(self, values={**self.values, "seed": seed})
