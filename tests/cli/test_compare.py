"""`compare` and `plot`: how runs are grouped into lines, their statistics, tables and pictures."""

from __future__ import annotations

import csv
import io
import json
import re
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import numpy as np
import pytest

from rlplug_cli.compare.history import history, total_with_extensions
from rlplug_cli.compare.lines import common_grid, moving_average
from rlplug_cli.compare.statistics import draws, estimate
from rlplug_cli.render import tables
from rlplug_core.runs.journal_reader import BLOCK
from tests.cli.histories import write_run

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"


@pytest.fixture
def runs(place: Path) -> Path:
    """Three seeds of two learning rates on CartPole-v1, and two seeds of one of them on Acrobot-v1."""
    for rate, shift in ((1e-3, 0.0), (3e-4, 20.0)):
        for seed in (1, 2, 3):
            returns = [shift + 10 * seed, shift + 20 * seed, shift + 30 * seed]
            write_run(place / "runs" / f"{rate:g}-{seed}", returns, seed=seed, best=returns[-1] + 1, learning_rate=rate)
    for seed in (1, 2):
        write_run(place / "runs" / f"acrobot-{seed}", [-100.0, -80.0 - seed], env="Acrobot-v1", seed=seed)
    return place / "runs"


def compare(rlplug: Callable[..., Any], *words: str) -> dict[str, Any]:
    """Return the output of `compare --json`, checked against its schema."""
    result = rlplug("compare", *words, "--json")
    assert result.code == 0, result.err
    comparison: dict[str, Any] = json.loads(result.out)
    jsonschema.validate(comparison, json.loads((SCHEMAS / "compare.json").read_bytes()))
    return comparison


def test_runs_that_differ_only_in_seed_and_environment_share_a_label(runs: Path, rlplug: Callable[..., Any]) -> None:
    comparison = compare(rlplug, "runs")
    assert {(curve["env"], curve["label"], curve["seeds"]) for curve in comparison["curves"]} == {
        ("CartPole-v1", "ppo learning_rate=0.001", 3),
        ("CartPole-v1", "ppo learning_rate=0.0003", 3),
        ("Acrobot-v1", "ppo learning_rate=0.001", 2),
    }
    curve = next(curve for curve in comparison["curves"] if curve["label"] == "ppo learning_rate=0.0003")
    assert curve["x"] == [100, 200, 300]
    assert curve["value"] == [40, 60, 80]  # the interquartile mean of 3 seeds uses all of them


def test_environment_arguments_of_some_runs_separate_lines(place: Path, rlplug: Callable[..., Any]) -> None:
    write_run(place / "runs" / "first", [1.0, 2.0])
    write_run(place / "runs" / "second", [3.0, 4.0], **{"env.length": 30})
    comparison = compare(rlplug, "runs")
    assert labels(comparison) == [("ppo", 1), ("ppo env.length=30", 1)]


def test_classes_with_the_same_name_in_two_files_are_two_lines(place: Path, rlplug: Callable[..., Any]) -> None:
    for name in ("one", "two"):
        write_run(place / "runs" / name, [1.0, 2.0], algorithm=f"/{name}.py:Mine")
    assert {curve["label"] for curve in compare(rlplug, "runs")["curves"]} == {"one.py:Mine", "two.py:Mine"}
    assert {curve["label"] for curve in compare(rlplug, "runs/one")["curves"]} == {"Mine"}


def test_names_that_differ_only_in_case_show_their_files(place: Path, rlplug: Callable[..., Any]) -> None:
    for name, algorithm in (("one", "ppo"), ("two", "/a/ppo.py:PPO")):
        write_run(place / "runs" / name, [1.0, 2.0], algorithm=algorithm)
    assert {curve["label"] for curve in compare(rlplug, "runs")["curves"]} == {"ppo", "ppo.py:PPO"}


