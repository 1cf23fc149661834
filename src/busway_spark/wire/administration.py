"""The administration of a bus, from wherever Spark runs: with the authority that travels as text as well."""

from busway.client.administration import ServiceBusAdministrationClient
from busway_spark.wire.authority import authority_file
from busway_spark.wire.bus import Bus


def administration(bus: Bus) -> ServiceBusAdministrationClient:
    """A client to be closed; `with` does that."""
    return ServiceBusAdministrationClient(bus.target, authority_file(bus.ca_file))
