-- Every statement the store runs. "-- name --", a line of meaning, the statement.
-- {place}, {source} and {target} stand for messages, deferred or scheduled.

-- begin --
-- The writer is alone; IMMEDIATE says so at once instead of in the middle of a batch.
BEGIN IMMEDIATE

-- commit --
-- The only statement that writes and syncs the file; runs in the commit thread.
COMMIT

-- roll_back --
-- Takes back a batch one of whose statements failed.
ROLLBACK

-- begin_read --
-- From the first SELECT on, every statement sees the same commit.
BEGIN DEFERRED

-- end_read --
-- Lets the snapshot go.
ROLLBACK

-- put_active --
-- Stores one active message.
INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?)

-- put_aside --
-- Stores one deferred or scheduled message.
INSERT INTO {place} VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- read_front --
-- A row without its body, to be written anew; casts, because damage may have changed a column's type.
SELECT
    key, CAST(enqueued_at AS INTEGER), CAST(expires_at AS INTEGER), CAST(checksum AS INTEGER), CAST(more AS BLOB)
FROM {place} WHERE key = ?

-- move_to_active --
-- Carries a row to another key or place without its body leaving the database.
INSERT INTO messages SELECT ?1, ?2, ?3, ?4, ?5, bare FROM {source} WHERE key = ?6;
DELETE FROM {source} WHERE key = ?1

-- move_aside --
-- The same, to the deferred or scheduled rows.
INSERT INTO {target} SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, bare FROM {source} WHERE key = ?8;
DELETE FROM {source} WHERE key = ?1

-- read_fronts_of_run --
-- Rows with consecutive keys without their bodies; casts as above.
SELECT
    key, CAST(enqueued_at AS INTEGER), CAST(expires_at AS INTEGER), CAST(checksum AS INTEGER), CAST(more AS BLOB)
FROM {place} WHERE key BETWEEN ? AND ?

-- copy_to_active --
-- The first half of a move; the rows of a run leave their old place together.
INSERT INTO messages SELECT ?1, ?2, ?3, ?4, ?5, bare FROM {source} WHERE key = ?6

-- copy_aside --
-- The same, to the deferred or scheduled rows.
INSERT INTO {target} SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, bare FROM {source} WHERE key = ?8

-- change --
-- New values of `more` for a row that stays.
UPDATE {place} SET checksum = ?, more = ? WHERE key = ?

-- run_put --
-- Stores messages with consecutive numbers.
INSERT INTO message_runs VALUES (?, ?, ?, ?)

-- run_delete --
-- Removes a run, with what is known of it.
DELETE FROM message_runs WHERE key = ?1;
DELETE FROM run_marks WHERE key = ?1

-- run_marks_put --
-- Which messages of a run are gone.
INSERT OR REPLACE INTO run_marks VALUES (?, ?, ?, ?)

-- run_row_put --
-- A message that leaves its run and becomes a row. One that is there already, after damage, stays.
INSERT OR IGNORE INTO messages VALUES (?, ?, ?, ?, ?, ?)

-- payload_put --
-- A body for several rows.
INSERT INTO payloads VALUES (?, ?)

-- payload_weigh --
-- What its rows weigh together.
INSERT INTO payload_references VALUES (?, ?)

-- payloads_of_run --
-- The payloads that rows with consecutive keys refer to.
SELECT bare FROM {place} WHERE key BETWEEN ? AND ? AND typeof(bare) = 'integer'

-- payloads_of_slice --
-- The payloads that the next slice of a sweep refers to.
SELECT bare FROM (SELECT bare FROM {place} WHERE key BETWEEN ? AND ? ORDER BY key LIMIT ?)
WHERE typeof(bare) = 'integer'

-- payload_release --
-- So many rows fewer refer to a payload.
UPDATE payload_references SET weight = weight - ? WHERE payload = ?

-- payload_drop --
-- Removes a payload to which nothing refers any more.
DELETE FROM payloads WHERE id = ?1 AND EXISTS (
    SELECT 1 FROM payload_references WHERE payload = ?1 AND weight = 0
)

-- payload_forget --
-- Removes what such a payload weighed.
DELETE FROM payload_references WHERE payload = ? AND weight = 0

-- sharing_fragment_put --
-- Remembers that a fragment has rows with a shared payload.
INSERT OR IGNORE INTO sharing_fragments VALUES (?)

-- transfer_mark_put --
-- Remembers a row of another store that has arrived.
INSERT OR IGNORE INTO transfer_marks VALUES (?, ?, ?)

