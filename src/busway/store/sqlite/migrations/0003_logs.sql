-- Version 3: logs of events and their producers.

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

CREATE TABLE log_producers (
    log INTEGER NOT NULL,
    producer INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    last_sequence INTEGER NOT NULL,
    used_at INTEGER NOT NULL,
    PRIMARY KEY (log, producer)
) STRICT, WITHOUT ROWID;

PRAGMA user_version = 3;
