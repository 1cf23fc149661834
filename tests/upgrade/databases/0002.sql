-- What the second format of a PostgreSQL database holds: one queue, its messages, and the catalogue.
INSERT INTO busway.catalogue VALUES (0, 'queue/orders', '{}');
INSERT INTO busway.commits VALUES (1, 0, '\x');
INSERT INTO busway.commits VALUES (0, 1, '\x6cb9c7c811d2dc8d8b9b83ea');
INSERT INTO busway.counters VALUES (1, 1, 3, 2, 1, 0, 20, 0, 0, 0);
INSERT INTO busway.database VALUES (2, 2, 'postgres', 16385);
INSERT INTO busway.deferred VALUES (1099511627779, 0, 1700000000000, 1152921504606846976, 1142396195, NULL, 0, NULL, NULL, '\x7468697264');
INSERT INTO busway.fragments VALUES (1, 0, 'orders', 0, 0);
INSERT INTO busway.leases VALUES (1, NULL);
INSERT INTO busway.leases VALUES (0, NULL);
INSERT INTO busway.messages VALUES (1099511627777, 1700000000000, 1152921504606846976, 2992071444, NULL, NULL, '\x6669727374');
INSERT INTO busway.messages VALUES (1099511627778, 1700000000000, 1152921504606846976, 2338854672, '\x080000000161', NULL, '\x7365636f6e64');
INSERT INTO busway.stores VALUES (1, 0, '\x', 8193, 12289, 12289, 0);
INSERT INTO busway.stores VALUES (0, 1, '\xf322c395655c309414165228', 2, 4097, 4097, 3);
INSERT INTO busway.sessions VALUES (1, '\x61', 1, 1099511627778);
INSERT INTO busway.session_messages VALUES (1099511627778, '\x61');