def test_environment_in_a_moved_file_is_one_environment(place: Path, rlplug: Callable[..., Any]) -> None:
    for seed, folder, content in ((1, "/old", "A"), (2, "/new", "A"), (3, "/new", "A"), (4, "/other", "B")):
        path = place / "runs" / str(seed)
        write_run(path, [1.0, 2.0], seed=seed, env=f"{folder}/walk.py:Walk", content=content, created=float(seed))
    write_run(place / "runs" / "5", [1.0, 2.0], seed=5, env="/new/walk.py:Run", content="A")
    write_run(place / "runs" / "6", [1.0, 2.0], seed=6, env="/new/run.py:Walk", content="A")
    comparison = compare(rlplug, "runs")
    assert {(curve["env"], curve["seeds"]) for curve in comparison["curves"]} == {
        ("/new/walk.py:Walk", 3), ("/other/walk.py:Walk", 1), ("walk.py:Run", 1), ("run.py:Walk", 1),
    }  # fmt: skip
    write_run(place / "runs" / "7", [1.0, 2.0], seed=7, env="worlds:worlds/Push-v0")
    assert "worlds:worlds/Push-v0" in {curve["env"] for curve in compare(rlplug, "runs")["curves"]}
    for typed in ("walk.py:Run", "./walk.py:Run", "/new/walk.py:Run"):
        costs = compare(rlplug, "runs", "--target", f"{typed}=1")["costs"]
        assert [(cost["env"], cost["reached"]) for cost in costs] == [("walk.py:Run", 1)]
    assert not [remark for remark in comparison["remarks"] if "file changed" in remark]


def test_change_of_the_environment_file_separates_lines(place: Path, rlplug: Callable[..., Any]) -> None:
    for seed, folder, content in ((1, "/old", "A"), (2, "/old", "B"), (3, "/new", "B")):
        path = place / "runs" / str(seed)
        write_run(path, [1.0, 2.0], seed=seed, env=f"{folder}/walk.py:Walk", content=content, created=float(seed))
    comparison = compare(rlplug, "runs")
    assert [(curve["env"], curve["label"], curve["seeds"]) for curve in comparison["curves"]] == [
        ("walk.py:Walk", "ppo walk-559aead0.py", 1),
        ("walk.py:Walk", "ppo walk-df7e70e5.py", 2),
    ]
    first_runs = "1 with runs/1/sources/walk-559aead0.py, 2 with runs/2/sources/walk-df7e70e5.py"
    message = f"runs of walk.py:Walk are separate because its file changed: {first_runs}"
    assert message in comparison["remarks"]
    assert f"note: {message}" in rlplug("compare", "runs").out
    pooled = compare(rlplug, "runs", "--label", "algorithm")
    assert [curve["seeds"] for curve in pooled["curves"]] == [3]
    message = f"runs of walk.py:Walk are combined although its file changed: {first_runs}"
    assert message in pooled["remarks"]


def write_own_algorithm(path: Path, folder: str, content: str, seed: int = 1, **options: Any) -> None:
    name = f"{folder}/my_algo.py:MyAlgo"
    write_run(path, [1.0, 2.0], seed=seed, algorithm=name, files={"algorithm": (name, content)}, **options)


def labels(comparison: dict[str, Any]) -> list[tuple[str, int]]:
    return [(curve["label"], curve["seeds"]) for curve in comparison["curves"]]


def test_folders_distinguish_algorithms_in_files_with_the_same_name(runs: Path, rlplug: Callable[..., Any]) -> None:
    for folder, content in (("/x/expA/lib", "A"), ("/x/expB/lib", "B")):
        for seed in (1, 2):
            write_own_algorithm(runs / "mine" / f"{content}{seed}", folder, content, seed)
    comparison = compare(rlplug, "runs/mine")
    assert labels(comparison) == [("expA/lib/my_algo.py:MyAlgo", 2), ("expB/lib/my_algo.py:MyAlgo", 2)]
    assert not [remark for remark in comparison["remarks"] if "file changed" in remark]
    assert labels(compare(rlplug, "runs/mine/A1", "runs/mine/A2")) == [("MyAlgo", 2)]
    assert len(labels(compare(rlplug, "runs/mine", "--label", "algorithm"))) == 2


