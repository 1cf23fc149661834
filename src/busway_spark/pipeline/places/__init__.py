"""Where files lie:

capture_root         the directory or object store where captured files lie
places               how such places are spelled, here and by Spark
object_store         objects of a bucket
object_files         objects as files of Arrow
object_lock          a lock that is an object
"""
