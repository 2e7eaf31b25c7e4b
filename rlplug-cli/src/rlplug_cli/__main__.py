"""The entry point; it can answer Ctrl-C before it imports anything."""

from __future__ import annotations

import sys


def main(arguments: list[str] | tuple[str, ...] | None = None) -> int:
    """Run the command line and return the exit code.

    0: done. 1: the run or the command failed. 2: usage. 3: plugin. 128 + number: a signal (130, 143, …). 141: nothing
    reads the output any longer; commands that train ignore that.
    """
    try:
        from rlplug_cli.invoke import run_command

        return run_command(
            list(sys.argv[1:] if arguments is None else arguments), whole_process=arguments is None
        )
    except KeyboardInterrupt:  # during an import, or during the handling of another
        print("rlplug: stopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