def test_changed_algorithm_file_separates_lines_and_moved_file_does_not(runs: Path, rlplug: Callable[..., Any]) -> None:
    for number, (folder, content, seed) in enumerate([("/a", "A", 1), ("/a", "B", 1), ("/b", "B", 1), ("/b", "B", 2)]):
        write_own_algorithm(runs / "mine" / str(number), folder, content, seed, created=float(number))
    comparison = compare(rlplug, "runs/mine")
    assert labels(comparison) == [("my_algo-559aead0.py:MyAlgo", 1), ("my_algo-df7e70e5.py:MyAlgo", 2)]
    assert any("1 is left out: 2 has its configuration and seed too" in remark for remark in comparison["remarks"])
    assert any("separate because its file changed" in remark for remark in comparison["remarks"])
    write_own_algorithm(runs / "mine" / "far", "/c", "C")
    assert [label for label, _ in labels(compare(rlplug, "runs/mine"))] == [
        "b/my_algo-559aead0.py:MyAlgo",
        "b/my_algo-df7e70e5.py:MyAlgo",
        "c/my_algo.py:MyAlgo",
    ]


def test_changed_wrapper_file_separates_lines_and_moved_file_does_not(place: Path, rlplug: Callable[..., Any]) -> None:
    for seed, folder, content in ((1, "a", "A"), (2, "b", "A"), (1, "b", "B")):
        name = f"/{folder}/noise.py:Noise"
        files = {"wrap.0": (name, content)}
        write_run(place / "runs" / f"{folder}{content}", [1.0, 2.0], seed=seed, files=files, wrap=[f"{name}:k=1"])
    assert labels(compare(rlplug, "runs")) == [("ppo noise-559aead0.py", 2), ("ppo noise-df7e70e5.py", 1)]
    write_run(place / "runs" / "bare", [1.0, 2.0], wrap=[])
    assert ("ppo wrap=none", 1) in labels(compare(rlplug, "runs/aA", "runs/bare"))


def test_runs_that_continued_to_another_total_are_separate_lines(place: Path, rlplug: Callable[..., Any]) -> None:
    for seed in (1, 2):
        write_run(place / "runs" / f"short{seed}", [1.0, 2.0], seed=seed)
        write_run(place / "runs" / f"long{seed}", [1.0, 2.0], seed=seed, extensions=[(300, False), (500, False)])
    pairs = labels(compare(rlplug, "runs"))
    assert pairs == [("ppo total_timesteps=200", 2), ("ppo total_timesteps=500", 2)]
    write_run(place / "runs" / "stretched", [1.0, 2.0], extensions=[(500, True), (500, True)])
    write_run(place / "runs" / "full", [1.0] * 5, total_timesteps=500)
    pairs = labels(compare(rlplug, "runs"))
    assert pairs == [
        ("ppo extended=200:500 total_timesteps=500", 2),
        ("ppo extended=200:500:rescale total_timesteps=500", 1),
        ("ppo extended=none total_timesteps=200", 2),
        ("ppo extended=none total_timesteps=500", 1),
    ]
    assert labels(compare(rlplug, "runs", "--label", "total-timesteps"))[0] == ("total_timesteps=200", 2)


@pytest.mark.parametrize(
    ("extensions", "expected"),
    [
        ([(0, False)], (200, "none")),
        ([(100, False)], (100, "200:100")),
        ([(300, True), (0, False), (300, True)], (300, "200:300:rescale")),
        ([(300, False), (500, True)], (500, "200:300,300:500:rescale")),
        ([(300, True), (500, False), (600, False)], (600, "200:300:rescale,300:600")),
        ([(300, False), (300, True)], (300, "200:300:rescale")),
        ([(200, False)], (200, "none")),
    ],
)
def test_total_names_its_extensions(extensions: list[tuple[int, bool]], expected: tuple[int, str]) -> None:
    assert (
        total_with_extensions(200, [{"limit": limit, "rescale": rescale} for limit, rescale in extensions]) == expected
    )


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ((0.9999999, 0.99999999), ["0.9999999", "0.99999999"]),
        ((0.99, 0.9999999), ["0.99", "0.9999999"]),
        ((0.00018662266976517952, 0.0002), ["0.000186623", "0.0002"]),
        ((1.0, 0.3), ["0.3", "1"]),
    ],
)
def test_label_has_enough_digits_to_distinguish_options(
    place: Path, rlplug: Callable[..., Any], values: tuple[float, ...], texts: list[str]
) -> None:
    for number, value in enumerate(values):
        write_run(place / "runs" / str(number), [1.0, 2.0], gamma=value)
    assert sorted(label for label, _ in labels(compare(rlplug, "runs"))) == [f"ppo gamma={text}" for text in texts]


