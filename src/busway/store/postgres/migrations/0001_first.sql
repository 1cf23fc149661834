-- The first tables. What they are for stands in schema.sql.

CREATE SCHEMA busway;

CREATE TABLE busway.database (
    format INTEGER NOT NULL,
    readable_from INTEGER NOT NULL,
    name TEXT NOT NULL,
    next_fragment_key BIGINT NOT NULL
);

CREATE TABLE busway.stores (
    store INTEGER PRIMARY KEY,
    epoch BIGINT NOT NULL,
    opening BYTEA NOT NULL,
    next_key BIGINT NOT NULL,
    keys_end BIGINT NOT NULL,
    spare_key BIGINT NOT NULL,
    catalogue_version BIGINT NOT NULL
) WITH (
    fillfactor = 20,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_cost_delay = 0
);

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
    WHERE commits.store = given.store AND commits.number = given.number - 1;
    GET DIAGNOSTICS followed = row_count;
    IF owned <> cardinality(given_stores) OR followed <> cardinality(given_stores) THEN
        RAISE EXCEPTION 'another owner has one of these stores' USING ERRCODE = 'BW001';
    END IF;
    INSERT INTO busway.commits SELECT * FROM unnest(given_stores, given_numbers, given_batches);
END
$$;

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

CREATE INDEX scheduled_due ON busway.scheduled (store, scheduled_at, key);

CREATE INDEX scheduled_sessions ON busway.scheduled (session_id, key) WHERE session_id IS NOT NULL;

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

CREATE TABLE busway.sharing_fragments (
    key BIGINT PRIMARY KEY,
    store INTEGER NOT NULL
);

CREATE TABLE busway.session_messages (
    key BIGINT PRIMARY KEY,
    session_id BYTEA NOT NULL
) WITH (
    autovacuum_vacuum_threshold = 50000,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX session_order ON busway.session_messages (session_id, key);

CREATE TABLE busway.sessions (
    fragment BIGINT NOT NULL,
    session_id BYTEA NOT NULL,
    active BIGINT NOT NULL,
    first_key BIGINT NOT NULL,
    PRIMARY KEY (fragment, session_id)
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_threshold = 50000,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX session_firsts ON busway.sessions (first_key);

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

CREATE TABLE busway.expiry_entries (
    key BIGINT PRIMARY KEY,
    store INTEGER NOT NULL,
    expires_at BIGINT NOT NULL
) WITH (
    autovacuum_vacuum_threshold = 50000,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX expiry_order ON busway.expiry_entries (store, expires_at, key);

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

CREATE INDEX duplicate_age ON busway.duplicate_ids (fragment, accepted_at);

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

CREATE INDEX chunk_times ON busway.log_chunks (log, last_at, first_number);

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

CREATE TABLE busway.fragments (
    key BIGINT PRIMARY KEY,
    store INTEGER NOT NULL,
    owner TEXT NOT NULL,
    fragment_index INTEGER NOT NULL,
    ids_since BIGINT NOT NULL
);

CREATE INDEX fragment_stores ON busway.fragments (store);

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
