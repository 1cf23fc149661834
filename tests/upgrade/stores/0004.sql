-- A store of schema 3 with a message in each place, one of them with a shared payload, two chunks of events and a
-- producer.
BEGIN;
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
CREATE TABLE messages (
    key INTEGER PRIMARY KEY,
    enqueued_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    more BLOB,
    bare ANY NOT NULL
) STRICT;
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
CREATE TABLE log_chunks (
    key INTEGER PRIMARY KEY,
    log INTEGER NOT NULL,
    first_number INTEGER NOT NULL,
    last_number INTEGER NOT NULL,
    first_at INTEGER NOT NULL,
    last_at INTEGER NOT NULL,
    events INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    data BLOB NOT NULL
) STRICT;
CREATE TABLE log_producers (
    log INTEGER NOT NULL,
    producer INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    last_sequence INTEGER NOT NULL,
    used_at INTEGER NOT NULL,
    groups BLOB NOT NULL,
    PRIMARY KEY (log, producer)
) STRICT, WITHOUT ROWID;
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
INSERT INTO messages VALUES (1099511627777, 1700000000000, 1152921504606846976, 2992071444, NULL, X'6669727374');
INSERT INTO messages VALUES (1099511627778, 1700000000000, 1152921504606846976, 3461513874, X'1800000001610000000161', X'7365636F6E64');
INSERT INTO deferred VALUES (1099511627779, 1700000000000, 1152921504606846976, 1142396195, NULL, 0, NULL, 1437695);
INSERT INTO scheduled VALUES (1099511627780, 1700000000000, 1152921504606846976, 2994609186, NULL, 1800000000000, X'04000001A3185C5000', X'666F75727468');
INSERT INTO payloads VALUES (1437695, X'7468697264');
INSERT INTO payload_references VALUES (1437695, 1000003);
INSERT INTO sharing_fragments VALUES (1);
INSERT INTO transfer_marks VALUES ('store-1', 7, 20);
INSERT INTO log_chunks VALUES (1, 1, 0, 1, 1700000000000, 1700000000001, 2, 888749806, X'427743010000000002000000070000000000000000000000040000000700000000000000050000000068E5CF8B0100000168E5CF8B0100007A65726F6F6E65');
INSERT INTO log_chunks VALUES (2, 1, 2, 5, 1700000000002, 1700000000003, 2, 1748437543, X'427743010100000002000000070000000200000000000000030000000700000000000000030000000268E5CF8B0100000368E5CF8B0100000200000000000000050000000000000074776F66697665');
INSERT INTO log_producers VALUES (1, 7, 1, 41, 1700000000000, X'000000010123456789ABCDEF');
CREATE INDEX session_order ON session_messages (session_id);
CREATE INDEX session_firsts ON sessions (first_key);
CREATE INDEX expiry_order ON expiry_entries (expires_at);
CREATE INDEX duplicate_age ON duplicate_ids (fragment, accepted_at);
CREATE INDEX deferred_sessions ON deferred (session_id) WHERE session_id IS NOT NULL;
CREATE INDEX scheduled_due ON scheduled (scheduled_at);
CREATE INDEX scheduled_sessions ON scheduled (session_id) WHERE session_id IS NOT NULL;
CREATE UNIQUE INDEX chunk_numbers ON log_chunks (log, last_number);
CREATE INDEX chunk_times ON log_chunks (log, last_at, first_number);
PRAGMA user_version = 4;
COMMIT;
