"""Why a message is dead: the properties that say so (D-6, D-10…D-17). How it gets there: `write`."""

from __future__ import annotations

from typing import Final

from busway.broker.fragment.property_changes import DEAD_LETTER_REASON, dead_letter_properties
from busway.model.errors import (
    BrokerError,
    EntityDisabled,
    EntityNotFound,
    QuotaExceeded,
)

#: D-11
EXPIRED: Final = dead_letter_properties("TTLExpiredException", "The message expired and was dead lettered.")
#: D-13
HEADER_SIZE_EXCEEDED: Final = dead_letter_properties(
    "HeaderSizeExceeded", "The size quota for this stream has been exceeded."
)


#: D-12
SESSION_ID_IS_NULL: Final = dead_letter_properties(
    "Session ID is null.",
    "Session enabled entity doesn't allow a message whose session identifier is null.",
)


def rule_failed(reason: str, sentence: str) -> dict[str, object]:
    """D-15: why a message is dead whose filter or action failed."""
    return dead_letter_properties(reason, sentence)


def hops_used_up(hops_max: int) -> dict[str, object]:
    """D-14: why a message is dead that was forwarded too often."""
    return dead_letter_properties(
        "MaxTransferHopCountExceeded",
        f"The message was forwarded {hops_max} times, which is the most allowed.",
    )


def transfer_failed(target_path: str, error: BrokerError) -> dict[str, object]:
    """D-17: why a message is dead that its destination refused."""
    reason = "TransferDestinationRefused"
    if isinstance(error, EntityNotFound):
        reason = "TransferDestinationNotFound"
    elif isinstance(error, EntityDisabled):
        reason = "TransferDestinationDisabled"
    elif isinstance(error, QuotaExceeded):
        reason = "TransferDestinationQuotaExceeded"
    return dead_letter_properties(reason, f"Forwarding to '{target_path}' failed. {error.sentence}")


def reason_in(properties: dict[str, object] | None) -> str | None:
    reason = None if properties is None else properties.get(DEAD_LETTER_REASON)
    return str(reason) if isinstance(reason, str) else None


def deliveries_used_up(delivery_count: int) -> dict[str, object]:
    """D-10: why a message is dead that failed as often as it may."""
    return dead_letter_properties(
        "MaxDeliveryCountExceeded",
        f"Message could not be consumed after {delivery_count} delivery attempts.",
    )
