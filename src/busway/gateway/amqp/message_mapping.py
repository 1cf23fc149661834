"""Between AMQP payloads and messages: what is kept of what a client sent, and what is added at delivery.

Theory of operation. A payload is cut once. The *bare* message (properties, application properties, body, footer)
is kept as it came. What stands before it is reduced to a `head`: the fields that must come back, in a compact
form that only this file reads (M-27, M-28, M-29). At delivery a new front is built from the head and the
broker's own values and laid before the bare bytes; the bare message itself is rewritten only when settlement
changed application properties (M-17, R-11, R-14).

The head, version 1 (empty when the sender set nothing that comes back; the ttl is a field of the message):

  byte 0      flags: durable set 1, durable value 2, priority set 4, first-acquirer set 8, its value 16,
              delivery annotations 32, message annotations 64
  1 byte      the priority, if set
  2 + 4 bytes delivery annotations, if any: number of entries, length in bytes; then the entries as sent
  2 bytes     message annotations, if any: number of entries; then the entries as sent, to the end of the head

Annotations that the broker owns are dropped when a client sends them: nobody can forge a sequence number.
"""

from struct import Struct
from typing import Final

from busway.amqp.decode import DecodeError
from busway.amqp.sections import Sections, scan
from busway.broker.errors import BadArgument
from busway.broker.limits import Limits
from busway.message import Message

DEFAULT_LIMITS: Final = Limits()
