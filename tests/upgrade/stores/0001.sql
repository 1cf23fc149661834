-- A store of schema 1 with a message in each place.
BEGIN;
CREATE TABLE messages (
    key INTEGER PRIMARY KEY,
    enqueued_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    delivery_count INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    ttl INTEGER NOT NULL,
    scheduled_at INTEGER NOT NULL,
    session_id TEXT,
    partition_key TEXT,
    message_id TEXT,
    head BLOB NOT NULL,
    changes BLOB,
    bare BLOB NOT NULL
) STRICT;
CREATE TABLE deferred (
    key INTEGER PRIMARY KEY,
    enqueued_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    delivery_count INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    ttl INTEGER NOT NULL,
    scheduled_at INTEGER NOT NULL,
    session_id TEXT,
    partition_key TEXT,
    message_id TEXT,
    head BLOB NOT NULL,
    changes BLOB,
    bare BLOB NOT NULL
) STRICT;
CREATE TABLE scheduled (
    key INTEGER PRIMARY KEY,
    enqueued_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    delivery_count INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    ttl INTEGER NOT NULL,
    scheduled_at INTEGER NOT NULL,
    session_id TEXT,
    partition_key TEXT,
    message_id TEXT,
    head BLOB NOT NULL,
    changes BLOB,
    bare BLOB NOT NULL
) STRICT;
CREATE TABLE session_messages (
    key INTEGER PRIMARY KEY,
    session_id TEXT NOT NULL
) STRICT;
CREATE TABLE sessions (
    fragment INTEGER NOT NULL,
    session_id TEXT NOT NULL,
    active INTEGER NOT NULL,
    first_key INTEGER NOT NULL,
    PRIMARY KEY (fragment, session_id)
) STRICT, WITHOUT ROWID;
CREATE TABLE session_states (
    id INTEGER PRIMARY KEY,
    fragment INTEGER NOT NULL,
    session_id TEXT NOT NULL,
    set_at INTEGER NOT NULL,
    state BLOB NOT NULL,
    UNIQUE (fragment, session_id)
) STRICT;
CREATE TABLE expiry_entries (
    key INTEGER PRIMARY KEY,
    expires_at INTEGER NOT NULL
) STRICT;
CREATE TABLE duplicate_ids (
    fragment INTEGER NOT NULL,
    message_id TEXT NOT NULL,
    accepted_at INTEGER NOT NULL,
    PRIMARY KEY (fragment, message_id)
) STRICT, WITHOUT ROWID;
CREATE TABLE fragments (
    key INTEGER PRIMARY KEY,
    owner TEXT NOT NULL,
    fragment_index INTEGER NOT NULL,
    last_counter INTEGER NOT NULL,
    active INTEGER NOT NULL,
    deferred INTEGER NOT NULL,
    scheduled INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    expiry_high INTEGER NOT NULL,
    accessed_at INTEGER NOT NULL,
    ids_since INTEGER NOT NULL
) STRICT;
CREATE TABLE dropped_fragments (
    key INTEGER PRIMARY KEY
) STRICT;
CREATE TABLE catalogue (
    key TEXT PRIMARY KEY,
    text TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE meta (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO messages VALUES (1099511627777, 1700000000000, 1152921504606846976, 0, 2992071443, -1, 0, NULL, NULL, NULL, X'', NULL, X'6669727374');
INSERT INTO messages VALUES (1099511627778, 1700000000000, 1152921504606846976, 0, 3500713317, -1, 0, 'a', 'a', NULL, X'', NULL, X'7365636F6E64');
INSERT INTO deferred VALUES (1099511627779, 1700000000000, 1152921504606846976, 0, 1142396194, -1, 0, NULL, NULL, NULL, X'', NULL, X'7468697264');
INSERT INTO scheduled VALUES (1099511627780, 1700000000000, 1152921504606846976, 0, 2951012702, -1, 1800000000000, NULL, NULL, NULL, X'', NULL, X'666F75727468');
INSERT INTO session_messages VALUES (1099511627778, 'a');
INSERT INTO sessions VALUES (1, 'a', 1, 1099511627778);
INSERT INTO session_states VALUES (1, 1, 'a', 5, X'A393D2FB7374617465');
INSERT INTO expiry_entries VALUES (1099511627777, 1800000000000);
INSERT INTO duplicate_ids VALUES (1, 'id-1', 7);
INSERT INTO fragments VALUES (0, 'the store itself', 0, 1, 0, 0, 0, 0, 0, 0, 0);
INSERT INTO fragments VALUES (1, 'orders', 0, 0, 0, 0, 0, 0, 0, 0, 0);
INSERT INTO catalogue VALUES ('queue/orders', '{}');
INSERT INTO meta VALUES ('catalogue_version', 3);
INSERT INTO meta VALUES ('next_fragment_key', 2);
CREATE INDEX deferred_sessions ON deferred (session_id) WHERE session_id IS NOT NULL;
CREATE INDEX scheduled_due ON scheduled (scheduled_at);
CREATE INDEX scheduled_sessions ON scheduled (session_id) WHERE session_id IS NOT NULL;
CREATE INDEX session_order ON session_messages (session_id);
CREATE INDEX session_firsts ON sessions (first_key);
CREATE INDEX expiry_order ON expiry_entries (expires_at);
CREATE INDEX duplicate_age ON duplicate_ids (fragment, accepted_at);
PRAGMA user_version = 1;
COMMIT;
