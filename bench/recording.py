"""What a frame of a film costs on CartPole at 600x400: to draw it, to encode it, and both; best of five rounds.

    python bench/recording.py

The bar is 5 ms for both.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

os.environ.setdefault("SDL_VIDEODRIVER", "dummy")

import gymnasium

from rlplug_core.films.film import film

FRAMES = 200


def main() -> None:
    """Print the table."""
    env = gymnasium.make("CartPole-v1", render_mode="rgb_array")
    env.reset(seed=1)
    frames = []
    for number in range(FRAMES):
        if env.step(number % 2)[2]:
            env.reset()
        frames.append(env.render())
    best = {"draw": float("inf"), ".mp4": float("inf"), ".webp": float("inf")}
    for _ in range(5):
        began = time.process_time()
        for _ in frames:
            env.render()
        best["draw"] = min(best["draw"], time.process_time() - began)
        for kind in (".mp4", ".webp"):
            best[kind] = min(best[kind], encoded(frames, kind))
    for name, seconds in best.items():
        print(f"{name:<6} {1000 * seconds / FRAMES:.2f} ms a frame")
    print(f"both   {1000 * (best['draw'] + best['.mp4']) / FRAMES:.2f} ms a frame, bar 5")


def encoded(frames: list[object], kind: str) -> float:
    """Seconds of the processor to write a film."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        one = film(Path(folder) / f"film{kind}", 50)
        for frame in frames:
            one.add(frame)  # type: ignore[arg-type]
        one.close()
        return time.process_time() - began


if __name__ == "__main__":
    main()
