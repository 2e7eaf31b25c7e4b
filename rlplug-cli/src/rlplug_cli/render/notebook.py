"""Show a run in a notebook while it trains: a curve that grows, for `train(…, watch=LiveCurve())`.

It needs IPython, which every notebook has; `python -m pip install 'rlplug-cli[notebook]'` brings it elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from io import BytesIO
from typing import TYPE_CHECKING, Any, TypeAlias

from rlplug_cli.render.live import loss_to_draw

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from rlplug_core.loop import Progress

#: The metric of the chance of a random action.
EPSILON = "schedule/epsilon"
#: A line's points (env step, value), its label, and its style in matplotlib.
Line: TypeAlias = tuple[list[tuple[int, float]], str, str]


class LiveCurve:
    """Draws returns, the loss and epsilon over env steps, at most once in `every` seconds.

    Returns are the mean of recent training episodes and the evaluations. The loss is that of the critic, or else of the
    policy; epsilon is drawn if the algorithm explores by it. A new drawing replaces the last one.
    """

    def __init__(
        self,
        every: float = 1.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.every = every
        self.now = now
        self.returns: list[tuple[int, float]] = []
        self.evaluations: list[tuple[int, float]] = []
        self.losses: list[tuple[int, float]] = []
        self.epsilons: list[tuple[int, float]] = []
        self.drawn_at = -every
        self.handle: Any = None

    def __call__(self, progress: Progress) -> None:
        """Take a run's progress; draws if it is time, and always before the final evaluation."""
        added = add_point(self.returns, progress.steps, progress.return_mean)
        added = add_point(self.losses, progress.steps, loss_to_draw(progress)) or added
        added = add_point(self.epsilons, progress.steps, progress.schedules.get(EPSILON)) or added
        if progress.evaluation is not None and progress.evaluation != last_value(self.evaluations):
            added = add_point(self.evaluations, progress.steps, progress.evaluation) or added
        if added and (progress.phase == "final_eval" or self.now() - self.drawn_at >= self.every):
            self.drawn_at = self.now()
            self.show(progress)

    def show(self, progress: Progress) -> None:
        """Draw it in the notebook."""
        from IPython.display import Image, display

        picture = Image(data=self.png(progress))
        if self.handle is None:
            self.handle = display(picture, display_id=True)
        else:
            self.handle.update(picture)

    def png(self, progress: Progress) -> bytes:
        """Return the drawing as the bytes of a PNG."""
        buffer = BytesIO()
        self.figure(progress).savefig(buffer, format="png")
        return buffer.getvalue()

    def figure(self, progress: Progress) -> Figure:
        """Return the drawing, which belongs to no window."""
        from matplotlib.figure import Figure

        charts = [("return", self._returns(progress))]
        if self.losses:
            charts.append(("loss", [(self.losses, "loss", "-")]))
        if self.epsilons:
            charts.append(("epsilon", [(self.epsilons, "epsilon", "-")]))
        figure = Figure(figsize=(7, 1 + 2 * len(charts)), layout="constrained")
        for axes, (name, lines) in zip(
            figure.subplots(len(charts), sharex=True, squeeze=False)[:, 0], charts, strict=True
        ):
            for points, label, style in lines:
                axes.plot(*zip(*points, strict=True), style, label=label)
            axes.set(xlim=(0, progress.total), ylabel=name)
        figure.axes[-1].set_xlabel("env steps")
        figure.axes[0].set_title(
            f"{progress.steps:,} of {progress.total:,} steps, {progress.steps_per_second:,.0f} a second"
        )
        if self.returns or self.evaluations:
            figure.axes[0].legend(loc="upper left", frameon=False)
        return figure

    def _returns(self, progress: Progress) -> list[Line]:
        lines = [
            (self.returns, f"last {progress.window:,} episodes", "-"),
            (self.evaluations, "evaluation", "o-"),
        ]
        return [line for line in lines if line[0]]


def add_point(
    points: list[tuple[int, float]],
    steps: int,
    value: float | None,
) -> bool:
    """Add a point to a curve unless it is missing or already there; return whether it was added."""
    if value is None or (points and points[-1][0] >= steps):
        return False
    points.append((steps, value))
    return True


def last_value(points: list[tuple[int, float]]) -> float | None:
    return points[-1][1] if points else None
