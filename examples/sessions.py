"""Messages of one customer in order, with a note kept beside them. Run it with

busway exec -- python examples/sessions.py
"""

import asyncio
import os

from azure.core.exceptions import ResourceExistsError
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.management import ServiceBusAdministrationClient

connection_string = os.environ["BUSWAY_CONNECTION_STRING"]
QUEUE = "customer-orders"


def create_queue() -> None:
    with ServiceBusAdministrationClient.from_connection_string(
        connection_string, connection_verify=os.environ["SSL_CERT_FILE"]
    ) as admin:
        try:
            admin.create_queue(QUEUE, requires_session=True)
        except ResourceExistsError:
            print(f"{QUEUE} exists already")


async def main() -> None:
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        async with client.get_queue_sender(QUEUE) as sender:
            for step in ("basket", "payment", "delivery"):
                await sender.send_messages(ServiceBusMessage(step, session_id="customer-7"))
        async with client.get_queue_receiver(QUEUE, session_id="customer-7", max_wait_time=2) as receiver:
            async for message in receiver:
                print(f"{message.session_id}: {message}")
                await receiver.session.set_state(str(message))
                await receiver.complete_message(message)
            print(f"the last step was {(await receiver.session.get_state()).decode()}")


create_queue()
asyncio.run(main())