-- transfer_mark_delete --
-- Forgets it.
DELETE FROM transfer_marks WHERE source_store = ? AND source_fragment = ? AND source_number = ?

-- delete_run --
-- Removes rows with consecutive keys.
DELETE FROM {place} WHERE key BETWEEN ? AND ?

-- session_entry_put --
-- Enters an active row into the session index.
INSERT INTO session_messages VALUES (?, ?)

-- session_entry_moved --
-- Enters a moved row into the session index, if it arrived.
INSERT INTO session_messages SELECT key, ?2 FROM messages WHERE key = ?1 RETURNING key, session_id

-- session_entries_delete_run --
-- Takes rows with consecutive keys out of the session index and tells whose they were.
DELETE FROM session_messages WHERE key BETWEEN ? AND ? RETURNING key, session_id

-- session_recount --
-- Brings a session's row up to date: count by difference, first key by a look into the index.
INSERT INTO sessions VALUES (
    ?1,
    ?2,
    ?3,
    coalesce((SELECT key FROM session_messages WHERE session_id = ?2 AND key BETWEEN ?4 AND ?5 ORDER BY key LIMIT 1), 0)
)
ON CONFLICT DO UPDATE SET active = active + excluded.active, first_key = excluded.first_key;
DELETE FROM sessions WHERE fragment = ?1 AND session_id = ?2 AND first_key = 0

-- session_state_set --
-- Keeps a session's state.
INSERT INTO session_states (fragment, session_id, set_at, state) VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET set_at = excluded.set_at, state = excluded.state

-- session_state_clear --
-- Forgets a session's state.
DELETE FROM session_states WHERE fragment = ? AND session_id = ?

-- expiry_entry_put --
-- Remembers a row that expires out of order.
INSERT OR REPLACE INTO expiry_entries VALUES (?, ?)

-- expiry_entry_moved --
-- Remembers a moved row that expires out of order, if it arrived.
INSERT OR REPLACE INTO expiry_entries SELECT key, expires_at FROM {place} WHERE key = ?

-- expiry_entries_delete_run --
-- Forgets the expiry of rows with consecutive keys.
DELETE FROM expiry_entries WHERE key BETWEEN ? AND ?

-- duplicate_id_put --
-- Remembers an accepted message id; the latest acceptance counts.
INSERT INTO duplicate_ids VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET accepted_at = excluded.accepted_at

-- duplicate_ids_forget --
-- From now on ids accepted earlier are unknown; the rows go in slices.
UPDATE fragments SET ids_since = max(ids_since, ?1) WHERE key = ?2

-- duplicate_ids_purge --
-- Removes a slice of forgotten ids.
DELETE FROM duplicate_ids WHERE (fragment, message_id) IN (
    SELECT fragment, message_id FROM duplicate_ids WHERE fragment = ? AND accepted_at < ? LIMIT ?
)

-- chunk_put --
-- Appends one chunk of events.
INSERT INTO log_chunks VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?)

-- chunk_delete --
-- Removes the chunk that begins with a number. Chunks do not overlap: it is the first that ends there or later.
DELETE FROM log_chunks WHERE first_number = ?2 AND key = (
    SELECT key FROM log_chunks WHERE log = ?1 AND last_number >= ?2 ORDER BY last_number LIMIT 1
)

-- producer_put --
-- What a log remembers of a producer.
INSERT INTO log_producers VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE
SET epoch = excluded.epoch, last_sequence = excluded.last_sequence, used_at = excluded.used_at, groups = excluded.groups

-- producers_purge --
-- Forgets producers of a log that were used no more.
DELETE FROM log_producers WHERE log = ? AND used_at < ?

-- counters_write --
-- A fragment's counts, sizes and high-water marks.
UPDATE fragments SET
    last_counter = ?, active = ?, deferred = ?, scheduled = ?, bytes = ?, expiry_high = ?, accessed_at = ?
WHERE key = ?

-- commit_number_write --
-- Counts this commit.
UPDATE fragments SET last_counter = ? WHERE key = 0

-- fragment_create --
-- A new fragment.
INSERT INTO fragments VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0)

-- fragment_drop --
-- The fragment is gone for every reader; its rows are swept later.
INSERT INTO dropped_fragments SELECT key FROM fragments WHERE key = ?1;
DELETE FROM fragments WHERE key = ?1

-- catalogue_put --
-- One description.
INSERT INTO catalogue VALUES (?, ?) ON CONFLICT DO UPDATE SET text = excluded.text

