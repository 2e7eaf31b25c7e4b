"""`rlplug export RUN`."""

from __future__ import annotations

from pathlib import Path

import click

from rlplug_cli.completion import runs
from rlplug_cli.evaluation_options import checkpoint_option
from rlplug_cli.file_checks import refuse_link
from rlplug_cli.notes import short_path
from rlplug_cli.output import echo
from rlplug_cli.shared_options import FOLDER
from rlplug_cli.trust import open_run, trust_option
from rlplug_core.runs import find_run, shell_word


@click.command("export")
@click.argument(
    "run",
    shell_complete=runs,
)
@click.option(
    "--out",
    type=FOLDER,
    help="Where to write the files  [RUN/export]",
)
@checkpoint_option
@click.option(
    "--onnx",
    is_flag=True,
    help="Also write policy.onnx (needs 'rlplug-cli[onnx]').",
)
@click.option(
    "--torchscript",
    is_flag=True,
    help="Also write policy.pt, for LibTorch.",
)
@click.option(
    "--mlflow",
    is_flag=True,
    help="Also write an MLflow model, for 'mlflow models serve'.",
)
@trust_option
def command(
    run: str,
    out: Path | None,
    checkpoint: str,
    onnx: bool,
    torchscript: bool,
    mlflow: bool,
    trust: bool,
) -> None:
    """Write the policy of RUN to separate files: safetensors, JSON and a model card; they do not need its algorithm."""
    opened_run = open_run(run, trust)
    from rlplug_core.export import new_directory

    target = out or find_run(run) / "export"
    if out is None:
        refuse_link(target)  # someone else may have put it there
    with new_directory(target, follow=out is not None) as temporary:
        opened_run.export(temporary, checkpoint, onnx=onnx, torchscript=torchscript)
        if mlflow:
            from rlplug_cli.mlflow.model import save

            save(temporary)
    echo(f"export   {short_path(target)}")
    for file in sorted(path for path in target.iterdir() if path.is_file()):
        echo(f"         {file.name}  {file.stat().st_size:,} bytes")
    if mlflow:
        echo(
            f"serve    mlflow models serve --model-uri {shell_word(short_path(target / 'mlflow'))} --env-manager local"
        )
    echo(f'python   rlplug_core.load("{short_path(target)}")')
