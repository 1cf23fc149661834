"""Busway: a message bus you run yourself, wire-compatible with Azure Service Bus.

cli            the command line; one file per verb family
server         assembly: options → data directory → stores → namespace → gateways → listener
config         the emulator's Config.json and our superset of it (`config_node`: one place in such a file)
announcement   where the bus is to be found: connection string, ready file
data_directory serve_options ticker
gateway        AMQP and HTTP on one port; wire names ↔ the broker's words
broker         namespace, queues, fragments: everything that is decided
store          what is remembered: the contract, SQLite, memory
client         a small client; knows the server by the wire only
amqp           the AMQP 1.0 engine without I/O
message clock  a message as the broker holds it; time and chance as arguments
atom_names     names of the management API that both ends write
compiled       whether the hot modules run compiled
"""

from busway import compiled

__version__ = "0.1.0"

compiled.install()
