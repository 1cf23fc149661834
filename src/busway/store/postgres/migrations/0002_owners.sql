-- Several servers: which of them live, and who has which store. What for stands in schema.sql.

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

CREATE TABLE busway.leases (
    store INTEGER PRIMARY KEY,
    holder BYTEA
);

ALTER TABLE busway.stores ADD COLUMN lineage TEXT COLLATE "C" NOT NULL DEFAULT '';

INSERT INTO busway.leases SELECT store, NULL FROM busway.stores;

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
