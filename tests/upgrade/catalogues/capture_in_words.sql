-- A namespace of the last version that knew a captured subscription by words in its user metadata alone: the topic
-- `orders`, captured through `busway-capture` as that version's job made it, and `audit` with two rules that have noted
-- how far the capture had come (2 and 3).
BEGIN;
CREATE TABLE catalogue (
    key TEXT PRIMARY KEY,
    text TEXT NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO "catalogue" VALUES('namespace','{"format":1,"id":"f5b165224a58b791df6af1d8303e61cd","name":"bus","rules":[{"Name":"RootManageSharedAccessKey","Rights":["Manage","Listen","Send"],"PrimaryKey":"first","SecondaryKey":"second","CreatedAtMs":1700000000000,"ModifiedAtMs":1700000000000,"ClaimType":"SharedAccessKey","ClaimValue":"None"}],"created_at_ms":1700000000000}');
INSERT INTO "catalogue" VALUES('rule:orders/subscriptions/audit/rules/$default','{"format":1,"name":"$Default","created_at_ms":1700000000000,"filter":{"kind":"true","expression":"1=1"},"order":1,"began_after":2,"births":{"orders/subscriptions/busway-capture@3":[2]}}');
INSERT INTO "catalogue" VALUES('rule:orders/subscriptions/audit/rules/paid','{"format":1,"name":"paid","created_at_ms":1700000000000,"filter":{"kind":"sql","expression":"status = ''paid''"},"order":2,"began_after":3,"births":{"orders/subscriptions/busway-capture@3":[3]}}');
INSERT INTO "catalogue" VALUES('rule:orders/subscriptions/busway-capture/rules/$default','{"format":1,"name":"$Default","created_at_ms":1700000000000,"filter":{"kind":"true","expression":"1=1"},"order":1,"began_after":0,"births":{}}');
INSERT INTO "catalogue" VALUES('store:store-0','{"format":1,"url":"sqlite:store-0.db","position":0,"disabled":false}');
INSERT INTO "catalogue" VALUES('subscription:orders/subscriptions/audit','{"format":1,"description":{"Name":"orders/Subscriptions/audit","ForwardTo":null,"ForwardDeadLetteredMessagesTo":null,"UserMetadata":null,"LockDuration":"PT1M","RequiresSession":false,"DefaultMessageTimeToLive":"P10675199DT2H48M5.4775807S","DeadLetteringOnMessageExpiration":false,"DeadLetteringOnFilterEvaluationExceptions":true,"MaxDeliveryCount":10,"EnableBatchedOperations":true,"AutoDeleteOnIdle":"P10675199DT2H48M5.4775807S","Status":"Active","UnknownElements":[],"CreatedAtMs":1700000000000,"UpdatedAtMs":1700000000000},"incarnation":4,"store":"store-0","main":4,"dead_letter":5}');
INSERT INTO "catalogue" VALUES('subscription:orders/subscriptions/busway-capture','{"format":1,"description":{"Name":"orders/Subscriptions/busway-capture","ForwardTo":null,"ForwardDeadLetteredMessagesTo":null,"UserMetadata":"Messages of this subscription are taken by busway pipeline capture.","LockDuration":"PT5M","RequiresSession":false,"DefaultMessageTimeToLive":"P10675199DT2H48M5.4775807S","DeadLetteringOnMessageExpiration":false,"DeadLetteringOnFilterEvaluationExceptions":true,"MaxDeliveryCount":2000,"EnableBatchedOperations":true,"AutoDeleteOnIdle":"P10675199DT2H48M5.4775807S","Status":"Active","UnknownElements":[],"CreatedAtMs":1700000000000,"UpdatedAtMs":1700000000000},"incarnation":3,"store":"store-0","main":2,"dead_letter":3}');
INSERT INTO "catalogue" VALUES('topic:orders','{"format":1,"description":{"Name":"orders","UserMetadata":null,"MaxSizeInMegabytes":1024,"MaxMessageSizeInKilobytes":256,"RequiresDuplicateDetection":false,"DuplicateDetectionHistoryTimeWindow":"PT10M","DefaultMessageTimeToLive":"P10675199DT2H48M5.4775807S","EnableBatchedOperations":true,"AutoDeleteOnIdle":"P10675199DT2H48M5.4775807S","EnablePartitioning":false,"EnableSubscriptionPartitioning":false,"EnableExpress":false,"FilteringMessagesBeforePublishing":false,"Status":"Active","SupportOrdering":true,"IsAnonymousAccessible":false,"AuthorizationRules":[],"UnknownElements":[],"CreatedAtMs":1700000000000,"UpdatedAtMs":1700000000000},"incarnation":2,"store":"store-0","main":1,"dead_letter":0}');
CREATE TABLE deferred (
    key INTEGER PRIMARY KEY,
    enqueued_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    session_id TEXT,
    scheduled_at INTEGER NOT NULL,
    more BLOB,
    bare ANY NOT NULL
) STRICT;
CREATE TABLE dropped_fragments (
    key INTEGER PRIMARY KEY
) STRICT;
CREATE TABLE duplicate_ids (
    fragment INTEGER NOT NULL,
    message_id TEXT NOT NULL,
    accepted_at INTEGER NOT NULL,
    PRIMARY KEY (fragment, message_id)
) STRICT, WITHOUT ROWID;
CREATE TABLE expiry_entries (
    key INTEGER PRIMARY KEY,
    expires_at INTEGER NOT NULL
) STRICT;
CREATE TABLE fragments (
    key INTEGER PRIMARY KEY,
    owner TEXT NOT NULL,
    fragment_index INTEGER NOT NULL,
    last_counter INTEGER NOT NULL,
    active INTEGER NOT NULL,
    deferred INTEGER NOT NULL,
    scheduled INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    expiry_high INTEGER NOT NULL,
    accessed_at INTEGER NOT NULL,
    ids_since INTEGER NOT NULL
) STRICT;
INSERT INTO "fragments" VALUES(0,'the store itself',0,11,0,0,0,0,0,0,0);
INSERT INTO "fragments" VALUES(1,'orders',0,3,0,0,0,0,0,1700000000000,0);
INSERT INTO "fragments" VALUES(2,'orders/Subscriptions/busway-capture',0,3,3,0,0,3,1152921504606846976,0,0);
INSERT INTO "fragments" VALUES(3,'orders/Subscriptions/busway-capture/$DeadLetterQueue',0,0,0,0,0,0,0,0,0);
INSERT INTO "fragments" VALUES(4,'orders/Subscriptions/audit',0,1,1,0,0,1,1152921504606846976,1700000000000,0);
INSERT INTO "fragments" VALUES(5,'orders/Subscriptions/audit/$DeadLetterQueue',0,0,0,0,0,0,0,0,0);
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
CREATE TABLE log_producers (
    log INTEGER NOT NULL,
    producer INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    last_sequence INTEGER NOT NULL,
    used_at INTEGER NOT NULL,
    groups BLOB NOT NULL,
    PRIMARY KEY (log, producer)
) STRICT, WITHOUT ROWID;
CREATE TABLE messages (
    key INTEGER PRIMARY KEY,
    enqueued_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    more BLOB,
    bare ANY NOT NULL
) STRICT;
INSERT INTO "messages" VALUES(2199023255553,1700000000000,1152921504606846976,2898366528,NULL,X'78');
INSERT INTO "messages" VALUES(2199023255554,1700000000000,1152921504606846976,2898366529,NULL,X'78');
INSERT INTO "messages" VALUES(2199023255555,1700000000000,1152921504606846976,2898366530,NULL,X'78');
INSERT INTO "messages" VALUES(4398046511105,1700000000000,1152921504606846976,2898369088,NULL,X'78');
CREATE TABLE meta (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO "meta" VALUES('catalogue_version',7);
INSERT INTO "meta" VALUES('next_fragment_key',6);
CREATE TABLE payload_references (
    payload INTEGER PRIMARY KEY,
    weight INTEGER NOT NULL
) STRICT;
CREATE TABLE payloads (
    id INTEGER PRIMARY KEY,
    bare BLOB NOT NULL
) STRICT;
CREATE TABLE scheduled (
    key INTEGER PRIMARY KEY,
    enqueued_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    session_id TEXT,
    scheduled_at INTEGER NOT NULL,
    more BLOB,
    bare ANY NOT NULL
) STRICT;
CREATE TABLE session_messages (
    key INTEGER PRIMARY KEY,
    session_id TEXT NOT NULL
) STRICT;
CREATE TABLE session_states (
    id INTEGER PRIMARY KEY,
    fragment INTEGER NOT NULL,
    session_id TEXT NOT NULL,
    set_at INTEGER NOT NULL,
    state BLOB NOT NULL,
    UNIQUE (fragment, session_id)
) STRICT;
CREATE TABLE sessions (
    fragment INTEGER NOT NULL,
    session_id TEXT NOT NULL,
    active INTEGER NOT NULL,
    first_key INTEGER NOT NULL,
    PRIMARY KEY (fragment, session_id)
) STRICT, WITHOUT ROWID;
CREATE TABLE sharing_fragments (
    key INTEGER PRIMARY KEY
) STRICT;
CREATE TABLE transfer_marks (
    source_store TEXT NOT NULL,
    source_fragment INTEGER NOT NULL,
    source_number INTEGER NOT NULL,
    PRIMARY KEY (source_store, source_fragment, source_number)
) STRICT, WITHOUT ROWID;
CREATE INDEX deferred_sessions ON deferred (session_id) WHERE session_id IS NOT NULL;
CREATE INDEX scheduled_due ON scheduled (scheduled_at);
CREATE INDEX scheduled_sessions ON scheduled (session_id) WHERE session_id IS NOT NULL;
CREATE INDEX session_order ON session_messages (session_id);
CREATE INDEX session_firsts ON sessions (first_key);
CREATE INDEX expiry_order ON expiry_entries (expires_at);
CREATE INDEX duplicate_age ON duplicate_ids (fragment, accepted_at);
CREATE UNIQUE INDEX chunk_numbers ON log_chunks (log, last_number);
CREATE INDEX chunk_times ON log_chunks (log, last_at, first_number);
PRAGMA user_version = 4;
PRAGMA application_id = 1115119993;
COMMIT;
