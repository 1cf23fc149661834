"""Where files lie:

places               how such places are spelled, here and by Spark
hadoop_driver        how Spark itself comes to them
object_store         objects of a bucket
object_files         objects as files of Arrow
object_lock          a lock that is an object
"""
