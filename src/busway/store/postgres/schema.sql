-- The tables of one database, as they are after all migrations (a test compares the two).
--
-- One set of tables holds all stores of a database, so that a commit of many stores takes few statements. A row key is
-- one integer: fragment << 40 | number; keys of fragments are unique in the database, so only small tables know the
-- store. Ids that clients choose are bytes: text cannot hold U+0000 and is sorted by collations.
--
-- Rows die as fast as they come. So vacuum goes by count and without pauses, rows that every commit updates have room
-- on their page, and no read begins where dead rows may lie: see `counters.head`.
--
-- Indexes that are there for one question have a condition that every row meets. Only a statement that says it, too, can
-- use them: while a table is empty all of its indexes look alike, and a plan that looks for a key in one of these would
-- go through all of it later.

CREATE SCHEMA busway;

-- One row: the format, the oldest one whose readers may read it, how the stores are called, and the first key of a
-- fragment that no store has been given.
CREATE TABLE busway.database (
    format INTEGER NOT NULL,
    readable_from INTEGER NOT NULL,
    name TEXT NOT NULL,
    next_fragment_key BIGINT NOT NULL
);

-- The stores, each with the keys that its next fragments get: a block that is in use, and the beginning of another one.
-- The fence. Whoever opens a store raises its epoch and leaves its own random `opening`. Each commit must find the epoch
-- and the number before its own. `lineage` says which cluster, timeline and database this was: where it has become another
-- one, by a restored dump or a fail-over, the last commits may be missing.
CREATE TABLE busway.stores (
    store INTEGER PRIMARY KEY,
    epoch BIGINT NOT NULL,
    opening BYTEA NOT NULL,
    next_key BIGINT NOT NULL,
    keys_end BIGINT NOT NULL,
    spare_key BIGINT NOT NULL,
    catalogue_version BIGINT NOT NULL,
    lineage TEXT COLLATE "C" NOT NULL DEFAULT ''
) WITH (
    fillfactor = 20,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_cost_delay = 0
);

-- The last commit of each store, with its random id. Its number is in the key, here and in `counters`: where a row is
-- updated in every commit, an old snapshot keeps all of its versions, and whoever looks for the row walks over them.
-- (Measured: 18 µs more of each commit after every thousand of them; nothing this way.)
CREATE TABLE busway.commits (
    store INTEGER NOT NULL,
    number BIGINT NOT NULL,
    batch BYTEA NOT NULL,
    PRIMARY KEY (store, number)
) WITH (
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_cost_delay = 0
);

-- Raises BW001 unless every one of these commits is the next of its store in its epoch; that ends the whole
-- transaction. The row of the store is held, not changed: whoever raises the epoch waits.
CREATE FUNCTION busway.fence(
    given_stores INTEGER [], given_epochs BIGINT [], given_numbers BIGINT [], given_batches BYTEA []
) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
    owned INTEGER;
    followed INTEGER;
BEGIN
    PERFORM FROM busway.stores INNER JOIN unnest(given_stores, given_epochs) AS given (store, epoch)
        ON stores.store = given.store AND stores.epoch = given.epoch
        FOR SHARE OF stores;
    GET DIAGNOSTICS owned = row_count;
    DELETE FROM busway.commits USING unnest(given_stores, given_numbers) AS given (store, number)
    WHERE commits.store = ANY(ARRAY[given.store]) AND commits.number = given.number - 1;
    GET DIAGNOSTICS followed = row_count;
    IF owned <> cardinality(given_stores) OR followed <> cardinality(given_stores) THEN
        RAISE EXCEPTION 'another owner has one of these stores' USING ERRCODE = 'BW001';
    END IF;
    INSERT INTO busway.commits SELECT * FROM unnest(given_stores, given_numbers, given_batches);
END
$$;

-- Active rows. `more` packs what few messages have, `checksum` covers every column; see rows.py. The body is `bare`, or
-- that of a payload that several rows share.
CREATE TABLE busway.messages (
    key BIGINT PRIMARY KEY,
    enqueued_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    checksum BIGINT NOT NULL,
    more BYTEA,
    payload BIGINT,
    bare BYTEA
) WITH (
    autovacuum_vacuum_threshold = 50000,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_cost_delay = 0
);

ALTER TABLE busway.messages ALTER COLUMN bare SET STORAGE EXTERNAL;
ALTER TABLE busway.messages ALTER COLUMN more SET STORAGE EXTERNAL;

-- Three columns more, for the indexes and those like them: `more` has the same values.
CREATE TABLE busway.deferred (
    key BIGINT PRIMARY KEY,
    store INTEGER NOT NULL,
    enqueued_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    checksum BIGINT NOT NULL,
    session_id BYTEA,
    scheduled_at BIGINT NOT NULL,
    more BYTEA,
    payload BIGINT,
    bare BYTEA
) WITH (
    autovacuum_vacuum_threshold = 50000,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_cost_delay = 0
);

