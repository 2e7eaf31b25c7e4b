"""Readers of long journals return the same records as a reader of all lines, for any block size and damage."""

from __future__ import annotations

import json
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from rlplug_core.runs import journal_reader
from rlplug_core.runs.journal import Journal, Record, locate, read, read_backwards, tail, valid_records
from rlplug_core.runs.listing import is_untrained, summary
from rlplug_core.runs.schemas import parse_record

KINDS = ("start", "metrics", "episodes", "evaluation", "final_eval", "tag", "end")
DATA: dict[str, Callable[[random.Random, int], dict[str, object]]] = {
    "start": lambda draw, seq: {"after": draw.randrange(seq)} if draw.random() < 0.8 else {},
    "metrics": lambda draw, seq: {"loss": draw.random(), "text": '"kind":"start"'},
    "episodes": lambda draw, seq: {"steps": [1], "returns": [1.0], "lengths": [1], "workers": [0]},
    "evaluation": lambda draw, seq: {"eval/return_mean": draw.random()},
    "final_eval": lambda draw, seq: {"checkpoint": "best", "return_mean": draw.random()},
    "tag": lambda draw, seq: {"name": "x" * draw.randrange(400)},
    "end": lambda draw, seq: {"status": "finished"},
}


def write_journal(path: Path, seed: int) -> None:
    """Write a journal with resumes, torn and changed lines, and numbers that a bit changed."""
    draw = random.Random(seed)
    lines = []
    for seq in range(1, draw.randrange(2, 60)):
        kind = draw.choice(KINDS)
        line = {"seq": seq, "time": seq, "kind": kind, "step": draw.randrange(9), "data": DATA[kind](draw, seq)}
        if draw.random() < 0.05:
            line["seq"] = draw.randrange(1000)
        text = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        damaged = draw.choice((text[: len(text) // 2], b"\0" * 50 + b"\n", b"{}\n"))
        lines.append(text if draw.random() < 0.9 else damaged)
    path.write_bytes(b"".join(lines))


def all_records(path: Path) -> list[Record]:
    lines = path.read_bytes().splitlines(keepends=True)
    return [record for line in lines if (record := parse_record(line)) is not None]


@pytest.mark.parametrize("block", [64, 700, 2**20])
def test_readers_skip_superseded_records(block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_reader, "BLOCK", block)
    path = tmp_path / "journal.jsonl"
    for seed in range(60):
        write_journal(path, seed)
        expected = valid_records(all_records(path))
        assert list(read(path)) == expected
        assert list(read_backwards(path)) == expected[::-1]
        for kinds in (("end",), ("metrics", "evaluation"), ("start", "final_eval")):
            chosen = [record for record in expected if record.kind in kinds and record.seq > 5]
            assert list(read(path, 5, kinds)) == chosen
            assert [record for record in read_backwards(path, kinds) if record.seq > 5] == chosen[::-1]


@pytest.mark.parametrize("block", [64, 700, 2**20])
def test_locates_record_by_number(block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_reader, "BLOCK", block)
    path = tmp_path / "journal.jsonl"
    for seed in range(60):
        write_journal(path, seed)
        records = {record.seq: (record, position) for record, position in tail(path, 0, 0)}
        for number in range(65):
            found = locate(path, number)
            # A reader from the start does not trust a record after several damaged lines.
            assert found == records.get(number) or (number not in records and found[0] in all_records(path))
        again = Journal(path)
        assert max(records, default=0) <= again.seq < 60
        again.close()


LINES = 40_000


@pytest.fixture(scope="module")
def long_journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a journal of many lines, resumed once near its end."""
    run = tmp_path_factory.mktemp("long")
    config = {"name": "long", "uid": "1", "group": "1", "algorithm": "a2c", "env": "E", "options": {}, "created": 1.0}
    (run / "config.json").write_text(json.dumps(config))
    with (run / "journal.jsonl").open("w") as file:
        for seq in range(1, LINES + 1):
            kind = "metrics"
            data = {"loss": 0.5, "perf/updates": seq, "perf/wall_s": seq / 10}
            if seq in (1, LINES - 100):
                kind = "start"
                data = {"after": max(0, seq - 1000)}
            line = {"seq": seq, "time": seq, "kind": kind, "step": seq, "data": data}
            file.write(json.dumps(line, separators=(",", ":")) + "\n")
    return run


def test_memory_of_reader_does_not_grow_with_journal(long_journal: Path) -> None:
    """A million lines would take a gigabyte; each of these readers takes a few blocks."""
    path = long_journal / "journal.jsonl"
    tracemalloc.start()
    try:
        assert sum(1 for _ in read(path, kinds=("metrics",))) == LINES - 2 - 999
        assert summary(long_journal).steps == LINES
        Journal(path, LINES - 1000).close()
        assert tracemalloc.get_traced_memory()[1] < 6 * journal_reader.BLOCK
    finally:
        tracemalloc.stop()


def test_resume_parses_few_lines_of_long_journal(long_journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resume once parsed every line several times: 81 seconds for a million lines."""
    monkeypatch.setattr(journal_reader, "BLOCK", 2**14)
    parse = Mock(wraps=parse_record)
    monkeypatch.setattr(journal_reader, "parse_record", parse)
    assert summary(long_journal).seconds == LINES / 10
    assert not is_untrained(long_journal)
    journal = Journal(long_journal / "journal.jsonl", LINES - 1000)
    assert (journal.seq, journal.after) == (LINES, LINES - 1000)
    again = journal.write("metrics", LINES - 500, {"loss": 0.5})
    assert again.time == LINES - 500  # a repeated measurement keeps its time
    journal.close()
    assert parse.call_count < LINES // 20