-- catalogue_delete --
-- One description less.
DELETE FROM catalogue WHERE key = ?

-- meta_write --
-- One number about the store.
UPDATE meta SET value = ? WHERE name = ?

-- sweep_by_key --
-- Removes a slice of a dropped fragment's rows from a table with row keys.
DELETE FROM {place} WHERE key IN (SELECT key FROM {place} WHERE key BETWEEN ? AND ? ORDER BY key LIMIT ?)

-- sweep_sessions --
-- Removes a slice of a dropped fragment's sessions.
DELETE FROM sessions WHERE (fragment, session_id) IN (
    SELECT fragment, session_id FROM sessions WHERE fragment = ? LIMIT ?
)

-- sweep_session_states --
-- Removes a slice of a dropped fragment's session states.
DELETE FROM session_states WHERE id IN (SELECT id FROM session_states WHERE fragment = ? LIMIT ?)

-- sweep_duplicate_ids --
-- Removes a slice of a dropped fragment's message ids.
DELETE FROM duplicate_ids WHERE (fragment, message_id) IN (
    SELECT fragment, message_id FROM duplicate_ids WHERE fragment = ? LIMIT ?
)

-- sweep_run_sizes --
-- The next runs of a dropped fragment, with their sizes.
SELECT key, coalesce(length(data), 0) FROM message_runs WHERE key BETWEEN ? AND ? ORDER BY key LIMIT ?

-- sweep_chunk_sizes --
-- The next chunks of a dropped log, with their sizes.
SELECT key, coalesce(length(data), 0) FROM log_chunks WHERE log = ? ORDER BY last_number LIMIT ?

-- sweep_chunk --
-- Removes one of them.
DELETE FROM log_chunks WHERE key = ?

-- sweep_producers --
-- Removes a slice of a dropped log's producers.
DELETE FROM log_producers WHERE (log, producer) IN (
    SELECT log, producer FROM log_producers WHERE log = ? LIMIT ?
)

-- sweep_done --
-- Nothing of the dropped fragment is left.
DELETE FROM dropped_fragments WHERE key = ?1;
DELETE FROM sharing_fragments WHERE key = ?1

-- read_messages --
-- A run of one place's rows, shared bodies included.
SELECT key, enqueued_at, expires_at, checksum, more, CASE typeof(bare)
    WHEN 'integer' THEN (SELECT payloads.bare FROM payloads WHERE id = {place}.bare)
    ELSE bare
END
FROM {place} WHERE key > ? AND key <= ? ORDER BY key LIMIT ?

-- warm_messages --
-- Touches every page of a run of rows in one step; how many rows, and the last of them. Only bodies that leave their
-- row's page are read themselves.
SELECT count(*), max(key), sum(spilled) FROM (
    SELECT key, CASE WHEN length(bare) > 8000 THEN length(substr(bare, -1)) END AS spilled FROM {place}
    WHERE key > ? AND key <= ? ORDER BY key LIMIT ?
)

-- warm_ahead --
-- Touches the pages of rows that will be read soon: the last row, and the first whose body lies elsewhere and is not
-- touched.
SELECT max(key), min(elsewhere) FROM (
    SELECT key, CASE WHEN length(bare) > 8000 OR typeof(bare) = 'integer' THEN key END AS elsewhere FROM {place}
    WHERE key > ? AND key <= ? ORDER BY key LIMIT ?
)

-- warm_payloads --
-- Touches the shared bodies of a run of keys.
SELECT sum(length(substr(payloads.bare, -1))) FROM {place} CROSS JOIN payloads ON payloads.id = {place}.bare
WHERE {place}.key > ? AND {place}.key <= ? AND typeof({place}.bare) = 'integer'

-- read_size --
-- About how many bytes a row has in memory, without reading its body.
SELECT key, coalesce(length(more), 0) + CASE typeof(bare)
    WHEN 'integer' THEN coalesce((SELECT length(payloads.bare) FROM payloads WHERE id = {place}.bare), 0)
    ELSE length(bare)
END
FROM {place} WHERE key = ?

-- read_run_at --
-- The run that a key may lie in: the last that begins at or before it. Casts, because damage may have changed a
-- column's type or taken it away.
SELECT
    message_runs.key, coalesce(CAST(message_runs.last AS INTEGER), 0),
    coalesce(CAST(message_runs.checksum AS INTEGER), -1), run_marks.key IS NOT NULL,
    coalesce(CAST(run_marks.gone AS INTEGER), 0), CAST(run_marks.dead AS BLOB),
    coalesce(CAST(run_marks.checksum AS INTEGER), -1)