def test_seed_that_ran_with_other_threads_counts_once(place: Path, rlplug: Callable[..., Any]) -> None:
    for threads in (1, 2):
        write_run(place / "runs" / str(threads), [1.0, 2.0], threads=threads)
    assert labels(compare(rlplug, "runs")) == [("ppo", 1)]


def test_content_identifies_a_data_set(place: Path, rlplug: Callable[..., Any]) -> None:
    for seed, folder, content in ((1, "a", "A" * 64), (2, "b", "A" * 64), (1, "b", "B" * 64)):
        path = write_run(place / "runs" / f"{folder}{content[0]}", [1.0, 2.0], seed=seed, dataset=f"/{folder}/d.npz")
        config = json.loads((path / "config.json").read_text())
        data = {"place": f"/{folder}/d.npz", "sha256": content, "transitions": 5}
        (path / "config.json").write_text(json.dumps({**config, "dataset": data}))
    assert labels(compare(rlplug, "runs")) == [("ppo d-AAAAAAAA.npz", 2), ("ppo d-BBBBBBBB.npz", 1)]


def test_final_scores_are_for_the_last_and_the_best_weights(runs: Path, rlplug: Callable[..., Any]) -> None:
    comparison = compare(rlplug, *(str(runs / f"0.001-{seed}") for seed in (1, 2, 3)))
    scores = {score["checkpoint"]: score for score in comparison["scores"]}
    drawn = draws([3], 10_000, np.random.default_rng(0))
    for checkpoint, shift in (("last", 0), ("best", 1)):
        expected = estimate([np.array([30.0, 60.0, 90.0]) + shift], "mean", drawn)
        assert scores[checkpoint]["mean"] == pytest.approx(expected._asdict())
    assert [run["scores"] for run in comparison["arms"][0]["runs"]] == [
        {"last": last, "best": last + 1} for last in (30, 60, 90)
    ]


def test_comparison_uses_its_options(runs: Path, rlplug: Callable[..., Any]) -> None:
    words = ("--confidence", "0.5", "--points", "2", "--bootstrap", "100", "--center", "mean", "--checkpoint", "best")
    comparison = compare(rlplug, "runs", *words)
    plain = compare(rlplug, "runs")
    options = {"confidence": 0.5, "points": 2, "reps": 100, "center": "mean", "checkpoint": "best"}
    assert {name: comparison["settings"][name] for name in options} == options
    assert {len(curve["x"]) for curve in comparison["curves"]} == {2}
    for narrow, wide in zip(comparison["scores"], plain["scores"], strict=True):
        assert narrow["mean"]["high"] - narrow["mean"]["low"] < wide["mean"]["high"] - wide["mean"]["low"]


def test_improvement_names_the_better_line_first(runs: Path, rlplug: Callable[..., Any]) -> None:
    (improvement,) = compare(rlplug, "runs")["improvements"]
    assert (improvement["better"], improvement["worse"]) == ("ppo learning_rate=0.0003", "ppo learning_rate=0.001")
    assert improvement["probability"]["value"] == pytest.approx(6 / 9)  # 50, 80, 110 against 30, 60, 90
    assert improvement["envs"] == ["CartPole-v1"]