ALTER TABLE busway.deferred ALTER COLUMN bare SET STORAGE EXTERNAL;
ALTER TABLE busway.deferred ALTER COLUMN more SET STORAGE EXTERNAL;

CREATE INDEX deferred_sessions ON busway.deferred (session_id, key) WHERE session_id IS NOT NULL;

CREATE TABLE busway.scheduled (
    key BIGINT PRIMARY KEY,
    store INTEGER NOT NULL,
    enqueued_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    checksum BIGINT NOT NULL,
    session_id BYTEA,
    scheduled_at BIGINT NOT NULL,
    more BYTEA,
    payload BIGINT,
    bare BYTEA
) WITH (
    autovacuum_vacuum_threshold = 50000,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_cost_delay = 0
);

ALTER TABLE busway.scheduled ALTER COLUMN bare SET STORAGE EXTERNAL;
ALTER TABLE busway.scheduled ALTER COLUMN more SET STORAGE EXTERNAL;

CREATE INDEX scheduled_due ON busway.scheduled (store, scheduled_at, key) WHERE key > 0;

CREATE INDEX scheduled_sessions ON busway.scheduled (session_id, key) WHERE session_id IS NOT NULL;

-- Bodies that rows share, and how many rows refer to each. The counts lie apart: they change with every copy that goes,
-- and a body may be large.
CREATE TABLE busway.payloads (
    id BIGINT PRIMARY KEY,
    bare BYTEA NOT NULL
) WITH (
    autovacuum_vacuum_threshold = 50000,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_cost_delay = 0
);

ALTER TABLE busway.payloads ALTER COLUMN bare SET STORAGE EXTERNAL;

