-- Every statement the stores run. "-- name --", a line of meaning, the statement.
-- {place}, {source} and {target} stand for messages, deferred or scheduled.
-- What a batch writes comes as arrays, one for each column; an array that is NULL stands for a column of NULLs.
--
-- Rows of a table that grows are joined by "= ANY(ARRAY[...])". It means "=", but can only be answered by a look into the
-- index for each row. For "=" a plan that was made while the table was empty goes through the whole index in order, and
-- later over a million rows, or over dead versions of them, in every commit.

-- session_plans --
-- Of every session. Tables grow from nothing to millions of rows, or of dead versions, between two looks at their size.
-- So statements are planned for large tables: by index, row by row, in its order, so that a look for the latest version
-- ends there. Compiling them would cost more than it saves.
SELECT
    set_config('enable_seqscan', 'off', false), set_config('enable_hashjoin', 'off', false),
    set_config('enable_mergejoin', 'off', false), set_config('enable_bitmapscan', 'off', false),
    set_config('jit', 'off', false),
    set_config('plan_cache_mode', 'force_generic_plan', false),
    set_config('max_parallel_workers_per_gather', '0', false)

-- plan_again --
-- Plans are kept, and were made by how large tables were: some indexes look alike while nothing is in them.
DISCARD PLANS

-- read_format --
-- The format of the tables; no row in a database that has none.
SELECT format FROM busway.database

-- has_tables --
-- Whether there are any.
SELECT to_regclass('busway.database') IS NOT NULL

-- database_put --
-- What a new database says of itself.
INSERT INTO busway.database VALUES ($1, $2, $3, 1)

-- database_migrated --
-- It has this format now, and versions before the second one cannot read it any more.
UPDATE busway.database SET format = $1, readable_from = $2

-- database_lock --
-- Whoever changes tables or the number of stores is alone.
LOCK TABLE busway.database IN EXCLUSIVE MODE

-- count_stores --
-- How many stores there are.
SELECT count(*) FROM busway.stores

-- store_put --
-- One more, with two blocks of keys.
WITH taken AS (
    UPDATE busway.database SET next_fragment_key = next_fragment_key + 2 * $2::bigint
    RETURNING next_fragment_key - 2 * $2::bigint AS first_key
),
begun AS (
    INSERT INTO busway.commits VALUES ($1::integer, 0, '')
),
owned AS (
    INSERT INTO busway.leases VALUES ($1::integer, NULL)
)
INSERT INTO busway.stores
SELECT $1::integer, 0, '', first_key, first_key + $2::bigint, first_key + $2::bigint, 0, '' FROM taken

-- begin --
-- The first of a commit.
BEGIN

-- commit --
-- Nothing cancels it.
COMMIT

-- roll_back --
-- Takes back a batch one of whose statements failed.
ROLLBACK

-- fence --
-- Commits are the next of their stores: stores, epochs, numbers, random ids.
SELECT busway.fence($1, $2, $3, $4)

-- hold_store --
-- What a store's row says before who holds its lease ($2; null: nobody does) opens it. Waits for a commit in flight,
-- which is then either contained or refused for ever; and for a take-over, after which there is nothing to return.
WITH held AS (
    SELECT store FROM busway.leases WHERE store = $1::integer AND holder IS NOT DISTINCT FROM $2::bytea FOR SHARE
)
SELECT stores.epoch, stores.opening, stores.lineage FROM busway.stores INNER JOIN held ON stores.store = held.store
FOR UPDATE OF stores

-- lineage --
-- Which cluster, timeline and database this is: each of them is another one after a restore or a fail-over. (The
-- timeline of the last checkpoint would be the old one for a while after a fail-over.)
SELECT
    concat_ws(
        '/', (SELECT system_identifier FROM pg_control_system()),
        substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8),
        (SELECT oid FROM pg_database WHERE datname = current_database())
    )

-- store_holder --
-- Who has the lease of a store: the node, and where it is. No row where nobody has it.
SELECT members.node, members.address
FROM busway.leases LEFT JOIN busway.members ON members.incarnation = leases.holder
WHERE leases.store = $1::integer AND leases.holder IS NOT NULL

-- take_store --
-- A new opening.
UPDATE busway.stores SET epoch = epoch + 1, opening = $2::bytea, lineage = $3::text WHERE store = $1::integer
RETURNING epoch, next_key, keys_end, spare_key

-- leap --
-- The same where commits are missing: nothing that was given out in these is given out again. The greatest epoch that
-- we know of, and by how much it is passed. The lineage stays until what follows from the loss is durable.
UPDATE busway.stores SET epoch = greatest(epoch, $3::bigint) + $4::bigint, opening = $2::bytea
WHERE store = $1::integer

-- leap_commits --
-- The same of the number of the last commit.
UPDATE busway.commits SET number = greatest(number, $2::bigint) + $3::bigint, batch = ''
WHERE store = $1::integer

-- leap_keys --
-- The same of the keys of fragments: the end of the last block that we know of, a gap, and two fresh blocks.
WITH taken AS (
    UPDATE busway.database
    SET next_fragment_key = greatest(next_fragment_key, $2::bigint) + $3::bigint + 2 * $4::bigint
    RETURNING next_fragment_key - 2 * $4::bigint AS first_key
)
UPDATE busway.stores
SET next_key = taken.first_key, keys_end = taken.first_key + $4::bigint, spare_key = taken.first_key + $4::bigint
FROM taken WHERE stores.store = $1::integer
RETURNING stores.epoch, stores.next_key, stores.keys_end, stores.spare_key

-- lineages_follow --
-- After a fail-over: stores that are still ours ($1, $2) and have all that was reported ($3).
UPDATE busway.stores SET lineage = $4::text
FROM unnest($1::integer [], $2::bytea [], $3::bigint []) AS given (store, opening, number)
INNER JOIN busway.commits ON commits.store = given.store AND commits.number >= given.number
WHERE stores.opening = given.opening AND stores.store = given.store

