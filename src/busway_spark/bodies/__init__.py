"""`bodyFormat`: bodies of messages and events as columns, in both formats.

body_options       `bodyFormat`, `bodySchema`, `badRecords`, checked
body_columns       the step between a reader and Spark: batches with decoded bodies, and what becomes of bad ones
decoded            what a decoder hands back
ddl                a schema as Spark's DDL, read without a session
json_bodies        JSON objects as structs (`json_values`: one value, checked against its type)
avro_bodies        Avro records as structs (`avro_shape`: their types; `avro_container`: records with their schema)
variant_bodies     JSON of any shape as VARIANT (`variant_encoding`: its bytes)
text_bodies        UTF-8
"""
