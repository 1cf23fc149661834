-- Version 2: rows with fewer columns, bodies that copies share, marks of transfers between stores.
--
-- `row_1_checksum` and `row_1_more` are functions of first_rows.py: they pack the columns that are gone, and give a row
-- that was damaged a checksum that no row has.

DROP INDEX deferred_sessions;
DROP INDEX scheduled_due;
DROP INDEX scheduled_sessions;
ALTER TABLE messages RENAME TO messages_1;
ALTER TABLE deferred RENAME TO deferred_1;
ALTER TABLE scheduled RENAME TO scheduled_1;

CREATE TABLE messages (
    key INTEGER PRIMARY KEY,
    enqueued_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    more BLOB,
    bare ANY NOT NULL
) STRICT;

INSERT INTO messages
SELECT
    key,
    coalesce(CAST(enqueued_at AS INTEGER), 0),
    coalesce(CAST(expires_at AS INTEGER), 0),
    row_1_checksum(
        CAST(checksum AS INTEGER), key, CAST(enqueued_at AS INTEGER), CAST(expires_at AS INTEGER), CAST(bare AS BLOB),
        CAST(delivery_count AS INTEGER), CAST(ttl AS INTEGER), CAST(scheduled_at AS INTEGER),
        CAST(session_id AS BLOB), CAST(partition_key AS BLOB), CAST(message_id AS BLOB), CAST(head AS BLOB),
        CAST(changes AS BLOB)
    ),
    row_1_more(
        CAST(delivery_count AS INTEGER), CAST(ttl AS INTEGER), CAST(scheduled_at AS INTEGER),
        CAST(session_id AS BLOB), CAST(partition_key AS BLOB), CAST(message_id AS BLOB), CAST(head AS BLOB),
        CAST(changes AS BLOB)
    ),
    coalesce(CAST(bare AS BLOB), x'')
FROM messages_1;

CREATE TABLE deferred (
    key INTEGER PRIMARY KEY,
    enqueued_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    session_id TEXT,
    scheduled_at INTEGER NOT NULL,
    more BLOB,
    bare ANY NOT NULL
) STRICT;

INSERT INTO deferred
SELECT
    key,
    coalesce(CAST(enqueued_at AS INTEGER), 0),
    coalesce(CAST(expires_at AS INTEGER), 0),
    row_1_checksum(
        CAST(checksum AS INTEGER), key, CAST(enqueued_at AS INTEGER), CAST(expires_at AS INTEGER), CAST(bare AS BLOB),
        CAST(delivery_count AS INTEGER), CAST(ttl AS INTEGER), CAST(scheduled_at AS INTEGER),
        CAST(session_id AS BLOB), CAST(partition_key AS BLOB), CAST(message_id AS BLOB), CAST(head AS BLOB),
        CAST(changes AS BLOB)
    ),
    CAST(session_id AS TEXT),
    coalesce(CAST(scheduled_at AS INTEGER), 0),
    row_1_more(
        CAST(delivery_count AS INTEGER), CAST(ttl AS INTEGER), CAST(scheduled_at AS INTEGER),
        CAST(session_id AS BLOB), CAST(partition_key AS BLOB), CAST(message_id AS BLOB), CAST(head AS BLOB),
        CAST(changes AS BLOB)
    ),
    coalesce(CAST(bare AS BLOB), x'')
FROM deferred_1;

CREATE TABLE scheduled (
    key INTEGER PRIMARY KEY,
    enqueued_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    session_id TEXT,
    scheduled_at INTEGER NOT NULL,
    more BLOB,
    bare ANY NOT NULL
) STRICT;

INSERT INTO scheduled
SELECT
    key,
    coalesce(CAST(enqueued_at AS INTEGER), 0),
    coalesce(CAST(expires_at AS INTEGER), 0),
    row_1_checksum(
        CAST(checksum AS INTEGER), key, CAST(enqueued_at AS INTEGER), CAST(expires_at AS INTEGER), CAST(bare AS BLOB),
        CAST(delivery_count AS INTEGER), CAST(ttl AS INTEGER), CAST(scheduled_at AS INTEGER),
        CAST(session_id AS BLOB), CAST(partition_key AS BLOB), CAST(message_id AS BLOB), CAST(head AS BLOB),
        CAST(changes AS BLOB)
    ),
    CAST(session_id AS TEXT),
    coalesce(CAST(scheduled_at AS INTEGER), 0),
    row_1_more(
        CAST(delivery_count AS INTEGER), CAST(ttl AS INTEGER), CAST(scheduled_at AS INTEGER),
        CAST(session_id AS BLOB), CAST(partition_key AS BLOB), CAST(message_id AS BLOB), CAST(head AS BLOB),
        CAST(changes AS BLOB)
    ),
    coalesce(CAST(bare AS BLOB), x'')
FROM scheduled_1;

DROP TABLE messages_1;
DROP TABLE deferred_1;
DROP TABLE scheduled_1;

CREATE INDEX deferred_sessions ON deferred (session_id) WHERE session_id IS NOT NULL;

CREATE INDEX scheduled_due ON scheduled (scheduled_at);

CREATE INDEX scheduled_sessions ON scheduled (session_id) WHERE session_id IS NOT NULL;

CREATE TABLE payloads (
    id INTEGER PRIMARY KEY,
    bare BLOB NOT NULL
) STRICT;

CREATE TABLE payload_references (
    payload INTEGER PRIMARY KEY,
    weight INTEGER NOT NULL
) STRICT;

CREATE TABLE sharing_fragments (
    key INTEGER PRIMARY KEY
) STRICT;

CREATE TABLE transfer_marks (
    source_store TEXT NOT NULL,
    source_fragment INTEGER NOT NULL,
    source_number INTEGER NOT NULL,
    PRIMARY KEY (source_store, source_fragment, source_number)
) STRICT, WITHOUT ROWID;

PRAGMA user_version = 2;
