"""Find modules that are not installed: next to a script or a file, or in the working directory."""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path

#: The folders of installed packages; every process finds their modules.
INSTALLED = {"site-packages", "dist-packages"}
#: Folders that rlplug added to the import path, newest last; and the number of them that a message names.
_ADDED: list[Path] = []
SHOWN = 3


def search_folder(folder: Path) -> None:
    """Let imports find the modules of a folder, after all installed ones."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
        _ADDED.append(folder)


def where_searched() -> str:
    """Return the end of a sentence about a missing module: the searched folders and the remedy."""
    folders = [
        str(folder) if folder.is_dir() else f"{folder}, which is gone" for folder in _ADDED[-SHOWN:]
    ]
    searched = f" (looked in {'; '.join(folders)})" if folders else ""
    return f"{searched}; install it, or say where it is: PYTHONPATH=FOLDER"


def search_working_directory(module: str) -> None:
    """Let imports find a module in the working directory, if no other folder has it."""
    top = module.partition(".")[0]
    if _is_here(top) and top not in sys.modules and find_spec(top) is None:
        search_folder(Path.cwd())


def is_local(module: str) -> bool:
    """Return whether the working directory has this module and no other folder of the import path does."""
    top = module.partition(".")[0]
    if not (top.isidentifier() and _is_here(top)):
        return False
    here = Path.cwd()
    other_folders = [folder for folder in sys.path if folder and Path(folder).resolve() != here]
    spec = PathFinder.find_spec(top, other_folders)
    # A folder without __init__.py has no origin: Python would merge it with the folder of this name here.
    return spec is None or spec.origin is None


def _is_here(top: str) -> bool:
    return Path(top).is_dir() or Path(f"{top}.py").is_file()


def folder_of(target: str) -> Path | None:
    """Return the folder of the module of `module:Name`; None if it is installed or not imported."""
    top = sys.modules.get(target.partition(":")[0].partition(".")[0])
    spec = None if top is None else top.__spec__
    if spec is None or spec.origin is None:
        return None
    inside = Path(spec.origin).resolve().parent
    folder = inside if spec.submodule_search_locations is None else inside.parent
    return None if INSTALLED & set(folder.parts) else folder
