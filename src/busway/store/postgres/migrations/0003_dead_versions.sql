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