-- lineages_write --
-- What followed from a loss is in this commit.
UPDATE busway.stores SET lineage = given.lineage FROM unnest($1::integer [], $2::text []) AS given (store, lineage)
WHERE stores.store = given.store

-- who_has --
-- Stores whose commit was refused: whose they are, and how far.
SELECT stores.store, stores.epoch, stores.opening FROM busway.stores WHERE stores.store = ANY($1::integer [])

-- read_commits --
-- The last commits of stores whose rows are held: number and random id.
SELECT store, number, batch FROM busway.commits WHERE store = ANY($1::integer [])

-- look --
-- After a lost answer: stores that are still ours. It raises the epoch, so that whatever may lie in the socket of an
-- older connection comes too late; and it writes, so that its own COMMIT proves what is read behind it to be on a
-- standby as well.
UPDATE busway.stores SET epoch = stores.epoch + 1
FROM unnest($1::integer [], $2::bytea []) AS given (store, opening)
WHERE stores.store = given.store AND stores.opening = given.opening
RETURNING stores.store, stores.epoch

-- end_stuck --
-- Ends sessions that hold stores and have stood still in the middle of a commit: their client is stopped or out of
-- reach, and the rest of what it sends may never come. The server's own time-out for idle transactions does not see
-- these. They wait for their client, so they are not inside of COMMIT.
SELECT pg_terminate_backend(activity.pid)
FROM pg_stat_activity AS activity INNER JOIN pg_locks AS locks ON locks.pid = activity.pid
WHERE
    locks.relation = to_regclass('busway.stores') AND locks.mode = 'RowShareLock' AND locks.granted
    AND activity.datname = current_database() AND activity.pid <> pg_backend_pid()
    AND activity.state = 'active' AND activity.wait_event = 'ClientRead'
    AND activity.query_start < clock_timestamp() - interval '0.8 s'

-- put_active --
-- Stores active messages.
INSERT INTO busway.messages
SELECT * FROM unnest(
    $1::bigint [], $2::bigint [], $3::bigint [], $4::bigint [], $5::bytea [], $6::bigint [], $7::bytea []
)

-- put_aside --
-- Stores deferred or scheduled messages.
INSERT INTO busway.{place}
SELECT * FROM unnest(
    $1::bigint [], $2::integer [], $3::bigint [], $4::bigint [], $5::bigint [], $6::bytea [], $7::bigint [],
    $8::bytea [], $9::bigint [], $10::bytea []
)

-- read_fronts --
-- Rows without their bodies, to be written anew.
SELECT key, enqueued_at, expires_at, checksum, more FROM busway.{place} WHERE key = ANY($1::bigint [])

-- renumber_active --
-- Active rows get other keys; a large body stays where it lies.
UPDATE busway.messages SET
    key = given.key, enqueued_at = given.enqueued_at, expires_at = given.expires_at, checksum = given.checksum,
    more = given.more
FROM unnest($1::bigint [], $2::bigint [], $3::bigint [], $4::bigint [], $5::bigint [], $6::bytea [])
AS given (from_key, key, enqueued_at, expires_at, checksum, more)
WHERE messages.key = ANY(ARRAY[given.from_key])

-- renumber_aside --
-- The same of deferred or scheduled rows.
UPDATE busway.{place} SET
    key = given.key, store = given.store, enqueued_at = given.enqueued_at, expires_at = given.expires_at,
    checksum = given.checksum, session_id = given.session_id, scheduled_at = given.scheduled_at, more = given.more
FROM unnest(
    $1::bigint [], $2::bigint [], $3::integer [], $4::bigint [], $5::bigint [], $6::bigint [], $7::bytea [],
    $8::bigint [], $9::bytea []
) AS given (from_key, key, store, enqueued_at, expires_at, checksum, session_id, scheduled_at, more)
WHERE {place}.key = ANY(ARRAY[given.from_key])

-- copy_to_active --
-- The first half of a move to another place; no body leaves the database.
INSERT INTO busway.messages
SELECT given.key, given.enqueued_at, given.expires_at, given.checksum, given.more, source.payload, source.bare
FROM unnest($1::bigint [], $2::bigint [], $3::bigint [], $4::bigint [], $5::bigint [], $6::bytea [])
AS given (from_key, key, enqueued_at, expires_at, checksum, more)
INNER JOIN busway.{source} AS source ON source.key = ANY(ARRAY[given.from_key])

-- copy_aside --
-- The same, to the deferred or scheduled rows.
INSERT INTO busway.{target}
SELECT
    given.key, given.store, given.enqueued_at, given.expires_at, given.checksum, given.session_id, given.scheduled_at,
    given.more, source.payload, source.bare
FROM unnest(
    $1::bigint [], $2::bigint [], $3::integer [], $4::bigint [], $5::bigint [], $6::bigint [], $7::bytea [],
    $8::bigint [], $9::bytea []
) AS given (from_key, key, store, enqueued_at, expires_at, checksum, session_id, scheduled_at, more)
INNER JOIN busway.{source} AS source ON source.key = ANY(ARRAY[given.from_key])

-- change --
-- New values of `more` for rows that stay.
UPDATE busway.{place} SET checksum = given.checksum, more = given.more
FROM unnest($1::bigint [], $2::bigint [], $3::bytea []) AS given (key, checksum, more)
WHERE {place}.key = ANY(ARRAY[given.key])

-- delete_rows --
-- Removes rows.
DELETE FROM busway.{place} WHERE key = ANY($1::bigint [])

-- delete_sharing_rows --
-- The same of rows that may refer to a payload.
WITH gone AS (
    DELETE FROM busway.{place} WHERE key = ANY($1::bigint []) RETURNING payload
),
fewer AS (
    SELECT payload, count(*) AS copies FROM gone WHERE payload IS NOT NULL GROUP BY payload
)
UPDATE busway.payload_references SET copies = payload_references.copies - fewer.copies
FROM fewer WHERE payload_references.payload = ANY(ARRAY[fewer.payload])

