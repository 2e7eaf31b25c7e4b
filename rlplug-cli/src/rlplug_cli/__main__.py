"""The entry point: it imports nothing before it can answer Ctrl-C."""

from __future__ import annotations

import sys


def main(arguments: list[str] | tuple[str, ...] | None = None) -> int:
    """Run the command line; returns the exit code.

    0 done, 1 the run or the command failed, 2 usage, 3 plugin, 128 + its number for a signal (130, 143, …); 141 where
    nobody reads on what a command says, which stops none that trains.
    """
    try:
        from rlplug_cli.invoke import called

        return called(
            list(sys.argv[1:] if arguments is None else arguments), whole=arguments is None
        )
    except KeyboardInterrupt:  # in an import, or while what answers it there is at work
        print("rlplug: stopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
