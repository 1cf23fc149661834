-- What is asked of a server before anything is kept there. "-- name --", a line of meaning, the statement.

-- server --
-- One row: what the server, the database and our rights in it are like.
SELECT
    current_setting('server_version_num')::int AS version,
    current_setting('fsync') = 'on' AS fsync,
    current_setting('full_page_writes') = 'on' AS full_page_writes,
    current_setting('server_encoding') AS encoding,
    pg_is_in_recovery() AS is_standby,
    current_setting('transaction_read_only') = 'on' AS is_read_only,
    pg_backend_pid() AS backend,
    current_database()::text AS database,
    current_user::text AS role,
    to_regnamespace('busway') IS NOT NULL AS is_used,
    has_database_privilege(current_database(), 'CREATE') AS may_create,
    coalesce(has_schema_privilege(to_regnamespace('busway'), 'USAGE'), true) AS may_use,
    coalesce((
        SELECT bool_and(has_table_privilege(oid, 'SELECT') AND has_table_privilege(oid, 'INSERT')
                        AND has_table_privilege(oid, 'UPDATE') AND has_table_privilege(oid, 'DELETE'))
        FROM pg_class WHERE relnamespace = to_regnamespace('busway') AND relkind IN ('r', 'p')
    ), true) AS may_write,
    coalesce((
        SELECT bool_and(has_sequence_privilege(oid, 'USAGE') AND has_sequence_privilege(oid, 'UPDATE'))
        FROM pg_class WHERE relnamespace = to_regnamespace('busway') AND relkind = 'S'
    ), true) AS may_count

-- session --
-- What every session is told. A setting of the database or of the role would otherwise count, and some of them would
-- break a promise: a weaker commit, a time-out that hits COMMIT, a warning that is not told, another isolation.
SELECT
    set_config('synchronous_commit', CASE current_setting('synchronous_commit')
        WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false),
    set_config('statement_timeout', '0', false),
    set_config('idle_session_timeout', '0', false),
    set_config('client_min_messages', 'warning', false),
    set_config('default_transaction_isolation', 'read committed', false),
    set_config('idle_in_transaction_session_timeout', '1s', false),
    set_config('lock_timeout', '1s', false),
    set_config('tcp_user_timeout', '3s', false),
    set_config('tcp_keepalives_idle', '2', false),
    set_config('tcp_keepalives_interval', '1', false),
    set_config('tcp_keepalives_count', '3', false),
    set_config('busway.session', 'ours', false)

-- session_17 --
-- The same for what there is since version 17.
SELECT set_config('transaction_timeout', '0', false)

-- is_ours --
-- Whether this is still the session that was told so.
SELECT current_setting('busway.session', true)

-- has_record --
-- Whether the tables were made.
SELECT to_regclass('busway.database') IS NOT NULL

-- record --
-- What the database says of itself.
SELECT format, readable_from, name FROM busway.database