-- payloads_put --
-- Bodies for several rows.
INSERT INTO busway.payloads SELECT * FROM unnest($1::bigint [], $2::bytea [])

-- payload_references_put --
-- How many rows each.
INSERT INTO busway.payload_references SELECT * FROM unnest($1::bigint [], $2::bigint [])

-- payloads_drop --
-- Removes payloads to which nothing refers any more.
WITH over AS (
    DELETE FROM busway.payload_references WHERE copies = 0 RETURNING payload
)
DELETE FROM busway.payloads USING over WHERE payloads.id = ANY(ARRAY[over.payload])

-- sharing_fragments_put --
-- Remembers that fragments have rows with a shared payload.
INSERT INTO busway.sharing_fragments SELECT * FROM unnest($1::bigint [], $2::integer []) ON CONFLICT DO NOTHING

-- session_entries_put --
-- Enters active rows into the session index.
INSERT INTO busway.session_messages SELECT * FROM unnest($1::bigint [], $2::bytea [])

-- sessions_begin --
-- Sessions have active rows from these keys on, unless they had earlier ones. The last column: there are surely none, so
-- nobody looks among what is left of earlier ones.
WITH coming AS (
    SELECT key >> 40 AS fragment, session_id, min(key) AS first_key, bool_or(is_new = 1) AS is_new
    FROM unnest($1::bigint [], $2::bytea [], $3::integer []) AS entry (key, session_id, is_new) GROUP BY 1, 2
),
found AS (
    SELECT coming.*, CASE WHEN NOT is_new THEN (
        SELECT there.first_key FROM busway.sessions AS there
        WHERE there.fragment = coming.fragment AND there.session_id = coming.session_id
        ORDER BY there.first_key DESC LIMIT 1
    ) END AS past FROM coming
),
later AS (
    DELETE FROM busway.sessions WHERE ctid = ANY(ARRAY(
        SELECT (
            SELECT ctid FROM busway.sessions AS there
            WHERE there.fragment = found.fragment AND there.session_id = found.session_id
                AND there.first_key = found.past
        ) FROM found WHERE past > first_key
    ))
)
INSERT INTO busway.sessions
SELECT fragment, session_id, first_key FROM found WHERE past IS NULL OR past > first_key

-- sessions_go_on --
-- Sessions whose first rows go, before these are taken out of the session index, begin later; those that have no row any
-- more are returned. What is left is not looked for before the first that was: there lie dead rows only.
WITH going AS (
    SELECT key >> 40 AS fragment, session_id, min(key) AS first_key FROM (
        SELECT key, (SELECT session_id FROM busway.session_messages WHERE session_messages.key = asked.key) AS session_id
        FROM unnest($1::bigint []) AS asked (key)
    ) AS entry
    WHERE session_id IS NOT NULL GROUP BY 1, 2
),
found AS (
    SELECT going.*, (
        SELECT there.first_key FROM busway.sessions AS there
        WHERE there.fragment = going.fragment AND there.session_id = going.session_id
        ORDER BY there.first_key DESC LIMIT 1
    ) AS past FROM going
),
moved AS (
    SELECT fragment, session_id, past, (
        SELECT kept.key FROM busway.session_messages AS kept
        WHERE kept.session_id = found.session_id AND kept.key >= found.past
            AND kept.key < (found.fragment + 1) << 40 AND NOT kept.key = ANY($1::bigint []) AND kept.key > 0
        ORDER BY kept.key LIMIT 1
    ) AS next FROM found WHERE past = first_key
),
begun AS (
    DELETE FROM busway.sessions WHERE ctid = ANY(ARRAY(
        SELECT (
            SELECT ctid FROM busway.sessions AS there
            WHERE there.fragment = moved.fragment AND there.session_id = moved.session_id
                AND there.first_key = moved.past
        ) FROM moved
    ))
),
gone_on AS (
    INSERT INTO busway.sessions SELECT fragment, session_id, next FROM moved WHERE next IS NOT NULL
)
SELECT fragment, session_id FROM moved WHERE next IS NULL

-- session_entries_delete --
-- Takes rows out of the session index.
DELETE FROM busway.session_messages WHERE key = ANY($1::bigint [])

-- session_states_set --
-- Keeps states of sessions.
INSERT INTO busway.session_states SELECT * FROM unnest($1::bigint [], $2::bytea [], $3::bigint [], $4::bytea [])
ON CONFLICT (fragment, session_id) DO UPDATE SET set_at = excluded.set_at, state = excluded.state

-- session_states_clear --
-- Forgets states of sessions.
DELETE FROM busway.session_states USING unnest($1::bigint [], $2::bytea []) AS given (fragment, session_id)
WHERE session_states.fragment = ANY(ARRAY[given.fragment]) AND session_states.session_id = given.session_id

-- expiry_entries_put --
-- Remembers rows that expire out of order.
INSERT INTO busway.expiry_entries SELECT * FROM unnest($1::bigint [], $2::integer [], $3::bigint [])
ON CONFLICT (key) DO UPDATE SET expires_at = excluded.expires_at

-- expiry_entries_delete --
-- Forgets them.
DELETE FROM busway.expiry_entries WHERE key = ANY($1::bigint [])

-- duplicate_ids_put --
-- Remembers accepted message ids; the latest acceptance counts.
INSERT INTO busway.duplicate_ids SELECT * FROM unnest($1::bigint [], $2::bytea [], $3::bigint [])
ON CONFLICT (fragment, message_id) DO UPDATE SET accepted_at = excluded.accepted_at

-- duplicate_ids_forget --
-- From now on ids accepted earlier are unknown; the rows go in slices.
UPDATE busway.fragments SET ids_since = greatest(ids_since, given.before)
FROM unnest($1::bigint [], $2::bigint []) AS given (key, before)
WHERE fragments.key = ANY(ARRAY[given.key])

