"""The official administration client against Busway. Run it with

    busway exec -- python examples/administration.py

which sets the connection string and makes the client trust Busway's own certificate authority.
"""

import os

from azure.core.exceptions import ResourceExistsError
from azure.servicebus.management import ServiceBusAdministrationClient

with ServiceBusAdministrationClient.from_connection_string(
    os.environ["BUSWAY_CONNECTION_STRING"], connection_verify=os.environ["SSL_CERT_FILE"]
) as admin:
    try:
        admin.create_queue("invoices", max_delivery_count=5)
    except ResourceExistsError:
        print("invoices exists already")
    for queue in admin.list_queues():
        counts = admin.get_queue_runtime_properties(queue.name)
        print(f"{queue.name}: {counts.active_message_count} active, {counts.dead_letter_message_count} dead")
