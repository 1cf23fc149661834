-- The tables of one store, as they are after all migrations (a test compares the two).
--
-- A row key is one integer: fragment << 40 | number. Times are milliseconds since 1970.
-- Rows that few messages need (sessions, own expiry, duplicate ids) lie in tables of their own, so that the
-- others do not pay for them. `messages` has no second index on purpose: each would cost about 10 % of sending.

-- Active rows. `more` packs what few messages have, `checksum` covers every column; see rows.py. `bare` is the body,
-- or the number of a payload that several rows share.
CREATE TABLE messages (
    key INTEGER PRIMARY KEY,
    enqueued_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    more BLOB,
    bare ANY NOT NULL
) STRICT;

-- Active messages that were put together, in blocks (see run_block.py): from the key of the first to that of the last.
-- A block is never changed. `checksum` covers the other two numbers; the block proves itself.
CREATE TABLE message_runs (
    key INTEGER PRIMARY KEY,
    last INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    data BLOB NOT NULL
) STRICT;

-- Which messages of a run are gone: so many at its beginning, and others as bits behind them. It lies apart, so that
-- what is settled writes a few bytes.
CREATE TABLE run_marks (
    key INTEGER PRIMARY KEY,
    gone INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    dead BLOB
) STRICT;

-- Two columns more, for the indexes: `more` has the same values.
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

CREATE INDEX deferred_sessions ON deferred (session_id) WHERE session_id IS NOT NULL;

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

CREATE INDEX scheduled_due ON scheduled (scheduled_at);

CREATE INDEX scheduled_sessions ON scheduled (session_id) WHERE session_id IS NOT NULL;

-- Bodies that rows share, and how much the rows that refer to each weigh (see payloads.py). The weights lie apart: they
-- change with every copy that goes, and a body may be large.
CREATE TABLE payloads (
    id INTEGER PRIMARY KEY,
    bare BLOB NOT NULL
) STRICT;

CREATE TABLE payload_references (
    payload INTEGER PRIMARY KEY,
    weight INTEGER NOT NULL
) STRICT;

-- Fragments that have, or had, rows with a shared payload: only their deletes look for one.
CREATE TABLE sharing_fragments (
    key INTEGER PRIMARY KEY
) STRICT;

-- The session index: which session an active row belongs to.
CREATE TABLE session_messages (
    key INTEGER PRIMARY KEY,
    session_id TEXT NOT NULL
) STRICT;

CREATE INDEX session_order ON session_messages (session_id);

-- One row per session with active messages: how many, and the key of the first.
CREATE TABLE sessions (
    fragment INTEGER NOT NULL,
    session_id TEXT NOT NULL,
    active INTEGER NOT NULL,
    first_key INTEGER NOT NULL,
    PRIMARY KEY (fragment, session_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX session_firsts ON sessions (first_key);

-- States lie apart from the counts above: these change with every batch, and a state may be large.
CREATE TABLE session_states (
    id INTEGER PRIMARY KEY,
    fragment INTEGER NOT NULL,
    session_id TEXT NOT NULL,
    set_at INTEGER NOT NULL,
    state BLOB NOT NULL,
    UNIQUE (fragment, session_id)
) STRICT;

-- Rows that expire before others that were enqueued earlier.
CREATE TABLE expiry_entries (
    key INTEGER PRIMARY KEY,
    expires_at INTEGER NOT NULL
) STRICT;

CREATE INDEX expiry_order ON expiry_entries (expires_at);

CREATE TABLE duplicate_ids (
    fragment INTEGER NOT NULL,
    message_id TEXT NOT NULL,
    accepted_at INTEGER NOT NULL,
    PRIMARY KEY (fragment, message_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX duplicate_age ON duplicate_ids (fragment, accepted_at);

-- Rows of other stores that have arrived here.
CREATE TABLE transfer_marks (
    source_store TEXT NOT NULL,
    source_fragment INTEGER NOT NULL,
    source_number INTEGER NOT NULL,
    PRIMARY KEY (source_store, source_fragment, source_number)
) STRICT, WITHOUT ROWID;

-- Events of logs, in chunks (see event_chunk.py). The key grows in order of arrival, so that chunks of all logs are
-- appended at the end of one tree; what finds them are two small indexes. `checksum` covers every column; see
-- log_rows.py. The bytes come last: whoever wants the rest reads no more than a chunk's first page.
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

CREATE UNIQUE INDEX chunk_numbers ON log_chunks (log, last_number);

CREATE INDEX chunk_times ON log_chunks (log, last_at, first_number);

-- What logs remember of idempotent producers; `groups` are digests of the last events.
CREATE TABLE log_producers (
    log INTEGER NOT NULL,
    producer INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    last_sequence INTEGER NOT NULL,
    used_at INTEGER NOT NULL,
    groups BLOB NOT NULL,
    PRIMARY KEY (log, producer)
) STRICT, WITHOUT ROWID;

-- One row per fragment. Row 0 is the store itself: its last_counter counts the commits. It lies here because
-- nearly every commit writes this page anyway.
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

INSERT INTO fragments VALUES (0, 'the store itself', 0, 0, 0, 0, 0, 0, 0, 0, 0);

-- Fragments whose rows wait to be swept.
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

INSERT INTO meta VALUES ('catalogue_version', 0), ('next_fragment_key', 1);

PRAGMA user_version = 5;
