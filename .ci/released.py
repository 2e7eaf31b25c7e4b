"""Build the wheels of released versions from the commits that released them, for `nox -s compat`.

python .ci/released.py FOLDER      # FOLDER/VERSION/NAME-VERSION-py3-none-any.whl
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
#: For each release, the commit and the folders of its packages.
RELEASES = Path(__file__).with_name("released.toml")


def main() -> None:
    """Build the wheels of all releases that are not in the folder yet."""
    store = Path(sys.argv[1]).absolute()
    for version, release in tomllib.loads(RELEASES.read_text(encoding="utf-8")).items():
        if not (store / version).is_dir():
            build(release["commit"], release["packages"], store / version)


def build(commit: str, packages: list[str], out: Path) -> None:
    """Build the wheels of the packages of a commit.

    Raises:
        subprocess.CalledProcessError: git does not have the commit, or a wheel cannot be built.
    """
    command = ["git", "-C", str(ROOT), "archive", commit, *packages]
    archive = subprocess.run(command, check=True, capture_output=True).stdout
    with TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(folder, filter="data")
        for package in packages:
            words = ["-m", "hatchling", "build", "--target", "wheel", "--directory", str(out)]
            subprocess.run([sys.executable, *words], check=True, cwd=Path(folder, package))


if __name__ == "__main__":
    main()
