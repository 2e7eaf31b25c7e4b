"""`Run`: a run directory, which can be read, evaluated, watched, loaded and exported.

run = open_run("a2c-CartPole-v1-s1-20260101-120000")
steps, returns = run.curve("eval/return_mean")
print(run.evaluate(episodes=20, stochastic=True).iqm)
run.play(video="film.mp4")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rlplug_core.errors import PluginError, UsageError, did_you_mean, warn
from rlplug_core.loop.evaluate import Evaluation
from rlplug_core.loop.plan import Plan
from rlplug_core.loop.torch_settings import on_this_machine, torch_defaults
from rlplug_core.plugins.env_source import source_of
from rlplug_core.plugins.request import RunRequest
from rlplug_core.runs import curves as tables
from rlplug_core.runs.checkpoint import Checkpoints
from rlplug_core.runs.data import Recording, record
from rlplug_core.runs.directory import RunDirectory
from rlplug_core.runs.evaluation import Conditions, evaluate_checkpoint
from rlplug_core.runs.listing import Summary, find, summary
from rlplug_core.runs.policy import Policy, policy_of
from rlplug_core.runs.python_hints import add_python_notes
from rlplug_core.runs.reproducibility import absent_writers
from rlplug_core.runs.sources import names
from rlplug_core.runs.trust import require_seal
from rlplug_core.runs.watching import Showing, show_episodes
from rlplug_core.types import Array


class Run:
    """A run directory, by its path or as `RunDirectory`; its files are read when they are needed.

    `env` is its environment, if it cannot be imported by name or if it has moved. `trust` allows rlplug to execute code
    that came with the run and that another account wrote.
    """

    def __init__(
        self,
        directory: RunDirectory | Path | str,
        env: object = None,
        trust: bool = False,
    ) -> None:
        self.env = env
        self.trust = trust
        self.directory = (
            directory if isinstance(directory, RunDirectory) else RunDirectory.open(find(directory))
        )
        self.path = self.directory.path
        self.name = self.path.name
        self.journal = self.directory.journal_path

    def __repr__(self) -> str:
        description = self.summary()
        text = (
            description.problem
            or f"{description.algorithm} on {description.env}, seed {description.seed}"
        )
        return f"Run({self.name}: {text}, {description.status} at step {description.steps:,})"

    @property
    def config(self) -> dict[str, Any]:
        """Return the content of `config.json`."""
        return {**self.directory.config}

    @property
    def options(self) -> dict[str, Any]:
        """Return all options by dotted name."""
        return self.directory.config["options"]

    @property
    def status(self) -> str:
        """Return `running`, `finished`, `failed`, `interrupted`, or `killed`."""
        return self.directory.status()

    @property
    def checkpoints(self) -> list[str]:
        """Return the names of the checkpoints, in the order of their steps; an export has one."""
        if self.directory.is_export:
            from rlplug_core.export.bundle import read  # only exports need it

            return [f"best-{read(self.path).about.get('step', 0):012}"]
        return [
            saved.path.name
            for saved in reversed(Checkpoints(self.directory.checkpoints_path).kept())
        ]

    def summary(self) -> Summary:
        """Return a summary of the run: status, steps, best and last evaluation, final evaluation."""
        return summary(self.path)

    def curves(self, *names: str) -> dict[str, Array]:
        """Return metrics by name as columns, and their env steps as `step`; see `rlplug_core.runs.curves.columns`."""
        return tables.columns(self.journal, *names)

    def curve(self, name: str = "eval/return_mean") -> tuple[Array, Array]:
        """Return the env steps [R] of a metric's records, and its values [R].

        Raises:
            UsageError: the run has recorded metrics, but not this one.
        """
        steps, values = tables.curve(self.journal, name)
        if not len(steps) and (known := [metric for metric in self.curves() if metric != "step"]):
            raise UsageError(
                f"{self.name} has no curve '{name}'{did_you_mean(name, known)} (curves() has all)"
            )
        return steps, values

    def episodes(self) -> dict[str, Array]:
        """Return every training episode as columns: `steps`, `returns`, `lengths`, `workers`."""
        return tables.episodes(self.journal)

    @add_python_notes()
    @torch_defaults()
    def evaluate(
        self,
        episodes: int = 100,
        seed: int | None = None,
        checkpoint: str = "best",
        *,
        stochastic: bool = False,
        epsilon: float = 0.0,
        env: object = None,
        arguments: Mapping[str, object] | None = None,
        wrap: Sequence[str] | None = None,
    ) -> Evaluation:
        """Play episodes with a checkpoint's weights, in new environments.

        Args:
            episodes: number of episodes, each in its own environment.
            seed: of the environments; default: the seed of the run's final evaluation.
            checkpoint: `best`, `final`, `latest`, or one of `checkpoints`.
            stochastic: whether to explore as in training at the checkpoint's step; else greedily.
            epsilon: an additional probability of a random action per step.
            env: another environment with the same spaces, in any form that `train` takes.
            arguments: keyword arguments for it, or without `env` for the run's own.
            wrap: wrappers to use instead of the run's; `"none"` for none.
        """
        conditions = Conditions(
            checkpoint=checkpoint,
            stochastic=stochastic,
            epsilon=epsilon,
            env=env,
            arguments=arguments,
            wrap=wrap,
        )
        return evaluate_checkpoint(plan_of(self), self.directory, episodes, seed, conditions)

    @add_python_notes()
    @torch_defaults()
    def evaluate_all(
        self,
        episodes: int = 100,
        seed: int | None = None,
    ) -> dict[int, Evaluation]:
        """Play greedy episodes with every kept checkpoint, and return the evaluations by env step."""
        oldest_first = reversed(
            Checkpoints(self.directory.checkpoints_path).kept("final", "step", "best")
        )
        # Of several checkpoints at one step, the final one counts, then the periodic one.
        names = {saved.step: saved.path.name for saved in oldest_first}
        return {step: self.evaluate(episodes, seed, name) for step, name in names.items()}

    @add_python_notes()
    def record(
        self,
        path: Path | str,
        steps: int,
        *,
        num_envs: int = 1,
        seed: int | None = None,
        checkpoint: str = "best",
        stochastic: bool = False,
        epsilon: float = 0.0,
        env: object = None,
        arguments: Mapping[str, object] | None = None,
        wrap: Sequence[str] | None = None,
    ) -> Recording:
        """Play a checkpoint and write its transitions to a new data set, `path.npz`, for offline learning.

        Args:
            path: a file that does not exist yet.
            steps: environment steps, summed over `num_envs` environments; other arguments as in `evaluate`.

        Raises:
            UsageError: the file exists, the checkpoint does not, or the run is an export.
            NotWritten: the file cannot be written.
        """
        self.directory.require_run()
        conditions = Conditions(
            checkpoint=checkpoint,
            stochastic=stochastic,
            epsilon=epsilon,
            env=env,
            arguments=arguments,
            wrap=wrap,
        )
        return record(
            plan_of(self),
            self.directory,
            Path(path),
            steps,
            num_envs=num_envs,
            seed=seed,
            conditions=conditions,
        )

    @add_python_notes()
    @torch_defaults()
    def play(
        self,
        episodes: int = 1,
        seed: int | None = None,
        checkpoint: str = "best",
        *,
        video: Path | str | None = None,
        frames: Path | str | None = None,
        every: int = 1,
        fps: float | None = None,
        sheet: Path | str | None = None,
        stochastic: bool = False,
        epsilon: float = 0.0,
        env: object = None,
        arguments: Mapping[str, object] | None = None,
        wrap: Sequence[str] | None = None,
    ) -> Evaluation:
        """Play episodes one after the other and show them in a window, or write a video, pictures or a sheet instead.

        Args:
            video: a video file, `.mp4`, `.webp` or `.gif`.
            frames: a directory for numbered PNGs.
            every: write every this many frames to the video and the directory.
            fps: frames per second of the video; default: those of the environment.
            sheet: a PNG with frames of the best and the worst episode; other arguments as in `evaluate`.
        """
        showing = Showing(
            video=_path(video), frames=_path(frames), every=every, fps=fps, sheet=_path(sheet)
        )
        conditions = Conditions(
            checkpoint=checkpoint,
            stochastic=stochastic,
            epsilon=epsilon,
            env=env,
            arguments=arguments,
            wrap=wrap,
        )
        return show_episodes(
            plan_of(self),
            self.directory,
            showing,
            episodes=episodes,
            seed=seed,
            conditions=conditions,
        )

    @add_python_notes()
    def policy(
        self,
        checkpoint: str = "best",
        deterministic: bool = True,
    ) -> Policy:
        """Return the policy of a checkpoint or an export; see `rlplug_core.load`."""
        if self.directory.is_export:
            from rlplug_core.runs.exporting import load_export  # only exports need it

            return load_export(self.path, deterministic, self.trust)
        origin = partial(_policy, self.path, self.env, self.trust)
        return policy_of(plan_of(self), self.directory, checkpoint, deterministic, origin)

    @add_python_notes()
    @torch_defaults()
    def export(
        self,
        out: Path | str,
        checkpoint: str = "best",
        *,
        onnx: bool = False,
        torchscript: bool = False,
    ) -> Path:
        """Write the policy of a checkpoint into the new directory `out`: JSON, safetensors, a model card.

        `rlplug_core.load(out)` loads it without the algorithm's plugin. `onnx` also writes `policy.onnx`,
        `torchscript` writes `policy.pt`.
        """
        if self.directory.is_export:
            raise UsageError(f"{self.path} is an export already; copy its files")
        from rlplug_core.runs.exporting import export_policy  # only exports need it

        return export_policy(
            plan_of(self), self.directory, Path(out), checkpoint, onnx=onnx, torchscript=torchscript
        )


def open_run(
    run: Path | str | Run,
    out: Path | str = "runs",
    env: object = None,
    trust: bool = False,
) -> Run:
    """Return the run with this path, or with this name in `out`.

    Args:
        env: its environment, if it cannot be imported by name.
        trust: whether code that came with the run may be executed.

    Raises:
        UsageError: the run does not exist.
    """
    if isinstance(run, Run):
        return run if env is None else Run(run.directory, env, run.trust)
    return Run(RunDirectory.open(find(run, Path(out))), env, trust)


def plan_of(run: Run) -> Plan:
    """Return the plan of a run, with the run's own copies of files.

    Raises:
        Untrusted: it has its own code, which you have not trusted.
        UsageError: its environment cannot be imported by name, and `env` is missing.
    """
    if run.directory.is_export:
        from rlplug_core.runs.exports import export_plan  # only exports need it

        return export_plan(run.path, run.trust)
    config = run.directory.config
    if not run.trust:
        require_seal(run.path, config)
    algorithm, env, options = names(run.path, config)
    options = on_this_machine(options, warn)
    unnamed = config.get("unnamed")
    if run.env is None and unnamed:
        raise UsageError(
            f"run {run.name} was trained in {env}, {unnamed}; give it again in Python: "
            f'resume("{run.path}", env=…), open_run("{run.path}", env=…) or load("{run.path}", env=…)'
        )
    source = env if run.env is None else source_of(run.env)
    request = RunRequest.make(algorithm, source, options)
    if request.env.is_object:  # an object takes no arguments, so the recorded ones are left out
        request = RunRequest.make(algorithm, source, request.options)
    return _plan_with_install_line(run, request)


def _plan_with_install_line(run: Run, request: RunRequest) -> Plan:
    """Return the plan of a request; an error names the packages of the run that are not installed in its versions."""
    try:
        return Plan.of(request)
    except (UsageError, PluginError) as error:
        recorded = run.directory.config.get("environment") or {"versions": {}}
        packages = absent_writers(recorded["versions"])
        if not packages:
            raise
        kind = UsageError if isinstance(error, UsageError) else PluginError
        raise kind(
            f"{error}; run {run.name} was made with {', '.join(packages)}: python -m pip install {' '.join(packages)}"
        ) from error


def _policy(
    path: Path,
    env: object,
    trust: bool,
    checkpoint: str,
    deterministic: bool,
) -> Policy:
    """Return the policy of a run's checkpoint; a pickled `Policy` calls this when it is unpickled."""
    return Run(path, env, trust).policy(checkpoint, deterministic)


def _path(path: Path | str | None) -> Path | None:
    return None if path is None else Path(path)
