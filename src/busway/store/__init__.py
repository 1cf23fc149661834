"""What is remembered. A store never decides.

contract      what every store promises: commit batches in, corrected reads out; also of logs
sqlite        one file on the disk
postgres      many stores in one database
commit_cycle  how batches become durable, whatever the database: gathering, in flight, reported
reads         the reads of the contract, corrected on the loop
spans         reads under way, and the shadows of batches that correct them
shadow        what joined batches take away, laid over reads
rows          messages ↔ rows, with their checksums, for any database; pages of rows as committed
run_block     messages that were put together ↔ one block of bytes, likewise; which of them are gone
stored_rows   what a store holds that nobody serves, row by row, in the same form from any database
log_rows      chunks of logs ↔ rows, likewise; one CRC for many chunks
statements    the SQL files of a database: statements by name, schema, migrations

Others know `contract`; what makes copies also `stored_rows`.
"""
