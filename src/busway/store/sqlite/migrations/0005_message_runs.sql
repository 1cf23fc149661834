-- Version 5: messages that were put together lie in one row. Rows that are there stay where they are.

CREATE TABLE message_runs (
    key INTEGER PRIMARY KEY,
    last INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    data BLOB NOT NULL
) STRICT;

CREATE TABLE run_marks (
    key INTEGER PRIMARY KEY,
    gone INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    dead BLOB
) STRICT;

PRAGMA user_version = 5;
