-- Nothing is looked for among the dead versions that an old snapshot keeps. What for stands in schema.sql and queries.sql.

CREATE OR REPLACE FUNCTION busway.fence(
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

CREATE TABLE busway.begun AS SELECT fragment, session_id, first_key FROM busway.sessions;

DROP TABLE busway.sessions;

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

INSERT INTO busway.sessions SELECT * FROM busway.begun;

DROP TABLE busway.begun;

DROP INDEX busway.scheduled_due;

CREATE INDEX scheduled_due ON busway.scheduled (store, scheduled_at, key) WHERE key > 0;

DROP INDEX busway.session_order;

CREATE INDEX session_order ON busway.session_messages (session_id, key) WHERE key > 0;

CREATE INDEX session_firsts ON busway.sessions (first_key) WHERE first_key > 0;

DROP INDEX busway.expiry_order;

CREATE INDEX expiry_order ON busway.expiry_entries (store, expires_at, key) WHERE key > 0;

DROP INDEX busway.duplicate_age;

CREATE INDEX duplicate_age ON busway.duplicate_ids (fragment, accepted_at) WHERE fragment > 0;

DROP INDEX busway.chunk_times;

CREATE INDEX chunk_times ON busway.log_chunks (log, last_at, first_number) WHERE log > 0;