def test_cost_of_a_return_is_that_of_the_first_evaluation_to_reach_it(runs: Path, rlplug: Callable[..., Any]) -> None:
    rows = compare(rlplug, "runs", "--target", "CartPole-v1=60")["costs"]
    costs = {cost["label"]: (cost["reached"], cost["steps"], cost["seconds"]) for cost in rows}
    assert costs["ppo learning_rate=0.001"] == (2, [300, 200, None], [3, 2, None])
    assert costs["ppo learning_rate=0.0003"] == (2, [200, 200, None], [2, 2, None])
    assert "2 of 3" in rlplug("compare", "runs", "--target", "60").out


def test_groups_sweeps_and_names_select_runs_once(runs: Path, rlplug: Callable[..., Any]) -> None:
    group = json.loads((runs / "0.001-1" / "config.json").read_bytes())["group"]
    comparison = compare(rlplug, group[:8], "0.001-2", str(runs / "0.001-3"))
    assert [curve["seeds"] for curve in comparison["curves"]] == [3]
    write_run(runs / "sweep" / "one", [1.0, 2.0], seed=7)
    (runs / "sweep" / "sweep.json").write_text("{}")
    assert [run["seed"] for run in compare(rlplug, "sweep")["arms"][0]["runs"]] == [7]
    assert compare(rlplug, "sweep/one")["arms"][0]["runs"][0]["path"] == "runs/sweep/one"


def test_repeated_seed_counts_once(runs: Path, rlplug: Callable[..., Any]) -> None:
    write_run(runs / "again", [5.0, 5.0, 5.0], seed=1, learning_rate=1e-3)
    comparison = compare(rlplug, "0.001-1", "again")
    assert [curve["seeds"] for curve in comparison["curves"]] == [1]
    assert any("configuration and seed" in remark for remark in comparison["remarks"])


@pytest.mark.parametrize("best", [None, 3.0])
def test_unfinished_run_has_a_curve_and_no_final_score(
    runs: Path, rlplug: Callable[..., Any], best: float | None
) -> None:
    """With `best`, the run was finished and evaluated before it continued."""
    write_run(runs / "killed", [1.0, 2.0], seed=9, status="", best=best)
    comparison = compare(rlplug, "killed")
    assert len(comparison["curves"]) == 1
    assert comparison["scores"] == []
    assert "without final scores because they are not finished: killed" in comparison["remarks"]


def test_unfinished_run_does_not_shorten_the_curve_of_finished_runs(runs: Path, rlplug: Callable[..., Any]) -> None:
    write_run(runs / "killed", [1.0], seed=9, status="", total_timesteps=300)
    comparison = compare(rlplug, "0.001-1", "0.001-2", "killed")
    (curve,) = comparison["curves"]
    assert (curve["x"], curve["seeds"]) == ([100, 200, 300], 2)
    assert "left out of curves because other runs of their lines are finished: killed" in comparison["remarks"]


def test_curves_without_overlap_are_left_out(place: Path, rlplug: Callable[..., Any]) -> None:
    write_run(place / "runs" / "early", [1.0], every=100, total_timesteps=300)
    write_run(place / "runs" / "late", [2.0], every=300, seed=2)
    write_run(place / "runs" / "other", [2.0], every=300, seed=2, learning_rate=1.0)
    comparison = compare(rlplug, "runs")
    assert [curve["label"] for curve in comparison["curves"]] == ["ppo learning_rate=1"]


def test_unfinished_run_below_the_target_does_not_count_as_a_failure(runs: Path, rlplug: Callable[..., Any]) -> None:
    write_run(runs / "killed", [1.0], seed=9, status="", total_timesteps=300)
    write_run(runs / "there", [99.0], seed=8, status="", total_timesteps=300)
    comparison = compare(rlplug, "0.001-1", "0.001-2", "killed", "there", "--target", "40")
    (cost,) = comparison["costs"]
    assert (cost["seeds"], cost["reached"]) == (3, 2)


def test_unreadable_run_of_a_directory_is_left_out(runs: Path, rlplug: Callable[..., Any]) -> None:
    (runs / "0.001-3" / "config.json").write_text("{")
    comparison = compare(rlplug, "runs")
    assert {curve["seeds"] for curve in comparison["curves"] if curve["label"] == "ppo learning_rate=0.001"} == {2}
    assert any(remark.startswith("0.001-3 is left out: ") for remark in comparison["remarks"])
    assert rlplug("compare", "0.001-3", "0.001-1").code == 2


