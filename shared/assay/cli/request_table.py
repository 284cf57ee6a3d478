"""Requests and outcomes of two process versions in a temporary file, so that memory is bounded."""

from __future__ import annotations

import itertools
import sqlite3
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, NamedTuple, Self

Kind = Literal["accepted", "fallback", "rejected"]

_TABLES = """
    PRAGMA journal_mode=OFF;
    PRAGMA synchronous=OFF;
    PRAGMA cache_size=-16000;
    PRAGMA temp_store=FILE;
    CREATE TABLE attempt (side INT, request TEXT, step TEXT, attempt INT,
      PRIMARY KEY (side, request, step, attempt)) WITHOUT ROWID;
    CREATE TABLE outcome (side INT, request TEXT, cursor INT, kind TEXT, score REAL, wallet TEXT,
      PRIMARY KEY (side, request)) WITHOUT ROWID;
"""
_INDEXES = """
    CREATE INDEX IF NOT EXISTS outcome_score ON outcome (side, kind, score);
    CREATE TABLE IF NOT EXISTS pair AS
      SELECT b.score - a.score AS delta FROM outcome a JOIN outcome b USING (request)
      WHERE a.side = 0 AND b.side = 1 AND a.kind = 'accepted' AND b.kind = 'accepted'
        AND a.score IS NOT NULL AND b.score IS NOT NULL;
    CREATE TEMP TABLE latest AS
      SELECT side, wallet, score, max(cursor) FROM outcome
      WHERE kind = 'accepted' AND score IS NOT NULL AND wallet IS NOT NULL GROUP BY side, wallet;
    CREATE INDEX latest_wallet ON latest (wallet, side);
    CREATE TABLE wallet_pair AS
      SELECT b.score - a.score AS delta FROM latest a JOIN latest b USING (wallet)
      WHERE a.side = 0 AND b.side = 1;
"""
# Source of a sample: what to select from, the value, and its parameters.
_SAMPLES = {
    "scores": ("outcome WHERE side = ? AND kind = 'accepted' AND score IS NOT NULL", "score"),
    "deltas": ("pair", "delta"),
    "wallet_deltas": ("wallet_pair", "delta"),
    "abs_deltas": ("pair", "abs(delta)"),
    "abs_wallet_deltas": ("wallet_pair", "abs(delta)"),
}


class Attempt(NamedTuple):
    """An answer of a model; `side` is 0 or 1. A repeated answer of one attempt counts once."""

    side: int
    request: str
    step: str
    attempt: int


class Ending(NamedTuple):
    """How a request ended; the one with the lowest cursor counts. Scores count where accepted."""

    side: int
    request: str
    cursor: int
    kind: Kind
    score: float | None
    wallet: str | None


class RequestTable:
    """Fill it, `close_books`, then ask. Not for use by two threads."""

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="assay-compare-")
        self._db = sqlite3.connect(Path(self._folder.name) / "requests.sqlite")
        self._db.executescript(_TABLES)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._db.close()
        self._folder.cleanup()

    def add_attempts(self, attempts: Iterable[Attempt]) -> None:
        self._db.executemany("INSERT OR IGNORE INTO attempt VALUES (?, ?, ?, ?)", attempts)

    def add_endings(self, endings: Iterable[Ending]) -> None:
        self._db.executemany(
            "INSERT INTO outcome VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
            " cursor = excluded.cursor, kind = excluded.kind, score = excluded.score,"
            " wallet = excluded.wallet WHERE excluded.cursor < cursor",
            endings,
        )

    def close_books(self) -> None:
        """Everything is in: pair what both sides have."""
        self._db.executescript(_INDEXES)

    def requests(self, side: int) -> int:
        """How many there are, ended or not."""
        return self._number(
            "SELECT count(*) FROM (SELECT request FROM attempt WHERE side = ?1"
            " UNION SELECT request FROM outcome WHERE side = ?1)",
            side,
        )

    def retried(self, side: int) -> int:
        """Requests of which a step was asked again."""
        return self._number(
            "SELECT count(DISTINCT request) FROM attempt WHERE side = ? AND attempt > 1", side
        )

    def attempts(self, side: int) -> tuple[int, int]:
        """Answers, and the (request, step) pairs that they are of."""
        answers = self._number("SELECT count(*) FROM attempt WHERE side = ?", side)
        asked = self._number(
            "SELECT count(*) FROM (SELECT DISTINCT request, step FROM attempt WHERE side = ?)", side
        )
        return answers, asked

    def ended(self, side: int) -> dict[str, int]:
        """Requests by how they ended."""
        return dict(
            self._db.execute(
                "SELECT kind, count(*) FROM outcome WHERE side = ? GROUP BY kind", (side,)
            ).fetchall()
        )

    def count(self, sample: str, *side: int) -> int:
        """How many values a sample has: scores of a side, deltas, wallet_deltas, abs_…"""
        return self._number(f"SELECT count(*) FROM {_SAMPLES[sample][0]}", *side)  # noqa: S608

    def mean(self, sample: str, *side: int) -> float:
        source, value = _SAMPLES[sample]
        row = self._db.execute(f"SELECT avg({value}) FROM {source}", side).fetchone()  # noqa: S608
        return float(row[0])

    def at(self, sample: str, places: Sequence[int], *side: int) -> list[float]:
        """The values at these places of the sorted sample, from 0."""
        source, value = _SAMPLES[sample]
        sql = f"SELECT {value} FROM {source} ORDER BY 1 LIMIT 1 OFFSET ?"  # noqa: S608
        return [float(self._db.execute(sql, (*side, at)).fetchone()[0]) for at in places]

    def between(self, edges: Sequence[float], side: int) -> list[int]:
        """Scores of a side in each [edge, next edge), the last one closed."""
        source, _ = _SAMPLES["scores"]
        sql = f"SELECT count(*) FROM {source} AND score >= ? AND score < ?"  # noqa: S608
        last = f"SELECT count(*) FROM {source} AND score >= ? AND score <= ?"  # noqa: S608
        bins = list(itertools.pairwise(edges))
        return [
            self._number(last if number == len(bins) else sql, side, low, high)
            for number, (low, high) in enumerate(bins, 1)
        ]

    def _number(self, sql: str, *values: float) -> int:
        return int(self._db.execute(sql, values).fetchone()[0])