FROM message_runs LEFT JOIN run_marks ON run_marks.key = message_runs.key
WHERE message_runs.key BETWEEN ? AND ? ORDER BY message_runs.key DESC LIMIT 1

-- read_runs --
-- Runs that begin at or behind a key; casts as above.
SELECT
    message_runs.key, coalesce(CAST(message_runs.last AS INTEGER), 0),
    coalesce(CAST(message_runs.checksum AS INTEGER), -1), run_marks.key IS NOT NULL,
    coalesce(CAST(run_marks.gone AS INTEGER), 0), CAST(run_marks.dead AS BLOB),
    coalesce(CAST(run_marks.checksum AS INTEGER), -1)
FROM message_runs LEFT JOIN run_marks ON run_marks.key = message_runs.key
WHERE message_runs.key BETWEEN ? AND ? ORDER BY message_runs.key

-- read_next_run --
-- The key of the first run that begins between two keys.
SELECT key FROM message_runs WHERE key BETWEEN ? AND ? ORDER BY key LIMIT 1

-- warm_runs --
-- Touches runs in one step, from the one that a key may lie in on, until they have so many messages behind that key
-- or so many bytes: the last of them, its end, and whether there are more.
WITH RECURSIVE found (key, last, room, size_left) AS (
    SELECT
        key, last, ?4 - max(last - max(key, ?2) + 1, 0),
        ?5 - CASE WHEN last >= ?2 THEN coalesce(length(substr(data, -1)), 0) + length(data) ELSE 0 END
    FROM message_runs WHERE key = coalesce(
        (SELECT key FROM message_runs WHERE key BETWEEN ?1 AND ?2 ORDER BY key DESC LIMIT 1),
        (SELECT key FROM message_runs WHERE key BETWEEN ?2 AND ?3 ORDER BY key LIMIT 1)
    )
    UNION ALL
    SELECT
        following.key, following.last, found.room - (following.last - following.key + 1),
        found.size_left - coalesce(length(substr(following.data, -1)), 0) - length(following.data)
    FROM found CROSS JOIN message_runs AS following ON following.key = (
        SELECT key FROM message_runs WHERE key > found.key AND key <= ?3 ORDER BY key LIMIT 1
    )
    WHERE found.room > 0 AND found.size_left > 0
)
SELECT key, coalesce(CAST(last AS INTEGER), 0), EXISTS (
    SELECT 1 FROM message_runs WHERE message_runs.key > last_found.key AND message_runs.key <= ?3
)
FROM (SELECT max(key) AS key, max(last) AS last FROM found) AS last_found WHERE key IS NOT NULL

-- read_by_key --
-- One row.
SELECT key, enqueued_at, expires_at, checksum, more, bare FROM {place} WHERE key = ?

-- read_payload --
-- One shared body.
SELECT bare FROM payloads WHERE id = ?

-- read_session_messages --
-- A run of one session's active rows, shared bodies included.
SELECT
    messages.key, messages.enqueued_at, messages.expires_at, messages.checksum, messages.more,
    CASE typeof(messages.bare)
        WHEN 'integer' THEN (SELECT payloads.bare FROM payloads WHERE id = messages.bare)
        ELSE messages.bare
    END
FROM session_messages CROSS JOIN messages ON messages.key = session_messages.key
WHERE session_messages.session_id = ? AND session_messages.key > ? AND session_messages.key <= ?
ORDER BY session_messages.key LIMIT ?

-- warm_session_messages --
-- Touches every page of the same run in one step; the answer is of no interest.
SELECT sum(length(substr(coalesce(payloads.bare, found.bare), -1))) FROM (
    SELECT messages.bare FROM session_messages CROSS JOIN messages ON messages.key = session_messages.key
    WHERE session_messages.session_id = ? AND session_messages.key > ? AND session_messages.key <= ?
    ORDER BY session_messages.key LIMIT ?
) AS found LEFT JOIN payloads ON payloads.id = found.bare AND typeof(found.bare) = 'integer'

-- read_keys --
-- Like read_messages, the keys alone: to read the rows one by one when one of them cannot be decoded.
SELECT key FROM {place} WHERE key > ? AND key <= ? ORDER BY key LIMIT ?

-- read_session_keys --
-- Keys of one session's active rows.
SELECT key FROM session_messages WHERE session_id = ? AND key > ? AND key <= ? ORDER BY key LIMIT ?

