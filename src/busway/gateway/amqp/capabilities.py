"""What a connection can do beyond AMQP, told only to who asks for it by name.

Qpid JMS sends a delivery time, or asks for a shared subscription, only where the server has said that it knows them.
"""

from __future__ import annotations

from typing import Final

from busway.amqp.types import Symbol

#: A message may say by `x-opt-delivery-time` when it is to be delivered first.
DELAYED_DELIVERY: Final = Symbol("DELAYED_DELIVERY")

#: A subscription of a topic may have several receivers, wherever they are.
SHARED_SUBSCRIPTIONS: Final = Symbol("SHARED-SUBS")

_KNOWN: Final = frozenset({DELAYED_DELIVERY, SHARED_SUBSCRIPTIONS})


def offered(desired: list[str] | None) -> list[str] | None:
    """Those of the desired ones that there are; None for a client that desires none of them."""
    found: list[str] = [Symbol(name) for name in dict.fromkeys(desired or ()) if name in _KNOWN]
    return found or None
