"""A value over env steps as one line of bars."""

from __future__ import annotations

import math

#: Heights of the bars of a line, and how many there are at most.
BARS = "▁▂▃▄▅▆▇█"
WIDTH = 60


class Trace:
    """A value over env steps as a line of bars; however long the run, at most `2 * WIDTH` values are kept."""

    def __init__(self) -> None:
        self.values: list[float] = []
        self.steps = -1
        self.min_gap = 0

    def add(self, steps: int, value: float | None) -> None:
        """Add the value at `steps`, unless it is None or too close to the previous point."""
        if value is None or not math.isfinite(value) or steps - self.steps <= self.min_gap:
            return
        self.values.append(value)
        self.steps = steps
        if len(self.values) == 2 * WIDTH:
            self.values = [
                sum(pair) / 2 for pair in zip(self.values[::2], self.values[1::2], strict=True)
            ]
            self.min_gap = max(1, steps // WIDTH)

    def draw(self, width: int = 2 * WIDTH) -> str:
        """Return the last values as at most `WIDTH` bars with their range, in at most `width` characters."""
        scale = f"  {min(self.values):,.4g} to {max(self.values):,.4g}"
        values = self.values[-max(1, min(WIDTH, width - len(scale) - 4)) :]
        low = min(values)
        high = max(values)
        spread = high - low or 1.0
        bars = "".join(BARS[round((value - low) / spread * (len(BARS) - 1))] for value in values)
        return f"{bars}  {low:,.4g} to {high:,.4g}"
