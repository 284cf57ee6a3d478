"""What a supervisor reads in the log of a part (issue 3 item 5, DESIGN §8)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deploy.dev.part_log import PartLog

OVERRUN = json.dumps(
    {"event": "retention_overrun", "topic": "wallet.event.accepted.v1", "lost_records": 7}
)


def _log(path: Path, text: bytes) -> PartLog:
    path.write_bytes(text)
    return PartLog(path)


def test_lost_records_are_said_once(tmp_path: Path) -> None:
    """DESIGN §8: an overrun is noticed and said; half a line is not read before it is whole,
    whatever bytes stand around it."""
    path = tmp_path / "x.log"
    log = PartLog(path)
    assert log.news() == []
    half = OVERRUN.encode()[:30]
    path.write_bytes(b"\xff\xfe rubbish\n" + half)
    assert log.news() == []
    path.write_bytes(b"\xff\xfe rubbish\n" + OVERRUN.encode() + b'\n"retention_overrun"\n{"a')
    [said] = log.news()
    assert "LOST 7 records of wallet.event.accepted.v1" in said
    assert log.news() == []


def test_a_line_counts_once_it_is_whole(tmp_path: Path) -> None:
    """Issue 3: the ready line of a service is parsed as JSON."""
    log = _log(tmp_path / "x.log", b'x\nassay-ready {"http": "http:')
    assert log.line("assay-ready ") is None
    with (tmp_path / "x.log").open("ab") as file:
        file.write(b'//h"}\n')
    assert log.line("assay-ready ") == 'assay-ready {"http": "http://h"}'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "it wrote nothing"),
        (b"signer: settings are not usable\nASSAY_SIGNER__KEY: missing\n", "ASSAY_SIGNER__KEY: m"),
        (b'{"event": "stopped_by_failure", "reason": "producer fenced"}\n', "producer fenced"),
        (b'{"event": "crashed", "exception": "Traceback\\n  x\\nKeyError: 1\\n"}', "KeyError: 1"),
        (b'{"event": "crashed", "exception": "  | ValueError: 2\\n    +------\\n"}',
         "ValueError: 2"),
        (b"[1]\n\n", "[1]"),
        (b"\xff\n", "\ufffd"),
    ],
)  # fmt: skip
def test_last_words_are_one_line(tmp_path: Path, text: bytes, words: str) -> None:
    """Issue 3: why a part ended, for a person."""
    said = _log(tmp_path / "x.log", text).last_words()
    assert said.startswith(words)
    assert "\n" not in said


def test_an_absent_log_is_empty(tmp_path: Path) -> None:
    """A part that has just been started may not have written yet."""
    log = PartLog(tmp_path / "none.log")
    assert (log.line("x"), log.news(), log.last_words()) == (None, [], "it wrote nothing")
