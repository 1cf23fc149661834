"""`bodyFormat`: bodies of messages and events as columns, in both formats.

body_options       `bodyFormat`, `bodySchema`, `badRecords`, checked
body_columns       the step between a reader and Spark: batches with decoded bodies, and what becomes of bad ones
ddl                a schema as Spark's DDL, read without a session
decoded            what a decoder hands back, and the decoder for UTF-8
json_bodies        JSON objects as structs
avro_bodies        Avro records as structs: their types, and object containers
variant_bodies     JSON of any shape as VARIANT

Others know `body_columns` and `body_options`.
"""
