"""Names in the ATOM documents of the management API, for the gateway that writes them and the client that reads."""

from typing import Final

# XML namespaces.
ATOM: Final = "http://www.w3.org/2005/Atom"
CONNECT: Final = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
COUNTS: Final = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
INSTANCE: Final = "http://www.w3.org/2001/XMLSchema-instance"
SCHEMA: Final = "http://www.w3.org/2001/XMLSchema"
SERIALIZATION: Final = "http://schemas.microsoft.com/2003/10/Serialization/"

#: Every element of a description in the order in which the service writes and expects them (DataContract).
QUEUE_ELEMENTS: Final = (
    "LockDuration",
    "MaxSizeInMegabytes",
    "RequiresDuplicateDetection",
    "RequiresSession",
    "DefaultMessageTimeToLive",
    "DeadLetteringOnMessageExpiration",
    "DuplicateDetectionHistoryTimeWindow",
    "MaxDeliveryCount",
    "EnableBatchedOperations",
    "SizeInBytes",
    "MessageCount",
    "IsAnonymousAccessible",
    "AuthorizationRules",
    "Status",
    "CreatedAt",
    "UpdatedAt",
    "AccessedAt",
    "SupportOrdering",
    "CountDetails",
    "AutoDeleteOnIdle",
    "EnablePartitioning",
    "EntityAvailabilityStatus",
    "EnableExpress",
    "ForwardTo",
    "UserMetadata",
    "ForwardDeadLetteredMessagesTo",
    "MaxMessageSizeInKilobytes",
)

TOPIC_ELEMENTS: Final = (
    "DefaultMessageTimeToLive",
    "MaxSizeInMegabytes",
    "RequiresDuplicateDetection",
    "DuplicateDetectionHistoryTimeWindow",
    "EnableBatchedOperations",
    "SizeInBytes",
    "FilteringMessagesBeforePublishing",
    "IsAnonymousAccessible",
    "AuthorizationRules",
    "Status",
    "CreatedAt",
    "UpdatedAt",
    "AccessedAt",
    "SupportOrdering",
    "CountDetails",
    "SubscriptionCount",
    "SqlFilterCount",
    "CorrelationFilterCount",
    "AutoDeleteOnIdle",
    "EnablePartitioning",
    "EntityAvailabilityStatus",
    "EnableSubscriptionPartitioning",
    "EnableExpress",
    "UserMetadata",
    "MaxMessageSizeInKilobytes",
)

#: `DefaultRuleDescription` is sent at creation and never comes back. `CapturesHistory` is Busway's own, and written
#: only where it is true.
SUBSCRIPTION_ELEMENTS: Final = (
    "LockDuration",
    "RequiresSession",
    "DefaultMessageTimeToLive",
    "DeadLetteringOnMessageExpiration",
    "DeadLetteringOnFilterEvaluationExceptions",
    "MessageCount",
    "MaxDeliveryCount",
    "EnableBatchedOperations",
    "Status",
    "ForwardTo",
    "CreatedAt",
    "UpdatedAt",
    "AccessedAt",
    "CountDetails",
    "ForwardDeadLetteredMessagesTo",
    "AutoDeleteOnIdle",
    "EntityAvailabilityStatus",
    "UserMetadata",
    "DefaultRuleDescription",
    "IsClientAffine",
    "CapturesHistory",
)

#: The api-version that brought an element: older ones neither send nor get it.
ELEMENT_SINCE: Final = {
    "EnablePartitioning": "2013-10",
    "MaxMessageSizeInKilobytes": "2021-05",
    "SqlFilterCount": "2024-05",
    "CorrelationFilterCount": "2024-05",
}

#: The properties of a correlation filter in order: element and field of `CorrelationFilter`.
CORRELATION_ELEMENTS: Final = (
    ("CorrelationId", "correlation_id"),
    ("MessageId", "message_id"),
    ("To", "to"),
    ("ReplyTo", "reply_to"),
    ("Label", "label"),
    ("SessionId", "session_id"),
    ("ReplyToSessionId", "reply_to_session_id"),
    ("ContentType", "content_type"),
)
