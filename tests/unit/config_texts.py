"""Configuration files for tests."""

import json
from typing import Any

OFFICIAL: dict[str, Any] = {
    "UserConfig": {
        "Namespaces": [
            {
                "Name": "sbemulatorns",
                "Queues": [
                    {
                        "Name": "queue.1",
                        "Properties": {
                            "DeadLetteringOnMessageExpiration": False,
                            "DefaultMessageTimeToLive": "PT1H",
                            "DuplicateDetectionHistoryTimeWindow": "PT20S",
                            "ForwardDeadLetteredMessagesTo": "",
                            "ForwardTo": "",
                            "LockDuration": "PT1M",
                            "MaxDeliveryCount": 3,
                            "RequiresDuplicateDetection": False,
                            "RequiresSession": False,
                        },
                    },
                    {"Name": "queue.2"},
                ],
                "Topics": [
                    {
                        "Name": "topic.1",
                        "Properties": {
                            "DefaultMessageTimeToLive": "PT1H",
                            "DuplicateDetectionHistoryTimeWindow": "PT20S",
                            "RequiresDuplicateDetection": False,
                        },
                        "Subscriptions": [
                            {
                                "Name": "subscription.1",
                                "Properties": {
                                    "DeadLetteringOnMessageExpiration": False,
                                    "DefaultMessageTimeToLive": "PT1H",
                                    "LockDuration": "PT1M",
                                    "MaxDeliveryCount": 3,
                                    "ForwardDeadLetteredMessagesTo": "",
                                    "ForwardTo": "",
                                    "RequiresSession": False,
                                },
                                "Rules": [
                                    {
                                        "Name": "by-system",
                                        "Properties": {
                                            "FilterType": "Correlation",
                                            "CorrelationFilter": {
                                                "ContentType": "application/text",
                                                "CorrelationId": "id1",
                                                "Label": "subject1",
                                                "MessageId": "msgid1",
                                                "ReplyTo": "someQueue",
                                                "ReplyToSessionId": "sessionId",
                                                "SessionId": "session1",
                                                "To": "xyz",
                                            },
                                        },
                                    },
                                    {
                                        "Name": "by-user",
                                        "Properties": {
                                            "FilterType": "Correlation",
                                            "CorrelationFilter": {"Properties": {"color": "red", "size": 5}},
                                        },
                                    },
                                    {
                                        "Name": "by-sql",
                                        "Properties": {
                                            "FilterType": "Sql",
                                            "SqlFilter": {
                                                "SqlExpression": "sys.MessageId = '1' AND size > 2"
                                            },
                                            "Action": {"SqlExpression": "SET seen = TRUE"},
                                        },
                                    },
                                ],
                            },
                            {"Name": "subscription.2"},
                        ],
                    }
                ],
            }
        ],
        "Logging": {"Type": "File"},
    }
}


def official(*queues: object, **namespace: object) -> str:
    return json.dumps({"UserConfig": {"Namespaces": [{"Name": "ns", "Queues": list(queues), **namespace}]}})


def ours(*queues: object, **namespace: object) -> str:
    data = json.loads(official(*queues, **namespace))
    return json.dumps({"Format": "busway/1", **data})


def topic(*subscriptions: object) -> str:
    return official(Topics=[{"Name": "t", "Subscriptions": list(subscriptions)}])


def rule(**properties: object) -> str:
    return topic({"Name": "s", "Rules": [{"Name": "r", "Properties": properties}]})