-- peek_keys --
-- Keys of all places with their place, merged.
SELECT key, 0 AS place FROM messages WHERE key > ?1 AND key <= ?2
UNION ALL SELECT key, 1 FROM deferred WHERE key > ?1 AND key <= ?2
UNION ALL SELECT key, 2 FROM scheduled WHERE key > ?1 AND key <= ?2
ORDER BY key LIMIT ?3

-- peek_session_keys --
-- Keys of one session in all places, merged.
SELECT key, 0 AS place FROM session_messages WHERE session_id = ?4 AND key > ?1 AND key <= ?2
UNION ALL SELECT key, 1 FROM deferred WHERE session_id = ?4 AND key > ?1 AND key <= ?2
UNION ALL SELECT key, 2 FROM scheduled WHERE session_id = ?4 AND key > ?1 AND key <= ?2
ORDER BY key LIMIT ?3

-- read_due --
-- Scheduled rows by time, after a given one; fragments that wait for the sweep are left out.
SELECT scheduled_at, key FROM scheduled
WHERE (scheduled_at, key) > (?1, ?2) AND scheduled_at <= ?3
    AND NOT EXISTS (SELECT 1 FROM dropped_fragments WHERE dropped_fragments.key = scheduled.key >> 40)
ORDER BY scheduled_at, key LIMIT ?4

-- read_expiry --
-- Own expiry entries by time, after a given one; fragments that wait for the sweep are left out.
SELECT expires_at, key FROM expiry_entries
WHERE (expires_at, key) > (?1, ?2) AND expires_at <= ?3
    AND NOT EXISTS (SELECT 1 FROM dropped_fragments WHERE dropped_fragments.key = expiry_entries.key >> 40)
ORDER BY expires_at, key LIMIT ?4

-- read_session --
-- Count and first key of a session.
SELECT active, first_key FROM sessions WHERE fragment = ? AND session_id = ?

-- read_session_state --
-- State of a session and when it was set.
SELECT state, set_at FROM session_states WHERE fragment = ? AND session_id = ?

-- read_session_state_time --
-- When the state of a session was set.
SELECT set_at FROM session_states WHERE fragment = ? AND session_id = ?

-- read_session_firsts --
-- Sessions with active rows, by their first key.
SELECT session_id, first_key FROM sessions WHERE first_key > ? AND first_key <= ? ORDER BY first_key LIMIT ?

-- read_session_of_first --
-- The session whose first active row has this key.
SELECT session_id, first_key FROM sessions WHERE first_key = ?

-- read_sessions --
-- Ids of sessions that have active rows or a state, from one on, each with its first key.
SELECT session_id, first_key FROM sessions WHERE fragment = ?1 AND session_id >= ?4
UNION ALL
SELECT session_id, 0 FROM session_states WHERE fragment = ?1 AND session_id >= ?4 AND NOT EXISTS (
    SELECT 1 FROM sessions WHERE sessions.fragment = ?1 AND sessions.session_id = session_states.session_id
)
ORDER BY session_id LIMIT ?2 OFFSET ?3

-- read_sessions_by_state --
-- Ids of sessions whose state was set after a time, from one on.
SELECT session_id, 0 FROM session_states WHERE fragment = ? AND set_at > ? AND session_id >= ?
ORDER BY session_id LIMIT ? OFFSET ?

-- read_duplicate_id --
-- When a message id was accepted, if it is still known.
SELECT message_id, accepted_at FROM duplicate_ids
WHERE fragment = ?1 AND message_id = ?2
    AND accepted_at >= max(?3, coalesce((SELECT ids_since FROM fragments WHERE key = ?1), 0))

-- read_chunk_list --
-- Chunks from a number on, until one does not fit into a number of bytes, as one text: what the index says of each,
-- its size and the room for it, and its row without the bytes. The first may be of any size. An index entry without a
-- row leaves a gap in the text.
WITH RECURSIVE found (key, last_number, size, room, is_first) AS (
    SELECT key, last_number, size, ?3, 1 FROM (
        SELECT key, last_number, (SELECT length(data) FROM log_chunks AS sized WHERE sized.key = log_chunks.key) AS size
        FROM log_chunks WHERE log = ?1 AND last_number >= ?2 ORDER BY last_number LIMIT 1
    )
    UNION ALL
    SELECT
        following.key,
        following.last_number,
        (SELECT length(data) FROM log_chunks AS sized WHERE sized.key = following.key),
        found.room - found.size,
        0
    FROM found CROSS JOIN log_chunks AS following ON following.log = ?1 AND following.last_number = (
        SELECT last_number FROM log_chunks WHERE log = ?1 AND last_number > found.last_number
        ORDER BY last_number LIMIT 1
    )
    WHERE found.size <= found.room OR found.is_first
)
SELECT group_concat(concat_ws(
    ' ', found.key, found.last_number, found.size, found.room, chunk.log, chunk.first_number, chunk.last_number,
    chunk.first_at, chunk.last_at, chunk.events, chunk.checksum
))
FROM found LEFT JOIN log_chunks AS chunk ON chunk.key = found.key

