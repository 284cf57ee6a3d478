"""The evidence tables in PostgreSQL."""

from __future__ import annotations

MIGRATIONS = (
    """
    CREATE TABLE evidence (
      id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
      shard int NOT NULL, seq bigint NOT NULL,
      event_id text NOT NULL UNIQUE, type text NOT NULL,
      request_id text, wallet text, timestamp_ms bigint NOT NULL,
      topic text NOT NULL, partition int NOT NULL, "offset" bigint NOT NULL,
      headers bytea NOT NULL, salt bytea, value bytea, leaf_hash bytea NOT NULL,
      UNIQUE (shard, seq));
    CREATE INDEX evidence_request ON evidence (request_id, id);
    CREATE INDEX evidence_wallet ON evidence (wallet, id);
    CREATE INDEX evidence_type ON evidence (type, id);
    CREATE INDEX evidence_time ON evidence (timestamp_ms);
    CREATE TABLE evidence_consumed (
      topic text NOT NULL, partition int NOT NULL, next_offset bigint NOT NULL,
      PRIMARY KEY (topic, partition));
    CREATE TABLE evidence_shard (shard int PRIMARY KEY, next_seq bigint NOT NULL);
    CREATE FUNCTION evidence_refuse() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN RAISE EXCEPTION 'evidence is append-only'; END $$;
    CREATE TRIGGER evidence_never_deleted BEFORE DELETE ON evidence
      FOR EACH ROW EXECUTE FUNCTION evidence_refuse();
    CREATE TRIGGER evidence_never_changed BEFORE UPDATE OF
      shard, seq, event_id, type, topic, partition, "offset", headers, leaf_hash ON evidence
      FOR EACH ROW EXECUTE FUNCTION evidence_refuse();
    """,
    # Erasure empties value, salt and headers, once, and names the row that says so. A type since
    # a time: the rows before it are passed over in the index.
    """
    ALTER TABLE evidence ADD COLUMN erased_by text REFERENCES evidence (event_id);
    DROP TRIGGER evidence_never_changed ON evidence;
    CREATE TRIGGER evidence_never_changed BEFORE UPDATE OF
      shard, seq, event_id, type, topic, partition, "offset", leaf_hash ON evidence
      FOR EACH ROW EXECUTE FUNCTION evidence_refuse();
    CREATE TRIGGER evidence_only_erased BEFORE UPDATE OF value, salt, headers, erased_by ON evidence
      FOR EACH ROW WHEN (NOT (NEW.value IS NULL AND NEW.salt IS NULL AND length(NEW.headers) = 0
        AND OLD.erased_by IS NULL AND NEW.erased_by IS NOT NULL))
      EXECUTE FUNCTION evidence_refuse();
    DROP INDEX evidence_type;
    CREATE INDEX evidence_type ON evidence (type, id, timestamp_ms);
    """,
)