-- duplicate_ids_purge --
-- Removes a slice of forgotten ids. Before a time ($4) there are none but dead ones.
DELETE FROM busway.duplicate_ids WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM busway.duplicate_ids WHERE fragment = $1::bigint AND accepted_at < $2::bigint AND fragment > 0
        AND accepted_at >= $4::bigint
    ORDER BY accepted_at LIMIT $3::bigint
))

-- chunks_delete --
-- Removes the chunks that begin with numbers. Chunks do not overlap: it is the first that ends there or later.
DELETE FROM busway.log_chunks USING unnest($1::bigint [], $2::bigint []) AS given (log, first_number)
WHERE log_chunks.log = ANY(ARRAY[given.log]) AND log_chunks.first_number = given.first_number
    AND log_chunks.last_number = (
        SELECT ending.last_number FROM busway.log_chunks AS ending
        WHERE ending.log = given.log AND ending.last_number >= given.first_number ORDER BY ending.last_number LIMIT 1
    )

-- chunks_put --
-- Appends chunks of events.
INSERT INTO busway.log_chunks SELECT * FROM unnest(
    $1::bigint [], $2::bigint [], $3::bigint [], $4::bigint [], $5::bigint [], $6::bigint [], $7::bigint [],
    $8::bytea []
)

-- producers_put --
-- What logs remember of producers.
INSERT INTO busway.log_producers SELECT * FROM unnest(
    $1::bigint [], $2::bigint [], $3::bigint [], $4::bigint [], $5::bigint [], $6::bytea []
)
ON CONFLICT (log, producer) DO UPDATE
SET epoch = excluded.epoch, last_sequence = excluded.last_sequence, used_at = excluded.used_at, groups = excluded.groups

-- producers_purge --
-- Forgets producers of logs that were used no more.
DELETE FROM busway.log_producers USING unnest($1::bigint [], $2::bigint []) AS given (log, before)
WHERE log_producers.log = ANY(ARRAY[given.log]) AND log_producers.used_at < given.before

-- counters_write --
-- Counts, sizes and high-water marks of fragments that there are, in place of their last version.
WITH past AS (
    DELETE FROM busway.counters USING unnest($1::bigint [], $2::bigint []) AS given (fragment, version)
    WHERE counters.fragment = ANY(ARRAY[given.fragment]) AND counters.version = given.version
)
INSERT INTO busway.counters
SELECT
    given.fragment, given.version, given.last_counter, given.active, given.deferred, given.scheduled, given.bytes,
    given.expiry_high, given.accessed_at, given.head
FROM unnest(
    $1::bigint [], $3::bigint [], $4::bigint [], $5::bigint [], $6::bigint [], $7::bigint [], $8::bigint [],
    $9::bigint [], $10::bigint [], $11::bigint []
) AS given (
    fragment, version, last_counter, active, deferred, scheduled, bytes, expiry_high, accessed_at, head
)
WHERE given.fragment = (SELECT key FROM busway.fragments WHERE fragments.key = given.fragment)

-- fragments_create --
-- New fragments.
INSERT INTO busway.fragments
SELECT given.*, 0 FROM unnest($1::bigint [], $2::integer [], $3::text [], $4::integer []) AS given

-- counters_create --
-- Their counters.
INSERT INTO busway.counters
SELECT given.*, 0 FROM unnest(
    $1::bigint [], $2::bigint [], $3::bigint [], $4::bigint [], $5::bigint [], $6::bigint [], $7::bigint [],
    $8::bigint [], $9::bigint []
) AS given

-- fragments_drop --
-- Fragments are gone for every reader; their rows are swept later.
WITH gone AS (
    DELETE FROM busway.fragments WHERE key = ANY($1::bigint []) RETURNING key, store
),
uncounted AS (
    DELETE FROM busway.counters WHERE fragment = ANY($1::bigint [])
)
INSERT INTO busway.dropped_fragments SELECT key, store FROM gone

-- catalogue_put --
-- Descriptions.
INSERT INTO busway.catalogue SELECT * FROM unnest($1::integer [], $2::text [], $3::text [])
ON CONFLICT (store, key) DO UPDATE SET text = excluded.text

-- catalogue_delete --
-- Descriptions less.
DELETE FROM busway.catalogue USING unnest($1::integer [], $2::text []) AS given (store, key)
WHERE catalogue.store = given.store AND catalogue.key = given.key

-- catalogue_versions_write --
-- Versions of the catalogues of stores.
UPDATE busway.stores SET catalogue_version = given.version
FROM unnest($1::integer [], $2::bigint []) AS given (store, version) WHERE stores.store = given.store

-- keys_write --
-- The first keys of fragments that stores have not given out, and the end of the blocks these are in.
UPDATE busway.stores SET next_key = given.next_key, keys_end = given.keys_end
FROM unnest($1::integer [], $2::bigint [], $3::bigint []) AS given (store, next_key, keys_end)
WHERE stores.store = given.store

-- keys_reserve --
-- Another block of keys for a store.
WITH taken AS (
    UPDATE busway.database SET next_fragment_key = next_fragment_key + $2::bigint
    RETURNING next_fragment_key - $2::bigint AS first_key
)
UPDATE busway.stores SET spare_key = taken.first_key FROM taken WHERE stores.store = $1::integer
RETURNING spare_key

-- transfer_marks_put --
-- Remembers rows of other stores that have arrived.
INSERT INTO busway.transfer_marks SELECT * FROM unnest($1::integer [], $2::text [], $3::bigint [], $4::bigint [])
ON CONFLICT DO NOTHING

-- transfer_marks_delete --
-- Forgets them.
DELETE FROM busway.transfer_marks
USING unnest($1::integer [], $2::text [], $3::bigint [], $4::bigint [])
AS given (store, source_store, source_fragment, source_number)
WHERE transfer_marks.store = ANY(ARRAY[given.store])
    AND transfer_marks.source_store = given.source_store
    AND transfer_marks.source_fragment = given.source_fragment
    AND transfer_marks.source_number = given.source_number

