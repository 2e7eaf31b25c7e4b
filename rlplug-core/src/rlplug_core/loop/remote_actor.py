"""An actor of the decoupled runner in another process: it is built from the words of a plan, and acts in chunks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rlplug_core.clock import Clock
from rlplug_core.loop.plan_words import PlanWords
from rlplug_core.plugins.env_base import complete
from rlplug_core.seeds import global_state, load_global_state
from rlplug_core.types import Episode, State, Step


class RemoteActor:
    """An actor with its own weights, and a clock that is set to the run's before each chunk.

    Attributes:
        weights: the agent's weights, which new ones are copied into.
        begins: whether the next chunk does not follow the last one.
    """

    def __init__(self, words: PlanWords, rank: int) -> None:
        plan = words.start("globals", rank)
        self.length = plan.chunk_steps
        environment = plan.make_env(plan.options.num_envs)
        learner = plan.make_learner(environment.spec)
        self.clock = Clock(plan.options.total_timesteps)
        actors = plan.options.actors
        self.actor = plan.make_actor(environment, learner, self.clock, rank, actors)
        self.weights = self.actor.agent.weights()
        self.begins = True

    def state_dict(self) -> State:
        return {"actor": self.actor.state_dict(), "globals": global_state()}

    def start(
        self,
        settings: Mapping[str, object],
        state: State | None,
        steps: int,
    ) -> None:
        """Apply the settings of controllers, and continue from a state if there is one.

        Args:
            steps: the current env step of the whole run. An environment that starts again gets a seed from it, so it
                does not repeat the first episodes.
        """
        self.configure(settings)
        if state is not None:
            self.clock.steps = steps
            self.actor.load_state_dict(state["actor"])
            load_global_state(state["globals"])
            self.begins = bool(self.actor.env.spec.inexact)
            self.configure(settings)

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
        """End the chunk since env step `steps`; return whether it continues none, its env steps, and its episodes."""
        begins = self.begins
        self.begins = False
        return (
            begins,
            self.clock.steps - steps,
            [episode for _, episode in self.actor.take_episodes()],
        )
