"""An actor of the decoupled runner in another process: it is built from the words of a plan and acts chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rlplug_core.clock import Clock
from rlplug_core.loop.actor import Actor
from rlplug_core.loop.plan import Plan
from rlplug_core.loop.torch_settings import set_torch
from rlplug_core.plugins.env_base import complete
from rlplug_core.seeds import global_state, load_global_state, seed_globals
from rlplug_core.types import Episode, State, Step


class RemoteActor:
    """An actor with its own weights, and a clock that is set to the run's before each chunk.

    Args:
        values: the options by dotted name. The plan is sent as the words that the user typed, so no class is pickled.

    Attributes:
        weights: the agent's weights, which new ones are copied into.
        begins: whether the next chunk does not follow the last one.
    """

    def __init__(
        self,
        algorithm: str,
        env: str,
        values: dict[str, object],
        rank: int,
    ) -> None:
        plan = Plan.make(algorithm, env, values)
        set_torch(plan.options.threads)
        seed_globals(plan.seeds().child("globals", rank))
        self.length = plan.chunk_steps
        environment = plan.make_env(plan.options.num_envs)
        learner = plan.make_learner(environment.spec)
        agent = learner.agent(rank, plan.options.actors)
        self.clock = Clock(plan.options.total_timesteps)
        self.actor = Actor(environment, learner, agent, learner.buffer(), self.clock)
        self.actor.reset(plan.seeds().child("env", rank).integer())
        self.weights = agent.weights()
        self.begins = True

    def state_dict(self) -> State:
        return {"actor": self.actor.state_dict(), "globals": global_state()}

    def continue_from(self, state: State, steps: int) -> None:
        """Continue from a state, at the current env step of the whole run.

        An environment that starts again gets a seed from this step, so it does not repeat the first episodes.
        """
        self.clock.steps = steps
        self.actor.load_state_dict(state["actor"])
        load_global_state(state["globals"])
        self.begins = bool(self.actor.env.spec.inexact)

    def configure(self, settings: Mapping[str, object]) -> None:
        """Set the attributes that controllers have set in environments, if any."""
        if settings:
            complete(self.actor.env).configure(settings)

    def steps(self, steps: int, total: int) -> Iterator[Step]:
        """Yield the steps of a chunk, starting at the current env step and total of the whole run."""
        self.clock.steps = steps
        self.clock.total = total
        for _ in range(self.length):
            yield self.actor.step()

    def end_chunk(self, steps: int) -> tuple[bool, int, list[Episode]]:
        """Return whether the chunk since env step `steps` follows no other one, its env steps, and its episodes."""
        begins = self.begins
        self.begins = False
        return (
            begins,
            self.clock.steps - steps,
            [episode for _, episode in self.actor.take_episodes()],
        )
