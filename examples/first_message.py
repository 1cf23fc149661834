"""A queue, a message, and back. Run it with

    busway exec -- python examples/first_message.py

which sets the connection string and makes the administration client trust Busway's own certificate authority.
"""

import os

from azure.core.exceptions import ResourceExistsError
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.management import ServiceBusAdministrationClient

connection_string = os.environ["BUSWAY_CONNECTION_STRING"]

with ServiceBusAdministrationClient.from_connection_string(
    connection_string, connection_verify=os.environ["SSL_CERT_FILE"]
) as admin:
    try:
        admin.create_queue("greetings")
    except ResourceExistsError:
        print("greetings exists already")

with ServiceBusClient.from_connection_string(connection_string) as client:
    with client.get_queue_sender("greetings") as sender:
        sender.send_messages(ServiceBusMessage("hello", subject="greeting"))
    with client.get_queue_receiver("greetings", max_wait_time=5) as receiver:
        for message in receiver:
            print(f"{message.subject}: {message}")
            receiver.complete_message(message)
            break
