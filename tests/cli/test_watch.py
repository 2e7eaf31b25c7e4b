"""Films, pictures and sheets of episodes: their frames and times, films during training, and errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image

from rlplug_cli.mlflow.mirror import _artifacts
from rlplug_core.errors import UsageError
from rlplug_core.films import player
from rlplug_core.films.film import Films, film
from rlplug_core.films.sheet import COLUMNS, Strip, sheet
from rlplug_core.loop import evaluate as evaluation
from rlplug_core.loop.evaluate import Evaluation
from rlplug_core.plugins.env_source import source_of
from rlplug_core.runs.api import train
from rlplug_core.runs.listing import records
from rlplug_core.runs.reproduction import compare
from rlplug_core.runs.run import Run
from tests.cli.conftest import Result

FILE = Path(__file__).parent / "walkers.py"
OPTIONS: dict[str, Any] = {"total_timesteps": 90, "eval_every": 30, "eval_episodes": 2, "final_eval_episodes": 2}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train("a2c", f"{FILE}:Walker", OPTIONS, out=tmp_path_factory.mktemp("runs"), name="walk", hooks=False)


@pytest.fixture(autouse=True)
def no_display(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)


def decode(path: Path) -> list[np.ndarray[Any, Any]]:
    with av.open(str(path)) as container:
        assert container.streams.video[0].codec_context.pix_fmt == "yuv420p"
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


def position(frame: np.ndarray[Any, Any]) -> int:
    """Return the position of the walker in a frame of any scale."""
    times = frame.shape[1] // 61
    red = (frame[20 * times, ::times].astype(int) @ (1, -1, 0)) > 60
    return int(red.argmax()) // 4


def test_film_has_a_frame_for_each_observation(run: Run, tmp_path: Path) -> None:
    result = run.play(3, video=tmp_path / "film.mp4")
    frames = decode(tmp_path / "film.mp4")
    assert len(frames) == sum(length + 1 for length in result.lengths)
    assert [position(frame) for frame in frames] == [at for length in result.lengths for at in range(length + 1)]
    assert {side % 2 for frame in frames for side in frame.shape[:2]} == {0}
    assert result.successes == tuple(length > 8 for length in result.lengths)


def test_film_uses_the_wrappers_of_evaluations(run: Run, tmp_path: Path) -> None:
    """Wrappers named in the call, and wrappers that a run names for its evaluations."""
    assert run.play(3, video=tmp_path / "short.webp", wrap=["time-limit:steps=3"]).lengths == (3, 3, 3)
    options = {**OPTIONS, "record_every": 50, "eval_wrap": ["time-limit:steps=2"]}
    filmed = train("a2c", f"{FILE}:Walker", options, out=tmp_path, name="judged", hooks=False)
    assert {record.data["length"] for record in records(filmed.path) if record.kind == "film"} == {2}


def test_first_episode_has_the_given_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []

    def evaluate(agent: Any, env: Any, seed: int, *_: Any) -> Evaluation:
        seeds.append(seed)
        return Evaluation(returns=(1.0,), lengths=(1,))

    monkeypatch.setattr(player, "evaluate", evaluate)
    player.play(None, None, 3, seed=7, clock=None, reel=None)  # type: ignore[arg-type]  # nothing acts
    assert seeds[0] == 7
    assert len(set(seeds)) == 3
    few, many = (source_of("CartPole-v1").make(number).reset(7).obs[0] for number in (1, 3))
    np.testing.assert_array_equal(few, many)  # evaluations play each episode in another row


def test_play_has_the_first_episode_of_evaluate(run: Run, rlplug: Callable[..., Result]) -> None:
    assert run.play(2, sheet=run.path / "two.png").lengths[0] == run.evaluate(2).lengths[0]
    for command in ("play", "evaluate"):
        text = " ".join(rlplug(command, "--help").out.split())
        assert "in parallel" in text
        assert "only the first episode is the same" in text


@pytest.mark.parametrize("kind", ["webp", "gif"])
def test_animated_pictures_have_the_same_duration(run: Run, tmp_path: Path, kind: str) -> None:
    result = run.play(1, video=tmp_path / f"film.{kind}", fps=1)
    with Image.open(tmp_path / f"film.{kind}") as film:
        durations = []
        for number in range(film.n_frames):  # type: ignore[attr-defined]
            film.seek(number)
            film.load()
            durations.append(film.info["duration"])
    assert sum(durations) == 1000 * (result.lengths[0] + 1)


@pytest.mark.parametrize(("kind", "fps"), [("gif", 30), ("gif", 45), ("gif", 50), ("webp", 60), ("webp", 700)])
def test_durations_of_frames_add_up(kind: str, fps: float, tmp_path: Path) -> None:
    """GIF rounds to hundredths of a second and WebP to thousandths, so single frames are a little longer or shorter."""
    frame = np.zeros((130, 130, 3), np.uint8)
    with Films(film(tmp_path / f"film.{kind}", fps)) as films:
        for number in range(90):
            frame[:, : number + 8] = 255
            films.add(frame.copy())
    with Image.open(tmp_path / f"film.{kind}") as picture:
        durations = []
        for number in range(90):
            picture.seek(number)
            picture.load()
            durations.append(picture.info["duration"])
    unit = 10 if kind == "gif" else 1
    assert sum(durations) == pytest.approx(90_000 / fps, abs=unit / 2)
    assert max(durations) - min(durations) <= unit


def test_gif_faster_than_50_frames_per_second_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"at most 50 frames per second, not 60; name it a\.webp or a\.mp4, or give"):
        film(tmp_path / "a.gif", 60)


def test_film_that_cannot_be_closed_leaves_no_file(tmp_path: Path) -> None:
    broken: Any = film(tmp_path / "broken.mp4", 20)
    films = Films(broken, film(tmp_path / "good.mp4", 20))
    films.add(np.zeros((41, 61, 3), np.uint8))
    broken.stream = SimpleNamespace(encode=fail_with_full_disk)
    with pytest.raises(OSError, match="the disk is full"):
        films.__exit__(None, None, None)
    assert [path.name for path in tmp_path.iterdir()] == ["good.mp4"]


def fail_with_full_disk() -> None:
    raise OSError("the disk is full")


@pytest.mark.parametrize("kind", ["mp4", "webp", "gif"])
@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_failed_film_leaves_the_previous_file(kind: str, error: type[BaseException], tmp_path: Path) -> None:
    path = tmp_path / f"film.{kind}"
    frame = np.zeros((41, 61, 3), np.uint8)
    path.write_bytes(b"a good film")

    def film_and_fail() -> None:
        with Films(film(path, 20)) as films:
            for number in range(11):
                films.add(frame + np.uint8(20 * number))
            raise error

    with pytest.raises(error):
        film_and_fail()
    assert path.read_bytes() == b"a good film"
    assert [*tmp_path.iterdir()] == [path]


def test_every_saves_each_second_frame(run: Run, tmp_path: Path) -> None:
    result = run.play(1, frames=tmp_path / "frames", every=2)
    names = sorted(path.name for path in (tmp_path / "frames").iterdir())
    assert names == [f"frame-{number:06d}.png" for number in range(result.lengths[0] // 2 + 1)]
    with Image.open(tmp_path / "frames" / names[2]) as picture:
        assert position(np.asarray(picture)) == 4
    with pytest.raises(UsageError, match="is not empty; name another directory"):
        run.play(1, frames=tmp_path / "frames")


def test_contact_sheet_shows_the_walker(run: Run, tmp_path: Path) -> None:
    run.play(6, sheet=tmp_path / "sheet.png")
    with Image.open(tmp_path / "sheet.png") as page:
        assert ((np.asarray(page).astype(int) @ (1, -1, 0)) > 60).any()


def test_contact_sheet_has_the_best_episode_above_the_worst(tmp_path: Path) -> None:
    colors = {2.0: (0, 0, 255), 5.0: (255, 0, 0), -1.0: (0, 255, 0)}
    strips = [Strip(total, 1, [np.full((40, 160, 3), color, np.uint8)]) for total, color in colors.items()]
    with Image.open(sheet(tmp_path / "sheet.png", strips)) as page:
        pixels = np.asarray(page)
    above, below = ({tuple(map(int, color)) for color in half.reshape(-1, 3)} for half in np.array_split(pixels, 2))
    assert (colors[5.0] in above, colors[-1.0] in above, colors[2.0] in above) == (True, False, False)
    assert (colors[5.0] in below, colors[-1.0] in below, colors[2.0] in below) == (False, True, False)


@pytest.mark.parametrize("length", [1, 5, 16, 300])
def test_strip_covers_episodes_of_any_length(length: int) -> None:
    strip = Strip()
    for number in range(length):
        if strip.needs_frame():
            strip.keep(np.full((4, 4, 3), min(number, 255), np.uint8))
        strip.count_frame()
    row = [int(frame.max()) for frame in strip.row()]
    assert len(row) == min(COLUMNS, length)
    assert row[0] == 0
    assert row[-1] >= min(length - 1, 255) - strip.stride
    assert row == sorted(row)


def test_play_without_a_display_writes_a_film(run: Run, rlplug: Callable[..., Result]) -> None:
    result = rlplug("play", str(run.path), "--episodes", "2")
    film = run.path / "videos" / "play-best.mp4"
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines()[-1].split() == ["film", str(film)]
    assert len(decode(film)) > 10
    with pytest.raises(UsageError, match="no display for a window; write a film"):
        run.play()


def test_play_writes_pictures_and_a_sheet(run: Run, rlplug: Callable[..., Result], tmp_path: Path) -> None:
    frames, page = tmp_path / "frames", tmp_path / "sheet.png"
    words = ("--episodes", "2", "--frames", str(frames), "--every", "3", "--sheet", str(page))
    result = rlplug("play", str(run.path), *words)
    assert (result.code, result.err) == (0, "")
    played = run.play(2, frames=tmp_path / "again", every=3)
    names = [sorted(path.name for path in folder.iterdir()) for folder in (frames, tmp_path / "again")]
    assert names[0] == names[1]
    assert len(names[0]) < sum(played.lengths)
    with Image.open(page) as picture:
        assert picture.size[0] > picture.size[1]


def test_play_reports_unfinished_episodes(
    run: Run, rlplug: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "LONGEST_EPISODE", 4)
    result = rlplug("play", str(run.path), "--episodes", "3", "--video", str(tmp_path / "film.webp"))
    assert (result.code, result.err) == (0, "")
    message = "3 of 3 episodes had not ended after 4 steps and count with their rewards so far; the wrapper "
    assert message in result.out
    assert message in rlplug("evaluate", str(run.path), "--episodes", "3").out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--video", "film.avi"), "film.avi is not a film file; name it film.mp4, film.webp or film.gif"),
        (("--sheet", "page"), "a sheet is a PNG file, and page does not end in .png; name it page.png"),
        (("--sheet", "page.jpg"), "a sheet is a PNG file, and page.jpg does not end in .png; name it page.png"),
        (("--fps", "0", "--video", "f.mp4"), "fps is 0; it must be"),
        (("--env", f"{FILE}:Invisible", "--video", "f.mp4"), "cannot be drawn: OSError: no graphics library here"),
        (("--checkpoint", "worst"), "no checkpoint 'worst'"),
    ],
    ids=["kind", "sheet", "picture", "fps", "drawing", "checkpoint"],
)
def test_invalid_arguments_print_one_sentence(
    run: Run, rlplug: Callable[..., Result], words: tuple[str, ...], sentence: str
) -> None:
    result = rlplug("play", str(run.path), *words)
    assert result.code in (2, 3)
    assert sentence in result.err
    assert len(result.err.splitlines()) == 1


def test_run_with_films_trains_the_same(run: Run, tmp_path: Path) -> None:
    filmed = train("a2c", f"{FILE}:Walker", {**OPTIONS, "record_every": 50}, out=tmp_path, name="filmed", hooks=False)
    recorded = [record for record in records(filmed.path) if record.kind == "film"]
    assert [record.step for record in recorded] == [
        32,
        96,
    ]  # the first evaluation, and the next one after at least 50 steps
    for record in recorded:
        assert len(decode(filmed.path / record.data["path"])) == record.data["length"] + 1
    assert compare(run.directory, filmed.directory) == []
    artifacts = {(path.name, folder) for path, folder in _artifacts(filmed.path)}
    assert {(Path(record.data["path"]).name, "videos") for record in recorded} <= artifacts


def test_run_without_films_continues(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = train("a2c", f"{FILE}:Invisible", {**OPTIONS, "record_every": 1}, out=tmp_path, name="invisible", hooks=False)
    assert run.status == "finished"
    assert capsys.readouterr().err == "rlplug: no films of this run: no graphics library here\n"
    assert [*(run.path / "videos").glob("[!.]*")] == []