-- read_chunks_joined --
-- The bytes of consecutive chunks in a row.
SELECT CAST(group_concat(data, '') AS BLOB) FROM (
    SELECT data FROM log_chunks WHERE log = ? AND last_number BETWEEN ? AND ? ORDER BY last_number
)

-- read_chunk_spots --
-- Chunks from a number on, by the index alone: no row is touched.
SELECT key, last_number FROM log_chunks WHERE log = ? AND last_number >= ? ORDER BY last_number

-- read_chunk --
-- One chunk.
SELECT log, first_number, last_number, first_at, last_at, events, checksum, data FROM log_chunks WHERE key = ?

-- read_chunk_heads --
-- Chunks from a number on, without their bytes; casts, because damage may have changed a column's type.
SELECT
    coalesce(CAST(first_number AS INTEGER), 0), last_number, coalesce(CAST(first_at AS INTEGER), 0),
    coalesce(CAST(last_at AS INTEGER), 0), coalesce(CAST(events AS INTEGER), 0), coalesce(length(data), 0)
FROM log_chunks WHERE log = ? AND last_number >= ? ORDER BY last_number LIMIT ?

-- read_number_since --
-- The first chunk with an event of a time or later.
SELECT first_number FROM log_chunks WHERE log = ? AND last_at >= ? ORDER BY last_at, first_number LIMIT 1

-- read_producers --
-- The producers of a log.
SELECT producer, epoch, last_sequence, used_at, groups FROM log_producers WHERE log = ? ORDER BY producer

-- read_fragments --
-- Every fragment. A log's next number lies behind its last chunk, and its first is no later than that of its first one,
-- whatever a damaged row says: else a number would be given out twice, or events be passed over. Its chunks count only
-- where index and row agree.
SELECT
    key, owner, fragment_index,
    max(last_counter, coalesce((
        SELECT chunk.last_number + 1 FROM log_chunks AS found
        LEFT JOIN log_chunks AS chunk ON chunk.key = found.key AND chunk.last_number = found.last_number
        WHERE found.log = fragments.key ORDER BY found.last_number DESC LIMIT 1
    ), last_counter)),
    active,
    min(deferred, coalesce((
        SELECT chunk.first_number FROM log_chunks AS found
        LEFT JOIN log_chunks AS chunk ON chunk.key = found.key AND chunk.last_number = found.last_number
        WHERE found.log = fragments.key ORDER BY found.last_number LIMIT 1
    ), deferred)),
    scheduled, bytes, expiry_high, accessed_at
FROM fragments WHERE key > 0 ORDER BY key

-- read_fragment_indexes --
-- Fragments whose numbers have an index in their upper bits.
SELECT key, fragment_index FROM fragments WHERE fragment_index > 0

-- read_fragment --
-- One fragment.
SELECT key, owner, fragment_index, last_counter, active, deferred, scheduled, bytes, expiry_high, accessed_at
FROM fragments WHERE key = ?

-- read_dropped --
-- Fragments that wait for the sweep.
SELECT key FROM dropped_fragments ORDER BY key

-- read_sharing --
-- Fragments that may have rows with a shared payload.
SELECT key FROM sharing_fragments

-- read_last_payload --
-- The highest number of a payload.
SELECT coalesce(max(payload), 0) FROM payload_references

-- read_transfer_marks --
-- Rows of other stores that have arrived here.
SELECT source_store, source_fragment, source_number FROM transfer_marks

-- read_transfer_marks_from --
-- The same, of one store.
SELECT source_store, source_fragment, source_number FROM transfer_marks WHERE source_store = ?

-- read_commit_number --
-- How many commits the store has seen.
SELECT last_counter FROM fragments WHERE key = 0

-- read_catalogue --
-- All descriptions, with the catalogue's version.
SELECT key, text FROM catalogue
UNION ALL SELECT NULL, value FROM meta WHERE name = 'catalogue_version'

-- read_next_fragment_key --
-- The first key never given out.
SELECT value FROM meta WHERE name = 'next_fragment_key'

