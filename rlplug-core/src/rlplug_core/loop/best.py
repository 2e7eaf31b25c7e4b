"""The best evaluation of a run: by the rule of its learner, or by the mean return."""

from __future__ import annotations

from numbers import Real

from rlplug_core.errors import PluginError
from rlplug_core.loop.evaluate import Evaluation
from rlplug_core.protocols import AnyLearner, SupportsEvaluationRank
from rlplug_core.types import State


class BestEvaluation:
    """Remembers the best evaluation so far.

    Attributes:
        mean: its mean return.
        rank: the result of the learner's rule, or the mean return without a rule; () in a zero-sum game.
    """

    def __init__(self) -> None:
        self.mean: float | None = None
        self.rank: tuple[float, ...] = ()

    def improves(self, learner: AnyLearner, evaluation: Evaluation) -> bool:
        """Return whether an evaluation is the best so far, and remember it then.

        In a zero-sum game mean returns cannot be compared, so without a rule the newest evaluation is the best.

        Raises:
            PluginError: the learner's rule does not return numbers.
        """
        rank = evaluation_rank(learner, evaluation)
        better = self.mean is None or not rank or rank > self.rank
        if better:
            self.mean = evaluation.mean
            self.rank = rank
        return better

    def state_dict(self) -> State:
        return {"best": self.mean, "best_rank": list(self.rank)}

    def load_state_dict(self, state: State) -> None:
        """Load the state; states of older versions have no rank."""
        self.mean = state["best"]
        self.rank = tuple(state.get("best_rank", () if self.mean is None else (self.mean,)))


def evaluation_rank(
    learner: AnyLearner,
    evaluation: Evaluation,
) -> tuple[float, ...]:
    """Return the numbers to compare an evaluation with others: the first one that differs decides.

    Raises:
        PluginError: the learner's rule does not return numbers.
    """
    if not isinstance(learner, SupportsEvaluationRank):
        return () if evaluation.zero_sum else (evaluation.mean,)
    rank = learner.evaluation_rank(evaluation)
    numbers = rank if isinstance(rank, tuple) else (rank,)
    if not numbers or not all(isinstance(number, Real) for number in numbers):
        raise PluginError(
            f"evaluation_rank of {type(learner).__name__} returned {rank!r}; return a number or a tuple of numbers, "
            "larger for better evaluations"
        )
    return tuple(map(float, numbers))