-- sweep_by_key --
-- Removes a slice of a dropped fragment's rows from a table with row keys.
DELETE FROM busway.{place} WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM busway.{place} WHERE key BETWEEN $1::bigint AND $2::bigint ORDER BY key LIMIT $3::bigint
))

-- sweep_sharing_by_key --
-- The same of rows that may refer to a payload; how many.
WITH gone AS (
    DELETE FROM busway.{place} WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM busway.{place} WHERE key BETWEEN $1::bigint AND $2::bigint ORDER BY key LIMIT $3::bigint
    ))
    RETURNING payload
),
fewer AS (
    SELECT payload, count(*) AS copies FROM gone WHERE payload IS NOT NULL GROUP BY payload
),
counted AS (
    UPDATE busway.payload_references SET copies = payload_references.copies - fewer.copies
    FROM fewer WHERE payload_references.payload = ANY(ARRAY[fewer.payload])
)
SELECT count(*) FROM gone

-- sweep_by_fragment --
-- Removes a slice of a dropped fragment's rows from a table with fragments.
DELETE FROM busway.{place} WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM busway.{place} WHERE fragment = $1::bigint LIMIT $2::bigint
))

-- sweep_by_log --
-- Removes a slice of a dropped log's rows.
DELETE FROM busway.{place} WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM busway.{place} WHERE log = $1::bigint LIMIT $2::bigint
))

-- sweep_done --
-- Nothing of the dropped fragment is left.
DELETE FROM busway.dropped_fragments WHERE key = $1::bigint

-- sharing_fragment_forget --
-- Nothing of the dropped fragment is left.
DELETE FROM busway.sharing_fragments WHERE key = $1::bigint