CREATE TABLE busway.payload_references (
    payload BIGINT PRIMARY KEY,
    copies BIGINT NOT NULL
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_threshold = 50000,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX payloads_over ON busway.payload_references (payload) WHERE copies = 0;

-- Fragments that have, or had, rows with a shared payload: only their deletes look for one.
CREATE TABLE busway.sharing_fragments (
    key BIGINT PRIMARY KEY,
    store INTEGER NOT NULL
);

-- The session index: which session an active row belongs to.
CREATE TABLE busway.session_messages (
    key BIGINT PRIMARY KEY,
    session_id BYTEA NOT NULL
) WITH (
    autovacuum_vacuum_threshold = 50000,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX session_order ON busway.session_messages (session_id, key) WHERE key > 0;

-- One row per session with active messages: the key of the first. It is a part of the row's own key, so that what an
-- old snapshot keeps of a busy session lies behind what is there.
CREATE TABLE busway.sessions (
    fragment BIGINT NOT NULL,
    session_id BYTEA NOT NULL,
    first_key BIGINT NOT NULL,
    PRIMARY KEY (fragment, session_id, first_key)
) WITH (
    autovacuum_vacuum_threshold = 50000,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX session_firsts ON busway.sessions (first_key) WHERE first_key > 0;

-- States lie apart from the counts above: these change with every batch, and a state may be large.
CREATE TABLE busway.session_states (
    fragment BIGINT NOT NULL,
    session_id BYTEA NOT NULL,
    set_at BIGINT NOT NULL,
    state BYTEA NOT NULL,
    PRIMARY KEY (fragment, session_id)
) WITH (
    autovacuum_vacuum_threshold = 50000,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_cost_delay = 0
);

ALTER TABLE busway.session_states ALTER COLUMN state SET STORAGE EXTERNAL;

-- Rows that expire before others that were enqueued earlier.
CREATE TABLE busway.expiry_entries (
    key BIGINT PRIMARY KEY,
    store INTEGER NOT NULL,
    expires_at BIGINT NOT NULL
) WITH (
    autovacuum_vacuum_threshold = 50000,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX expiry_order ON busway.expiry_entries (store, expires_at, key) WHERE key > 0;

CREATE TABLE busway.duplicate_ids (
    fragment BIGINT NOT NULL,
    message_id BYTEA NOT NULL,
    accepted_at BIGINT NOT NULL,
    PRIMARY KEY (fragment, message_id)
) WITH (
    autovacuum_vacuum_threshold = 50000,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX duplicate_age ON busway.duplicate_ids (fragment, accepted_at) WHERE fragment > 0;

-- Rows of other stores that have arrived here.
CREATE TABLE busway.transfer_marks (
    store INTEGER NOT NULL,
    source_store TEXT COLLATE "C" NOT NULL,
    source_fragment BIGINT NOT NULL,
    source_number BIGINT NOT NULL,
    PRIMARY KEY (store, source_store, source_fragment, source_number)
) WITH (
    autovacuum_vacuum_threshold = 50000,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_cost_delay = 0
);

-- Events of logs, in chunks (see event_chunk.py). `checksum` covers every column; see log_rows.py.
CREATE TABLE busway.log_chunks (
    log BIGINT NOT NULL,
    first_number BIGINT NOT NULL,
    last_number BIGINT NOT NULL,
    first_at BIGINT NOT NULL,
    last_at BIGINT NOT NULL,
    events BIGINT NOT NULL,
    checksum BIGINT NOT NULL,
    data BYTEA NOT NULL,
    PRIMARY KEY (log, last_number)
) WITH (
    autovacuum_vacuum_threshold = 50000,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_cost_delay = 0
);

ALTER TABLE busway.log_chunks ALTER COLUMN data SET STORAGE EXTERNAL;

CREATE INDEX chunk_times ON busway.log_chunks (log, last_at, first_number) WHERE log > 0;

-- What logs remember of idempotent producers; `groups` are digests of the last events.
CREATE TABLE busway.log_producers (
    log BIGINT NOT NULL,
    producer BIGINT NOT NULL,
    epoch BIGINT NOT NULL,
    last_sequence BIGINT NOT NULL,
    used_at BIGINT NOT NULL,
    groups BYTEA NOT NULL,
    PRIMARY KEY (log, producer)
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_threshold = 50000,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_cost_delay = 0
);

-- One row per fragment. `owner` is for people who look into the database.
CREATE TABLE busway.fragments (
    key BIGINT PRIMARY KEY,
    store INTEGER NOT NULL,
    owner TEXT NOT NULL,
    fragment_index INTEGER NOT NULL,
    ids_since BIGINT NOT NULL
);

CREATE INDEX fragment_stores ON busway.fragments (store);

-- What changes of a fragment in nearly every commit; the version is the number of the commit. `head`: no active message
-- has a lower number, so that reads begin behind the dead rows of what was consumed.
CREATE TABLE busway.counters (
    fragment BIGINT NOT NULL,
    version BIGINT NOT NULL,
    last_counter BIGINT NOT NULL,
    active BIGINT NOT NULL,
    deferred BIGINT NOT NULL,
    scheduled BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    expiry_high BIGINT NOT NULL,
    accessed_at BIGINT NOT NULL,
    head BIGINT NOT NULL,
    PRIMARY KEY (fragment, version)
) WITH (
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_cost_delay = 0
);

-- Fragments whose rows wait to be swept.
CREATE TABLE busway.dropped_fragments (
    key BIGINT PRIMARY KEY,
    store INTEGER NOT NULL
);

CREATE TABLE busway.catalogue (
    store INTEGER NOT NULL,
    key TEXT COLLATE "C" NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (store, key)
);

-- Servers that use this database, or did: nodes. A node draws a new incarnation whenever it enters itself, so one that
-- has no row any more is gone for good. `beat` rises while it lives; nobody compares times, and `beaten_at` is for
-- people. For `lease_ms` it believes in its stores, so whoever waits for them waits as long. `address` is where it is
-- to be found. For nodes that speak to one another: `certificate`.
CREATE TABLE busway.members (
    node TEXT COLLATE "C" PRIMARY KEY,
    incarnation BYTEA NOT NULL UNIQUE,
    beat BIGINT NOT NULL,
    beaten_at TIMESTAMPTZ NOT NULL,
    started_at TIMESTAMPTZ NOT NULL,
    lease_ms BIGINT NOT NULL,
    address TEXT NOT NULL,
    certificate BYTEA,
    version TEXT NOT NULL,
    weight INTEGER NOT NULL,
    draining BOOLEAN NOT NULL
) WITH (
    fillfactor = 20,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_cost_delay = 0
);

-- Which incarnation has each store; null: nobody.
CREATE TABLE busway.leases (
    store INTEGER PRIMARY KEY,
    holder BYTEA
);

-- All of these stores are the taker's from now on, and what their last owner may still send comes too late; or nothing
-- has changed, and it returns false. They must be free, or belong to members that are `silent`, each with its beat as it
-- was seen (whoever beats meanwhile waits), or to incarnations that are gone. Leases come before stores, here and in
-- `take_store`, so that of two takers one finds what the other did.
CREATE FUNCTION busway.take_stores(
    taker BYTEA, given_stores INTEGER [], silent BYTEA [], silent_beats BIGINT [], gone BYTEA []
) RETURNS BOOLEAN LANGUAGE plpgsql AS $$
DECLARE
    matched INTEGER;
BEGIN
    PERFORM FROM busway.members INNER JOIN unnest(silent, silent_beats) AS seen (incarnation, beat)
        ON members.incarnation = seen.incarnation AND members.beat = seen.beat
        FOR UPDATE OF members;
    GET DIAGNOSTICS matched = row_count;
    IF matched <> cardinality(silent) THEN
        RETURN false;
    END IF;
    PERFORM FROM busway.leases
    WHERE store = ANY(given_stores)
        AND (holder IS NULL OR holder = taker OR holder = ANY(silent) OR holder = ANY(gone))
    ORDER BY store
    FOR UPDATE;
    GET DIAGNOSTICS matched = row_count;
    IF matched <> cardinality(given_stores) THEN
        RETURN false;
    END IF;
    UPDATE busway.leases SET holder = taker WHERE store = ANY(given_stores);
    UPDATE busway.stores SET epoch = epoch + 1, opening = taker WHERE store = ANY(given_stores);
    RETURN true;
END
$$;