-- read_fragments_with_runs --
-- Fragments that have runs: one look-up each, no scan.
WITH RECURSIVE found (fragment) AS (
    SELECT min(key) >> 40 FROM message_runs
    UNION ALL
    SELECT (SELECT min(key) >> 40 FROM message_runs WHERE key >= (fragment + 1) << 40)
    FROM found WHERE fragment IS NOT NULL
)
SELECT fragment FROM found WHERE fragment IS NOT NULL

-- read_fragments_with_sessions --
-- Fragments that have rows in the session index: one look-up each, no scan.
WITH RECURSIVE found (fragment) AS (
    SELECT min(key) >> 40 FROM session_messages
    UNION ALL
    SELECT (SELECT min(key) >> 40 FROM session_messages WHERE key >= (fragment + 1) << 40)
    FROM found WHERE fragment IS NOT NULL
)
SELECT fragment FROM found WHERE fragment IS NOT NULL

-- read_fragments_with_expiry --
-- Fragments that have own expiry entries: one look-up each, no scan.
WITH RECURSIVE found (fragment) AS (
    SELECT min(key) >> 40 FROM expiry_entries
    UNION ALL
    SELECT (SELECT min(key) >> 40 FROM expiry_entries WHERE key >= (fragment + 1) << 40)
    FROM found WHERE fragment IS NOT NULL
)
SELECT fragment FROM found WHERE fragment IS NOT NULL

-- read_table_count --
-- Whether a file has any tables.
SELECT count(*) FROM sqlite_schema

-- pragma_application_id --
-- Whose file it is.
PRAGMA application_id

-- pragma_schema_version --
-- Which schema the file has.
PRAGMA user_version

-- pragma_free_pages --
-- Pages of the file that hold nothing.
PRAGMA freelist_count

-- pragma_pages --
-- Pages of the file.
PRAGMA page_count

-- pragma_vacuum_slice --
-- Gives pages at the end of the file back: 256 pages are 4 MiB.
PRAGMA incremental_vacuum(256)

-- pragma_checkpoint --
-- Copies the log into the file as far as readers allow.
PRAGMA wal_checkpoint(PASSIVE)

-- pragma_checkpoint_truncate --
-- Copies the whole log into the file and empties it.
PRAGMA wal_checkpoint(TRUNCATE)

-- pragmas_of_a_new_file --
-- What must be decided before the first table; "Bway" in the application id.
PRAGMA page_size = 16384;
PRAGMA auto_vacuum = INCREMENTAL;
PRAGMA application_id = 1115119993

-- pragmas_of_the_writer --
-- FULL: an acknowledged message survives a power cut. No spill: it would write and sync on the event loop.
-- No automatic checkpoint: the commit thread does it. A log that grew large is cut when it starts over.
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
PRAGMA cache_spill = OFF;
PRAGMA cache_size = -16384;
PRAGMA wal_autocheckpoint = 0;
PRAGMA journal_size_limit = 67108864;
PRAGMA cell_size_check = ON;
PRAGMA trusted_schema = OFF

-- pragma_spill --
-- A migration may rewrite everything, more than fits into memory; it runs before the event loop is served.
PRAGMA cache_spill = ON

-- pragma_no_spill --
-- Back to what the writer has.
PRAGMA cache_spill = OFF

-- pragmas_of_a_copy --
-- A copy that is not whole is thrown away, so nothing need be taken back; it is synced when it is complete.
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA cache_size = -4096

-- pragmas_of_the_emptier --
-- It writes nothing but what the log holds already, and that as safely as the writer.
PRAGMA synchronous = FULL;
PRAGMA wal_autocheckpoint = 0

-- pragmas_of_a_reader --
-- No mmap anywhere: a damaged disk must give an error, not kill the process.
PRAGMA query_only = ON;
PRAGMA cache_size = -4096;
PRAGMA cell_size_check = ON;
PRAGMA trusted_schema = OFF

-- pragmas_of_a_check --
-- The first keeps the index of a log in memory, where no file can be made for it. What is sorted may need room.
PRAGMA locking_mode = EXCLUSIVE;
PRAGMA query_only = ON;
PRAGMA cache_size = -16384;
PRAGMA cell_size_check = ON;
PRAGMA trusted_schema = OFF

-- pragma_integrity_check --
-- The structure of the file and of all indexes.
PRAGMA integrity_check(100)

-- check_fragments --
-- Every fragment as its row has it.
SELECT key, owner, fragment_index, last_counter, active, deferred, scheduled, bytes, expiry_high, accessed_at
FROM fragments ORDER BY key

