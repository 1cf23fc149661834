-- Version 4: producers remember by what their last groups of events are known again.

ALTER TABLE log_producers RENAME TO log_producers_3;

CREATE TABLE log_producers (
    log INTEGER NOT NULL,
    producer INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    last_sequence INTEGER NOT NULL,
    used_at INTEGER NOT NULL,
    groups BLOB NOT NULL,
    PRIMARY KEY (log, producer)
) STRICT, WITHOUT ROWID;

INSERT INTO log_producers SELECT log, producer, epoch, last_sequence, used_at, x'' FROM log_producers_3;

DROP TABLE log_producers_3;

PRAGMA user_version = 4;