-- read_messages --
-- A run of one place's rows, until the bytes before one are too many: rows that nobody has room for do not travel. The
-- second always does, else nobody could tell that there are more.
SELECT key, enqueued_at, expires_at, checksum, more, bare FROM (
    SELECT
        found.key, enqueued_at, expires_at, checksum, more, coalesce(found.bare, payloads.bare) AS bare,
        sum(octet_length(coalesce(found.bare, payloads.bare))) OVER before AS bytes_before,
        count(*) OVER before AS rows_before
    FROM (
        SELECT * FROM busway.{place} WHERE key > $1 AND key <= $2 ORDER BY key LIMIT $3
    ) AS found LEFT JOIN busway.payloads ON payloads.id = ANY(ARRAY[found.payload])
    WINDOW before AS (ORDER BY found.key ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
) AS measured
WHERE rows_before <= 1 OR bytes_before <= $4 ORDER BY key

-- read_session_messages --
-- The same of one session's active rows.
SELECT key, enqueued_at, expires_at, checksum, more, bare FROM (
    SELECT
        found.key, enqueued_at, expires_at, checksum, more, coalesce(found.bare, payloads.bare) AS bare,
        sum(octet_length(coalesce(found.bare, payloads.bare))) OVER before AS bytes_before,
        count(*) OVER before AS rows_before
    FROM (
        SELECT messages.* FROM busway.session_messages INNER JOIN busway.messages
            ON messages.key = ANY(ARRAY[session_messages.key])
        WHERE session_messages.session_id = $5 AND session_messages.key > $1 AND session_messages.key <= $2
            AND session_messages.key > 0
        ORDER BY session_messages.key LIMIT $3
    ) AS found LEFT JOIN busway.payloads ON payloads.id = ANY(ARRAY[found.payload])
    WINDOW before AS (ORDER BY found.key ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
) AS measured
WHERE rows_before <= 1 OR bytes_before <= $4 ORDER BY key

-- read_by_key --
-- The same of given rows.
SELECT key, enqueued_at, expires_at, checksum, more, bare FROM (
    SELECT
        found.key, enqueued_at, expires_at, checksum, more, coalesce(found.bare, payloads.bare) AS bare,
        sum(octet_length(coalesce(found.bare, payloads.bare))) OVER before AS bytes_before,
        count(*) OVER before AS rows_before
    FROM (
        SELECT * FROM busway.{place} WHERE key = ANY($1)
    ) AS found LEFT JOIN busway.payloads ON payloads.id = ANY(ARRAY[found.payload])
    WINDOW before AS (ORDER BY found.key ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
) AS measured
WHERE rows_before <= 1 OR bytes_before <= $2 ORDER BY key

-- read_sizes --
-- About how many bytes rows have in memory, without reading their bodies.
SELECT found.key, coalesce(octet_length(more), 0) + coalesce(octet_length(found.bare), octet_length(payloads.bare), 0)
FROM busway.{place} AS found LEFT JOIN busway.payloads ON payloads.id = ANY(ARRAY[found.payload])
WHERE found.key = ANY($1)

-- peek --
-- Rows of all places with their place, merged, until the bytes before one are too many.
SELECT key, enqueued_at, expires_at, checksum, more, bare, place FROM (
    SELECT
        found.key, enqueued_at, expires_at, checksum, more, coalesce(found.bare, payloads.bare) AS bare, place,
        sum(octet_length(coalesce(found.bare, payloads.bare))) OVER before AS bytes_before,
        count(*) OVER before AS rows_before
    FROM (
        (SELECT key, enqueued_at, expires_at, checksum, more, payload, bare, 0 AS place
        FROM busway.messages WHERE key > $1 AND key <= $2 ORDER BY key LIMIT $3)
        UNION ALL
        (SELECT key, enqueued_at, expires_at, checksum, more, payload, bare, 1 AS place
        FROM busway.deferred WHERE key > $1 AND key <= $2 ORDER BY key LIMIT $3)
        UNION ALL
        (SELECT key, enqueued_at, expires_at, checksum, more, payload, bare, 2 AS place
        FROM busway.scheduled WHERE key > $1 AND key <= $2 ORDER BY key LIMIT $3)
        ORDER BY key LIMIT $3
    ) AS found LEFT JOIN busway.payloads ON payloads.id = ANY(ARRAY[found.payload])
    WINDOW before AS (ORDER BY found.key, place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
) AS measured
WHERE rows_before <= 1 OR bytes_before <= $4 ORDER BY key, place

-- peek_session --
-- The same of one session.
SELECT key, enqueued_at, expires_at, checksum, more, bare, place FROM (
    SELECT
        found.key, enqueued_at, expires_at, checksum, more, coalesce(found.bare, payloads.bare) AS bare, place,
        sum(octet_length(coalesce(found.bare, payloads.bare))) OVER before AS bytes_before,
        count(*) OVER before AS rows_before
    FROM (
        (SELECT messages.*, 0 AS place FROM busway.session_messages INNER JOIN busway.messages
            ON messages.key = ANY(ARRAY[session_messages.key])
        WHERE session_messages.session_id = $5 AND session_messages.key > $1 AND session_messages.key <= $2
            AND session_messages.key > 0
        ORDER BY session_messages.key LIMIT $3)
        UNION ALL
        (SELECT key, enqueued_at, expires_at, checksum, more, payload, bare, 1 AS place
        FROM busway.deferred WHERE session_id = $5 AND key > $1 AND key <= $2 ORDER BY key LIMIT $3)
        UNION ALL
        (SELECT key, enqueued_at, expires_at, checksum, more, payload, bare, 2 AS place
        FROM busway.scheduled WHERE session_id = $5 AND key > $1 AND key <= $2 ORDER BY key LIMIT $3)
        ORDER BY key LIMIT $3
    ) AS found LEFT JOIN busway.payloads ON payloads.id = ANY(ARRAY[found.payload])
    WINDOW before AS (ORDER BY found.key, place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
) AS measured
WHERE rows_before <= 1 OR bytes_before <= $4 ORDER BY key, place

-- read_due --
-- Scheduled rows by time, after a given one; fragments that wait for the sweep are left out.
SELECT scheduled_at, key FROM busway.scheduled
WHERE store = $1 AND (scheduled_at, key) > ($2, $3) AND scheduled_at <= $4 AND key > 0
    AND NOT EXISTS (SELECT FROM busway.dropped_fragments WHERE dropped_fragments.key = scheduled.key >> 40)
ORDER BY scheduled_at, key LIMIT $5

-- read_expiry --
-- Own expiry entries by time, after a given one; fragments that wait for the sweep are left out.
SELECT expires_at, key FROM busway.expiry_entries
WHERE store = $1 AND (expires_at, key) > ($2, $3) AND expires_at <= $4 AND key > 0
    AND NOT EXISTS (SELECT FROM busway.dropped_fragments WHERE dropped_fragments.key = expiry_entries.key >> 40)
ORDER BY expires_at, key LIMIT $5

-- read_session --
-- A session's first active rows; its state, and when that was set. Its first row is the latest of what is there: the
-- others are dead versions.
SELECT
    ARRAY(
        SELECT key FROM busway.session_messages WHERE session_id = $2 AND key >= (
            SELECT first_key FROM busway.sessions WHERE fragment = $1 AND session_id = $2
            ORDER BY first_key DESC LIMIT 1
        ) AND key <= $3 AND key > 0 ORDER BY key LIMIT $4
    ),
    (SELECT state FROM busway.session_states WHERE fragment = $1 AND session_id = $2),
    coalesce((SELECT set_at FROM busway.session_states WHERE fragment = $1 AND session_id = $2), 0)

-- read_session_keys --
-- Keys of sessions' active rows, the first few of each.
SELECT given.session_id, ARRAY(
    SELECT key FROM busway.session_messages WHERE session_messages.session_id = given.session_id AND key >= $2
        AND key <= $3 AND key > 0 ORDER BY key LIMIT $4
) FROM unnest($1::bytea []) AS given (session_id)

-- read_session_firsts --
-- Sessions with active rows, by their first key.
SELECT session_id, first_key FROM busway.sessions WHERE first_key > $1 AND first_key <= $2 AND first_key > 0
ORDER BY first_key LIMIT $3

-- read_sessions_of_firsts --
-- The sessions whose first active row has one of these keys.
SELECT found.session_id, given.first_key
FROM unnest($1::bigint []) AS given (first_key), LATERAL (
    SELECT session_id FROM busway.sessions WHERE sessions.first_key = given.first_key AND sessions.first_key > 0
    OFFSET 0
) AS found
ORDER BY given.first_key

-- read_sessions --
-- Ids of sessions that have active rows or a state, from one on, each with its first key and when its state was set.
SELECT
    session_id,
    coalesce((
        SELECT first_key FROM busway.sessions WHERE sessions.fragment = $1 AND sessions.session_id = found.session_id
        ORDER BY first_key DESC LIMIT 1
    ), 0),
    (
        SELECT set_at FROM busway.session_states
        WHERE session_states.fragment = $1 AND session_states.session_id = found.session_id
    )
FROM (
    SELECT session_id FROM (
        (SELECT session_id FROM busway.sessions WHERE fragment = $1 AND session_id >= $2
        ORDER BY session_id LIMIT $3 + $4)
        UNION
        (SELECT session_id FROM busway.session_states WHERE fragment = $1 AND session_id >= $2
        ORDER BY session_id LIMIT $3 + $4)
    ) AS either ORDER BY session_id LIMIT $3 OFFSET $4
) AS found ORDER BY session_id

-- read_sessions_by_state --
-- The same of sessions whose state was set after a time.
SELECT session_id, 0::bigint, set_at FROM busway.session_states
WHERE fragment = $1 AND set_at > $5 AND session_id >= $2 ORDER BY session_id LIMIT $3 OFFSET $4

-- read_duplicate_ids --
-- When message ids were accepted that are still known.
SELECT given.message_id, known.accepted_at
FROM unnest($2::bytea []) AS given (message_id), LATERAL (
    SELECT accepted_at FROM busway.duplicate_ids WHERE fragment = $1 AND duplicate_ids.message_id = given.message_id
    OFFSET 0
) AS known
WHERE known.accepted_at >= greatest($3, coalesce((SELECT ids_since FROM busway.fragments WHERE key = $1), 0))

-- read_chunks --
-- Chunks from a number on, until one does not fit into a number of bytes: the first may be of any size. Those behind the
-- page come without their bytes: they tell that there are more.
SELECT
    log, first_number, last_number, first_at, last_at, events, checksum,
    CASE WHEN bytes_before IS NULL OR bytes_before + octet_length(data) <= $3 THEN data END
FROM (
    SELECT *, sum(octet_length(data)) OVER before AS bytes_before, count(*) OVER before AS rows_before
    FROM (
        SELECT * FROM busway.log_chunks WHERE log = $1 AND last_number >= $2 ORDER BY last_number LIMIT $4
    ) AS found
    WINDOW before AS (ORDER BY last_number ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
) AS measured
WHERE rows_before <= 1 OR bytes_before <= $3
ORDER BY last_number

-- read_chunk_heads --
-- Chunks from a number on, without their bytes.
SELECT first_number, last_number, first_at, last_at, events, octet_length(data)::bigint FROM busway.log_chunks
WHERE log = $1 AND last_number >= $2 ORDER BY last_number LIMIT $3

-- read_number_since --
-- The first chunk with an event of a time or later.
SELECT first_number FROM busway.log_chunks WHERE log = $1 AND last_at >= $2 AND log > 0 ORDER BY last_at, first_number LIMIT 1

-- read_producers --
-- The producers of a log.
SELECT producer, epoch, last_sequence, used_at, groups FROM busway.log_producers WHERE log = $1 ORDER BY producer

-- read_fragments --
-- Every fragment of a store. A log's next number lies behind its last chunk, and its first is no later than that of its
-- first one.
SELECT
    key, owner, fragment_index,
    greatest(last_counter, (
        SELECT chunk.last_number + 1 FROM busway.log_chunks AS chunk WHERE chunk.log = fragments.key
        ORDER BY chunk.last_number DESC LIMIT 1
    )),
    active,
    least(deferred, (
        SELECT chunk.first_number FROM busway.log_chunks AS chunk WHERE chunk.log = fragments.key
        ORDER BY chunk.last_number LIMIT 1
    )),
    scheduled, bytes, expiry_high, accessed_at
FROM busway.fragments INNER JOIN busway.counters ON counters.fragment = ANY(ARRAY[fragments.key])
WHERE store = $1 ORDER BY key

-- read_some_fragments --
-- Some of them.
SELECT key, owner, fragment_index, last_counter, active, deferred, scheduled, bytes, expiry_high, accessed_at
FROM busway.fragments INNER JOIN busway.counters ON counters.fragment = ANY(ARRAY[fragments.key])
WHERE store = $1 AND key = ANY($2) ORDER BY key

-- read_fragment_marks --
-- Of each fragment of a store: what its numbers have in the upper bits, where its active rows begin, the highest number
-- ever given out, and the version of these.
SELECT key, fragment_index, head, last_counter, version
FROM busway.fragments INNER JOIN busway.counters ON counters.fragment = ANY(ARRAY[fragments.key])
WHERE store = $1

-- read_dropped --
-- Fragments that wait for the sweep.
SELECT key FROM busway.dropped_fragments WHERE store = $1 ORDER BY key

-- read_sharing --
-- Fragments that may have rows with a shared payload.
SELECT key FROM busway.sharing_fragments WHERE store = $1

-- read_last_payload --
-- The highest number of a payload between two.
SELECT coalesce(max(payload), 0) FROM busway.payload_references WHERE payload BETWEEN $1 AND $2

-- read_fragments_with_entries --
-- Fragments of a store that have rows in the session index, and those with own expiry entries: one look-up each.
SELECT
    key,
    EXISTS (SELECT FROM busway.session_messages AS entry WHERE entry.key BETWEEN each.key << 40 AND (each.key + 1) << 40),
    EXISTS (SELECT FROM busway.expiry_entries AS entry WHERE entry.key BETWEEN each.key << 40 AND (each.key + 1) << 40)
FROM busway.fragments AS each WHERE store = $1

-- read_transfer_marks --
-- Rows of other stores that have arrived here, of one store or of any.
SELECT source_store, source_fragment, source_number FROM busway.transfer_marks
WHERE store = $1 AND ($2::text IS NULL OR source_store = $2)
ORDER BY source_store, source_fragment, source_number

-- read_catalogue --
-- All descriptions.
SELECT key, text FROM busway.catalogue WHERE store = $1

-- read_catalogue_version --
-- Their version.
SELECT catalogue_version FROM busway.stores WHERE store = $1

-- copy_rows --
-- Rows of a place with a body of their own between two keys, until the bytes before one are too many. They are measured
-- first: whoever sums over rows lays them aside, bodies and all.
SELECT key, enqueued_at, expires_at, checksum, more, bare FROM busway.{place}
WHERE key > $1 AND payload IS NULL AND key <= (
    SELECT max(key) FROM (
        SELECT key, sum(size) OVER (ORDER BY key ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
        FROM (
            SELECT key, octet_length(bare) AS size FROM busway.{place}
            WHERE key > $1 AND key <= $2 AND payload IS NULL ORDER BY key LIMIT $3
        ) AS found
    ) AS measured WHERE bytes_before IS NULL OR bytes_before <= $4
) ORDER BY key

-- copy_sharing_rows --
-- Rows of all places that share a body, sharers together, from one body of a store on.
SELECT payload, 0, key, enqueued_at, expires_at, checksum, more FROM busway.messages WHERE payload BETWEEN %s AND %s
UNION ALL
SELECT payload, 1, key, enqueued_at, expires_at, checksum, more FROM busway.deferred WHERE payload BETWEEN %s AND %s
UNION ALL
SELECT payload, 2, key, enqueued_at, expires_at, checksum, more FROM busway.scheduled WHERE payload BETWEEN %s AND %s
ORDER BY 1, 2, 3

-- copy_payload --
-- One shared body.
SELECT bare FROM busway.payloads WHERE id = $1

-- copy_session_index --
-- Active messages in the session index between two keys.
SELECT key, session_id FROM busway.session_messages WHERE key > $1 AND key <= $2 ORDER BY key LIMIT $3

-- copy_expiry --
-- Own expiry entries between two keys.
SELECT key, expires_at FROM busway.expiry_entries WHERE key > $1 AND key <= $2 ORDER BY key LIMIT $3

-- copy_expiry_of --
-- That of one message.
SELECT expires_at FROM busway.expiry_entries WHERE key = $1

-- copy_states --
-- States of sessions behind one, of some fragments.
SELECT fragment, session_id, set_at, state FROM busway.session_states
WHERE (fragment, session_id) > ($1, $2) AND fragment BETWEEN $3 AND $4 ORDER BY fragment, session_id LIMIT $5

-- copy_duplicate_ids --
-- Accepted message ids behind one, of some fragments, without those that are forgotten.
SELECT fragment, message_id, accepted_at FROM busway.duplicate_ids
WHERE (fragment, message_id) > ($1, $2) AND fragment BETWEEN $3 AND $4
    AND accepted_at >= coalesce((SELECT ids_since FROM busway.fragments WHERE key = duplicate_ids.fragment), 0)
ORDER BY fragment, message_id LIMIT $5

-- copy_chunks --
-- Chunks of a log behind a number, likewise.
SELECT log, first_number, last_number, first_at, last_at, events, checksum, data FROM busway.log_chunks
WHERE log = $1 AND last_number > $2 AND last_number <= (
    SELECT max(last_number) FROM (
        SELECT
            last_number,
            sum(size) OVER (ORDER BY last_number ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
        FROM (
            SELECT last_number, octet_length(data) AS size FROM busway.log_chunks
            WHERE log = $1 AND last_number > $2 ORDER BY last_number LIMIT $3
        ) AS found
    ) AS measured WHERE bytes_before IS NULL OR bytes_before <= $4
) ORDER BY last_number

-- copy_logs --
-- Logs among a store's fragments, from one on.
SELECT key FROM busway.fragments
WHERE store = $1 AND key >= $2 AND EXISTS (SELECT FROM busway.log_chunks WHERE log_chunks.log = fragments.key)
ORDER BY key

-- copy_producers --
-- Producers behind one, of some logs.
SELECT log, producer, epoch, last_sequence, used_at, groups FROM busway.log_producers
WHERE (log, producer) > ($1, $2) AND log BETWEEN $3 AND $4 ORDER BY log, producer LIMIT $5

-- copy_begin --
-- All that is read is of one moment, however long that takes.
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY

-- copy_leap --
-- An empty store begins behind all that a store of this name can have had before.
WITH raised AS (
    UPDATE busway.stores SET epoch = greatest(epoch, $2::bigint) WHERE store = $1::integer
)
UPDATE busway.commits SET number = greatest(number, $2::bigint) WHERE store = $1::integer

-- copy_session --
-- And nobody's patience ends it.
SELECT set_config('idle_in_transaction_session_timeout', '0', false), set_config('jit', 'off', false)

-- copy_neighbours --
-- Other sessions of servers and copies in this database.
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name = $1

-- read_clock --
-- What time it is there, in seconds.
SELECT extract(EPOCH FROM clock_timestamp())::float8

-- read_dead_rows --
-- Rows that wait for vacuum, by table, as the server estimates them.
SELECT relname, n_dead_tup FROM pg_stat_user_tables WHERE schemaname = 'busway'

-- read_holders --
-- What keeps vacuum from them, the oldest first: in words, and for how many seconds.
SELECT holders.what, holders.age_s FROM (
    SELECT
        format(
            'a transaction of %s (process %s, application ''%s'', user %s) that is open for %s s', backend_type, pid,
            left(application_name, 60), usename, extract(EPOCH FROM clock_timestamp() - xact_start)::bigint
        ) AS what,
        extract(EPOCH FROM clock_timestamp() - xact_start)::float8 AS age_s
    FROM pg_stat_activity
    WHERE
        backend_xmin IS NOT NULL AND pid <> pg_backend_pid() AND xact_start < clock_timestamp() - interval '1 s'
        AND backend_type <> 'autovacuum worker'
    UNION ALL
    SELECT format('the standby ''%s'' (hot_standby_feedback)', left(application_name, 60)), NULL
    FROM pg_stat_replication WHERE backend_xmin IS NOT NULL AND age(backend_xmin) > 100000
    UNION ALL
    SELECT format('the replication slot ''%s''', slot_name), NULL
    FROM pg_replication_slots WHERE xmin IS NOT NULL AND age(xmin) > 100000
    UNION ALL
    SELECT
        format('the prepared transaction ''%s''', left(gid, 60)),
        extract(EPOCH FROM clock_timestamp() - prepared)::float8
    FROM pg_prepared_xacts
    UNION ALL
    SELECT 'autovacuum, which is off on this server', NULL WHERE NOT current_setting('autovacuum')::boolean
    UNION ALL
    SELECT format('autovacuum, which is off for busway.%s', relname), NULL
    FROM pg_class
    WHERE
        relnamespace = to_regnamespace('busway')
        AND 'autovacuum_enabled=false' = ANY(reloptions)
) AS holders
ORDER BY holders.age_s DESC NULLS LAST LIMIT 3
