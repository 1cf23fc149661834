"""Runs the declarative pipeline of this folder and shows what it made. From the root of the repository, with a bus
that runs (`make run`) and Spark installed (`make setup-spark`):

    .venv/bin/busway exec --data data -- .venv/bin/python examples/spark/clicks_pipeline/run.py build/clicks

A declarative pipeline says which tables there shall be (`transformations/clicks.py`); `spark-pipelines run` finds out
in which order they are made and what is new since the last time. Run it twice: the second time only clicks that came
in between are read. The folder keeps everything: the tables (`spark-warehouse`), what Spark knows of them
(`metastore_db`) and where the stream stands (`storage`).
"""

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq

from busway.client.administration import ServiceBusAdministrationClient
from busway.client.errors import EntityExists
from busway.client.messages import ServiceBusMessage
from busway.client.service_bus_client import ServiceBusClient
from busway_spark.start.session import prepare_environment

HERE = Path(__file__).resolve().parent
HUB = os.environ.setdefault("CLICKS_HUB", "clicks")
CONNECTION_STRING = os.environ["BUSWAY_CONNECTION_STRING"]
CLICKS = 40


async def send_clicks() -> None:
    bodies = [b'{"page": %d, "user": "user-%d"}' % (n % 4, n % 7) for n in range(CLICKS)]
    async with (
        ServiceBusClient.from_connection_string(CONNECTION_STRING) as client,
        client.get_queue_sender(HUB) as sender,
    ):
        await sender.send_messages([ServiceBusMessage(body) for body in [*bodies, b"no click"]])


def prepare(folder: Path) -> None:
    """The definition, with a place for its state: Spark wants a whole URI there."""
    shutil.copytree(HERE / "transformations", folder / "transformations", dirs_exist_ok=True)
    spec = (HERE / "spark-pipeline.yml").read_text()
    (folder / "spark-pipeline.yml").write_text(spec.replace("STORAGE", (folder / "storage").as_uri()))


def main(folder: Path) -> None:
    with ServiceBusAdministrationClient.from_connection_string(CONNECTION_STRING) as administration:
        try:
            administration.hubs.create(HUB, {"PartitionCount": 2})
        except EntityExists:
            print(f"The hub {HUB} exists already.")
    asyncio.run(send_clicks())
    folder.mkdir(parents=True, exist_ok=True)
    prepare(folder)
    prepare_environment()
    program = Path(sys.executable).parent / "spark-pipelines"
    # A metastore in the folder: with the catalogue in memory a second run would not know its own tables.
    settings = ["spark.sql.catalogImplementation=hive", "spark.ui.enabled=false"]
    given = [word for setting in settings for word in ("--conf", setting)]
    subprocess.run([str(program), "run", "--remote", "local[2]", *given], cwd=folder, check=True)
    clicks = pq.read_table(folder / "spark-warehouse" / "clicks")
    print(f"The table clicks has {clicks.num_rows} rows. The view pages:")
    for row in sorted(
        pq.read_table(folder / "spark-warehouse" / "pages").to_pylist(), key=lambda row: row["page"]
    ):
        print(f"  page {row['page']}: {row['clicks']} clicks by {row['users']} users")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "build/clicks").resolve())
