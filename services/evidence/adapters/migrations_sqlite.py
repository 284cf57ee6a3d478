"""The evidence tables in SQLite."""

from __future__ import annotations

MIGRATIONS = (
    """
    CREATE TABLE evidence (
      id INTEGER PRIMARY KEY AUTOINCREMENT,
      shard INTEGER NOT NULL, seq INTEGER NOT NULL,
      event_id TEXT NOT NULL UNIQUE, type TEXT NOT NULL,
      request_id TEXT, wallet TEXT, timestamp_ms INTEGER NOT NULL,
      topic TEXT NOT NULL, partition INTEGER NOT NULL, "offset" INTEGER NOT NULL,
      headers BLOB NOT NULL, salt BLOB, value BLOB, leaf_hash BLOB NOT NULL,
      UNIQUE (shard, seq));
    CREATE INDEX evidence_request ON evidence (request_id, id);
    CREATE INDEX evidence_wallet ON evidence (wallet, id);
    CREATE INDEX evidence_type ON evidence (type, id);
    CREATE INDEX evidence_time ON evidence (timestamp_ms);
    CREATE TABLE consumed (
      topic TEXT NOT NULL, partition INTEGER NOT NULL, next_offset INTEGER NOT NULL,
      PRIMARY KEY (topic, partition));
    """,
    """
    CREATE TRIGGER evidence_never_deleted BEFORE DELETE ON evidence
      BEGIN SELECT RAISE(ABORT, 'evidence is append-only'); END
    """,
    """
    CREATE TRIGGER evidence_never_changed BEFORE UPDATE OF
      id, shard, seq, event_id, type, topic, partition, "offset", headers, leaf_hash ON evidence
      BEGIN SELECT RAISE(ABORT, 'evidence is append-only'); END
    """,
    # Erasure empties value, salt and headers, once, and names the row that says so.
    """
    ALTER TABLE evidence ADD COLUMN erased_by TEXT;
    DROP TRIGGER evidence_never_changed;
    CREATE TRIGGER evidence_never_changed BEFORE UPDATE OF
      id, shard, seq, event_id, type, topic, partition, "offset", leaf_hash ON evidence
      BEGIN SELECT RAISE(ABORT, 'evidence is append-only'); END
    """,
    """
    CREATE TRIGGER evidence_only_erased BEFORE UPDATE OF value, salt, headers, erased_by ON evidence
      WHEN NOT (NEW.value IS NULL AND NEW.salt IS NULL AND length(NEW.headers) = 0
        AND OLD.erased_by IS NULL
        AND EXISTS (SELECT 1 FROM evidence WHERE event_id = NEW.erased_by))
      BEGIN SELECT RAISE(ABORT, 'evidence is append-only'); END
    """,
    # A type since a time: the rows before it are passed over in the index.
    """
    DROP INDEX evidence_type;
    CREATE INDEX evidence_type ON evidence (type, id, timestamp_ms);
    """,
)
