"""Busway: a message bus you run yourself, wire-compatible with Azure Service Bus and Event Hubs.

cli            the command line; one file per verb family
server         assembly: options → data directory → the bus → listener; where the bus is to be found
sharing        a server that shares its stores with others: an owner, which serves the bus, or a standby
served_bus     a bus while it is served: stores → namespace → event hubs → gateways
config         the emulator's Config.json and our superset of it
data_directory serve_options
gateway        AMQP and HTTP on one port; wire names ↔ the broker's words
cluster        several servers on the same stores in PostgreSQL: who has them
signals        what the outside learns of a running server: figures
streams        event hubs: partitions as logs, positions, readers, retention, capture
broker         namespace, queues, fragments: everything that is decided
model          what a bus is made of, in words: names, descriptions, limits, rights, errors
store          what is remembered: the contract, SQLite, memory
client         a small client; knows the server by the wire only
amqp           the AMQP 1.0 engine without I/O
rules          the language of subscription rules
message        messages and events as bytes, and a message as rules see it
clock          time and chance as arguments
event_loop     our code on the event loop: what takes long is noted with its name; work that nobody waits for;
               deadlines
timers         what rings by the monotonic clock
log_lines      the lines of the log, without secrets
host_addresses where the name of a host leads, asked once
atom_names     names of the management API that both ends write
compiled       whether the hot modules run compiled
"""

from busway import compiled

__version__ = "0.1.0"

compiled.install()


def version_line() -> str:
    """For `busway --version`: which one this is, and whether it runs compiled."""
    return f"busway {__version__}, {compiled.status()}"