-- check_rows --
-- Active rows behind a key.
SELECT key, enqueued_at, expires_at, checksum, more, bare FROM {place} WHERE key > ? ORDER BY key

-- check_rows_aside --
-- Deferred or scheduled rows behind a key, with what stands in their indexes.
SELECT key, enqueued_at, expires_at, checksum, more, bare, session_id, scheduled_at FROM {place}
WHERE key > ? ORDER BY key

-- check_marks_alone --
-- Marks without a run.
SELECT key FROM run_marks WHERE NOT EXISTS (SELECT 1 FROM message_runs WHERE message_runs.key = run_marks.key)

-- check_payloads --
-- Shared bodies and their weights, also where one of the two is missing.
SELECT payload_references.payload, payload_references.weight, payloads.id IS NOT NULL
FROM payload_references LEFT JOIN payloads ON payloads.id = payload_references.payload
UNION ALL
SELECT id, NULL, 1 FROM payloads
WHERE NOT EXISTS (SELECT 1 FROM payload_references WHERE payload_references.payload = payloads.id)

-- check_sessions --
-- What sessions count, beside what their index has.
SELECT
    fragment, session_id, active,
    (
        SELECT count(*) FROM session_messages
        WHERE session_messages.session_id = sessions.session_id
            AND session_messages.key BETWEEN sessions.fragment << 40 AND (sessions.fragment + 1 << 40) - 1
    ),
    first_key,
    (
        SELECT min(key) FROM session_messages
        WHERE session_messages.session_id = sessions.session_id
            AND session_messages.key BETWEEN sessions.fragment << 40 AND (sessions.fragment + 1 << 40) - 1
    )
FROM sessions

-- check_session_index --
-- Entries without a message.
SELECT key FROM session_messages WHERE NOT EXISTS (SELECT 1 FROM messages WHERE messages.key = session_messages.key)

-- check_indexed --
-- How many entries a fragment has.
SELECT count(*) FROM session_messages WHERE key BETWEEN ? AND ?

-- check_session_states --
-- Every state.
SELECT fragment, session_id, state FROM session_states

-- check_chunk_spots --
-- Every chunk by log and number, by the index alone.
SELECT key, log, last_number FROM log_chunks ORDER BY log, last_number

-- copy_rows --
-- Rows of a place with a body of their own, behind a key.
SELECT key, enqueued_at, expires_at, checksum, more, bare FROM {place}
WHERE key > ? AND typeof(bare) <> 'integer' ORDER BY key

-- copy_sharing_rows --
-- Rows of all places that share a body, sharers together, from one body on.
SELECT bare, 0, key, enqueued_at, expires_at, checksum, more FROM messages
WHERE typeof(bare) = 'integer' AND bare >= ?1
UNION ALL
SELECT bare, 1, key, enqueued_at, expires_at, checksum, more FROM deferred
WHERE typeof(bare) = 'integer' AND bare >= ?1
UNION ALL
SELECT bare, 2, key, enqueued_at, expires_at, checksum, more FROM scheduled
WHERE typeof(bare) = 'integer' AND bare >= ?1
ORDER BY 1, 2, 3

-- copy_expiry --
-- Own expiry entries behind a key.
SELECT key, expires_at FROM expiry_entries WHERE key > ? ORDER BY key

-- copy_expiry_of --
-- That of one message.
SELECT expires_at FROM expiry_entries WHERE key = ?

-- copy_states --
-- States of sessions behind one.
SELECT fragment, session_id, set_at, state FROM session_states WHERE (fragment, session_id) > (?, ?)
ORDER BY fragment, session_id

-- copy_duplicate_ids --
-- Accepted message ids behind one, without those that are forgotten.
SELECT fragment, message_id, accepted_at FROM duplicate_ids
WHERE (fragment, message_id) > (?, ?)
    AND accepted_at >= coalesce((SELECT ids_since FROM fragments WHERE fragments.key = duplicate_ids.fragment), 0)
ORDER BY fragment, message_id

-- copy_chunk_spots --
-- Chunks behind one, by the index alone.
SELECT key, log, last_number FROM log_chunks WHERE (log, last_number) > (?, ?) ORDER BY log, last_number

-- copy_producers --
-- Producers of logs behind one.
SELECT log, producer, epoch, last_sequence, used_at, groups FROM log_producers WHERE (log, producer) > (?, ?)
ORDER BY log, producer

-- copy_session_index --
-- Active messages in the session index.
SELECT key, session_id FROM session_messages WHERE key > ? ORDER BY key