def test_normalized_scores_average_all_environments(runs: Path, rlplug: Callable[..., Any]) -> None:
    bounds = ("--normalize", "CartPole-v1=0:100", "--normalize", "Acrobot-v1=-100:0")
    comparison = compare(rlplug, "runs", *bounds, "--label", "algorithm")
    (score,) = (
        score for score in comparison["scores"] if score["env"] == "all, normalized" and score["checkpoint"] == "last"
    )
    assert score["mean"]["value"] == pytest.approx((np.mean([30, 60, 90, 50, 80, 110]) / 100 + 0.185) / 2)


def test_page_loads_no_other_files(runs: Path, rlplug: Callable[..., Any]) -> None:
    write_run(runs / "odd", [1.0, 2.0], seed=1, algorithm="./a<b>.py:Mine", env="./e.py:make")
    assert rlplug("compare", "runs", "--html", "page.html").code == 0
    page = Path("page.html").read_text()
    assert "<svg" in page
    assert "Mine" in page
    assert "<b>" not in page
    for word in ("http-equiv", "<script", "<link", "src=", "@import"):
        assert word not in page


@pytest.mark.parametrize("width", [36, 40, 60, 80])
def test_narrow_terminal_keeps_whole_numbers(
    runs: Path, rlplug: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    words = ("compare", "runs", "--target", "60", "--csv", "all.csv")
    wide = rlplug(*words).out
    monkeypatch.setattr(tables, "terminal_width", lambda: width)
    narrow = rlplug(*words).out
    assert "…" not in narrow
    assert max(len(line) for line in narrow.splitlines() if not line.startswith("note: ")) <= width
    iqm = re.findall(r"-?\d[\d.]* \[[-\d., ]+\]", wide)[0]  # the first row's
    assert iqm in narrow


def test_csv_has_every_score(runs: Path, rlplug: Callable[..., Any]) -> None:
    rows = list(csv.DictReader(io.StringIO(rlplug("compare", "runs", "--csv", "-").out)))
    of_runs = [row for row in rows if row["seed"] and row["checkpoint"] == "last"]
    assert len(of_runs) == 8
    assert {row["aggregate"] for row in rows if not row["seed"]} == {"mean", "iqm"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nowhere",), "no run at nowhere"),
        (("runs", "--label", "learningrate"), "no run here has an option 'learningrate'; did you mean 'learning_rate'"),
        (
            ("runs", "--metric", "eval/retrun"),
            "no run here has recorded eval/retrun; recorded are eval/return_mean, loss/policy, perf/updates",
        ),
        (("runs", "--image", "curves.bmp"), "a picture's name ends in .png"),
        (("runs", "--target", "high"), "--target high: expected a return"),
        (("runs", "--target", "nan"), "--target nan: expected a return"),
        (("runs", "--target", "CartPole-v1=inf"), "--target CartPole-v1=inf: expected a return"),
        (("runs", "--normalize", "CartPole-v1=0:inf"), "expected two returns"),
        (("runs", "--json", "--csv", "-"), "--json and --csv - both write to stdout; leave one out"),
        (("runs", "--target", "Nope-v1=5"), "--target is for Nope-v1, but the runs are of "),
        (("runs", "--normalize", "CartPole-v1=5:1"), "expected two returns"),
        (("runs", "--normalize", "Nope-v1=0:500"), "--normalize is for Nope-v1, but the runs are of "),
        (("runs", "--html", "a-file/page.html"), "a-file/page.html cannot be written: a-file is not a directory"),
        (
            ("runs", "--image", "a-file/a/c.png"),
            "a-file/a/c.png cannot be written: a-file/a is not a directory; name another",
        ),
    ],
)
def test_invalid_arguments_print_one_sentence(
    runs: Path, rlplug: Callable[..., Any], words: tuple[str, ...], message: str
) -> None:
    Path("a-file").touch()
    result = rlplug("compare", *words)
    assert result.code == 2
    assert message in result.err
    assert result.err.count("\n") == 1


