"""`python -m busway_spark` prints the path of an archive of our code: `spark-submit --py-files "$(…)" job.py`."""

from busway_spark.start.shipping import code_archive

if __name__ == "__main__":
    print(code_archive())
