"""The journal holds only whole lines, and a resumed run repeats no record."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlplug_core.runs.journal import Journal, Record, read, read_backwards


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


def test_records_are_numbered_lines(path: Path) -> None:
    journal = Journal(path)
    first = journal.write("start", 0, {"a": 1})
    journal.write("metrics", 10, {"loss": 0.5, "worst": float("inf")})
    records = list(read(path))
    assert records[0] == first
    assert [(r.seq, r.kind, r.step) for r in records] == [(1, "start", 0), (2, "metrics", 10)]
    assert records[0].time <= records[1].time
    assert records[1].data == {"loss": 0.5, "worst": float("inf")}
    assert [r.seq for r in read(path, after=1)] == [2]
    assert all(json.loads(line) for line in path.read_text().splitlines())
    journal.close()


WHOLE = '{"seq":3,"time":1,"kind":"tag","step":0,"data":{"where":"Zürich"}}\n'.encode()
CUT = WHOLE.index(b"\xbc")  # in the middle of a character


@pytest.mark.parametrize(
    "torn", [b"{", WHOLE[:20], WHOLE[:CUT], WHOLE[:-1], b"\0\0\0\0", b"\xff\xfe", b"\xff\n", b"[3]\n", b'{"seq":3}\n']
)
def test_skips_partial_lines(path: Path, torn: bytes) -> None:
    """Earlier records stay, and the next record starts a new line; a line counts only if it ends with a newline."""
    journal = Journal(path)
    journal.write("start", 0, {})
    journal.write("metrics", 1, {})
    journal.close()
    before = path.read_bytes()
    path.write_bytes(before + torn)
    assert [r.seq for r in read(path)] == [1, 2]
    again = Journal(path, 1)
    again.write("metrics", 2, {})
    again.close()
    assert [r.seq for r in read(path)] == [1, 2, 3]
    complete_line = torn if torn.endswith(b"\n") else b""
    assert path.read_bytes().startswith(before + complete_line + b'{"seq":3,')


def test_resumes_empty_or_missing_journal(path: Path) -> None:
    assert [*read(path), *read_backwards(path)] == []
    Journal(path, 5).close()
    assert list(read(path)) == []
    path.write_text('{"se')
    journal = Journal(path, 5)
    journal.write("start", 5, {})
    journal.close()
    assert [r.seq for r in read(path)] == [1]


def write_and_reopen(path: Path, steps: list[int], after: int, monkeypatch: pytest.MonkeyPatch) -> Journal:
    """Write metrics at these steps; return the journal that a run with `after` records in its checkpoint reopens."""
    monkeypatch.setattr("time.time", lambda: 1000.0)
    journal = Journal(path)
    for step in steps:
        journal.write("metrics", step, {"loss": step / 10, "perf/speed": 1.0})
    journal.close()
    monkeypatch.setattr("time.time", lambda: 2000.0)
    return Journal(path, after)


def test_repeated_records_keep_their_first_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = write_and_reopen(path, [10, 20, 30], 1, monkeypatch)
    again = journal.write("metrics", 20, {"loss": 2.0, "perf/speed": 5.0})
    assert again == Record(4, 1_000_000, "metrics", 20, {"loss": 2.0, "perf/speed": 1.0})  # a time was measured once
    more = journal.write("metrics", 30, {"loss": 3.0, "perf/speed": 5.0, "new": 1})
    assert more == Record(5, 1_000_000, "metrics", 30, {"loss": 3.0, "perf/speed": 1.0, "new": 1})
    new = journal.write("metrics", 40, {"loss": 4.0, "perf/speed": 5.0})
    assert new == Record(6, 2_000_000, "metrics", 40, {"loss": 4.0, "perf/speed": 5.0})
    journal.close()


def test_does_not_compare_records_before_the_checkpoint(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = write_and_reopen(path, [10], 1, monkeypatch)
    assert journal.write("metrics", 10, {"loss": 9.0}) == Record(2, 2_000_000, "metrics", 10, {"loss": 9.0})
    journal.close()


def test_second_interruption_keeps_first_times(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = write_and_reopen(path, [20], 0, monkeypatch)
    journal.write("metrics", 20, {"loss": 2.0})
    journal.close()
    third = Journal(path, 0)
    again = third.write("metrics", 20, {"loss": 2.0})
    assert again is not None
    assert again.time == 1_000_000
    third.close()


VALUES = st.one_of(st.text(), st.floats(allow_nan=False), st.booleans())


@settings(max_examples=60, deadline=None)
@given(st.lists(st.dictionaries(st.text(max_size=5), VALUES)))
def test_round_trips_any_data(data: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "journal.jsonl"
        journal = Journal(path)
        for content in data:
            journal.write("tag", 0, content)
        journal.close()
        assert [record.data for record in read(path)] == data