def test_plot_draws_a_panel_for_each_metric_and_environment(runs: Path, rlplug: Callable[..., Any]) -> None:
    words = ("--metric", "eval/return_mean,loss/policy", "--image", "curves.svg", "--x", "updates", "--smooth", "2")
    result = rlplug("plot", "runs", *words)
    assert (result.code, result.err) == (0, "")
    assert "6 curves in curves.svg" in result.out
    text = " ".join(ElementTree.parse("curves.svg").getroot().itertext())
    for word in ("eval/return_mean", "loss/policy", "Acrobot-v1", "updates", "ppo learning_rate=0.0003"):
        assert word in text
    unknown = rlplug("plot", "runs", "--metric", "nope").err
    assert "recorded nope; recorded are eval/return_mean, loss/policy, perf/updates" in unknown
    assert rlplug("plot", "runs", "--image", "new/curves.png").code == 0
    columns, rows = struct.unpack(">II", Path("new", "curves.png").read_bytes()[16:24])
    assert columns > rows > 100
    assert rlplug("compare", "runs", "--html", "a/b/page.html", "--csv", "c/scores.csv").code == 0
    assert Path("a/b/page.html").is_file()
    assert Path("c/scores.csv").is_file()


def test_curves_with_the_same_steps_keep_them_and_others_are_interpolated() -> None:
    same = np.array([1.0, 2.0, 4.0])
    x, values = common_grid([(same, same), (same, 2 * same)], 10)
    assert x.tolist() == [1, 2, 4]
    assert values.tolist() == [[1, 2, 4], [2, 4, 8]]
    x, values = common_grid([(same, same), (np.array([2.0, 3.0]), np.array([5.0, 7.0]))], 3)
    assert x.tolist() == [2, 2.5, 3]
    assert values.tolist() == [[2, 2.5, 3], [5, 6, 7]]


def test_moving_average_uses_earlier_points() -> None:
    assert moving_average(np.array([1.0, 3.0, 5.0, 100.0]), 2).tolist() == [1, 2, 4, 52.5]
    assert moving_average(np.array([1.0, 3.0]), 9).tolist() == [1, 2]
    assert moving_average(np.array([np.nan, 2.0, 4.0, np.nan, 6.0]), 2).tolist()[1:] == [2, 3, 4, 6]
    assert moving_average(np.array([1e17, 1.0, 2.0, 3.0]), 2).tolist() == [1e17, 5e16, 1.5, 2.5]


def test_intervals_of_twenty_seeds_cover_the_true_value() -> None:
    """As far as 600 simulations can show; `bench/compare.py` makes the whole table."""
    generator = np.random.default_rng(0)
    covered = 0
    for _ in range(600):
        interval = estimate([generator.normal(size=20)], "iqm", draws([20], 400, generator))
        covered += interval.low <= 0 <= interval.high
    assert covered / 600 == pytest.approx(0.945, abs=0.025)


def test_memory_does_not_grow_with_the_lines_of_a_journal(tmp_path: Path) -> None:
    """All records of a million lines would take a gigabyte; a curve takes 16 bytes for each of its points."""
    run = write_run(tmp_path / "long", [1.0])
    content = (run / "journal.jsonl").read_text()
    data = {f"loss/{number}": number for number in range(20)} | {"loss/policy": 0.5}
    lines = [{"seq": seq, "time": seq, "kind": "metrics", "step": seq, "data": data} for seq in range(101, 15_000)]
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    (run / "journal.jsonl").write_text(content + text)
    tracemalloc.start()
    try:
        run_history = history(run, ["loss/policy"])
        assert tracemalloc.get_traced_memory()[1] < 6 * BLOCK  # the records take 15
    finally:
        tracemalloc.stop()
    assert run_history.curves["loss/policy"].steps.tolist() == [*range(100, 15_000)]
    assert run_history.is_finished
