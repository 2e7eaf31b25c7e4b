"""Tables of cases in one test, which names every row that fails."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

Test = Callable[..., None]


def for_each(names: str, rows: Iterable[Any]) -> Callable[[Test], Test]:
    """Call a test with each row of a table, in one test: `pytest.mark.parametrize` makes a test of each row.

    Args:
        names: the parameters that a row gives, separated by commas.
        rows: tuples of values, or single values if there is one name.

    Raises:
        ExceptionGroup: one exception, with the row as its note, for each row that fails.
    """
    parameters = [name.strip() for name in names.split(",")]
    cases = [row if len(parameters) > 1 else (row,) for row in rows]
    assert cases, "the table is empty"

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def every(**fixtures: Any) -> None:
            faults: list[Exception] = []
            for number, case in enumerate(cases):
                row = dict(zip(parameters, case, strict=True))
                try:
                    test(**fixtures, **row)
                except Exception as error:  # noqa: BLE001 - all rows are run, then all faults are raised
                    error.add_note(f"row {number}: {row}")
                    faults.append(error)
            if faults:
                raise ExceptionGroup(f"{len(faults)} of {len(cases)} rows fail", faults)

        signature = inspect.signature(test)
        rest = [one for name, one in signature.parameters.items() if name not in parameters]
        every.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]
        return every

    return decorate
