"""Defects that a review found, brought back one by one. `about` names the point of the review."""

from __future__ import annotations

from typing import Final

from tests.chaos.mutations.fault import Fault

DEFECTS: Final = (
    Fault(
        "a repeat by its number alone",
        "A9: other events under used numbers were acknowledged and dropped",
        "busway/streams/producers.py",
        """            if _group_of(events, known, known + count) != groups[at : at + _GROUP_BYTES]:
                return -1
""",
        "",
        ("tests/unit/streams/test_producers.py",),
    ),
    Fault(
        "groups are not stored",
        "A9: a repeat after a restart is known again",
        "busway/streams/producers.py",
        """            producer.used_at_ms,
            producer.groups,
        )
""",
        """            producer.used_at_ms,
        )
""",
        ("tests/unit/streams/test_producers.py",),
    ),
    Fault(
        "half a transaction",
        "A9: a refused send dooms its transaction",
        "busway/gateway/amqp/send_link.py",
        """        transaction.doom(error if isinstance(error, BrokerError) else BadArgument(str(error)))
        self.refuse(delivery, error)
""",
        """        self.refuse(delivery, error)
""",
        ("tests/unit/gateway/test_amqp_transactions.py",),
    ),
    Fault(
        "LIKE without a budget",
        "B13: sixty patterns over 32 KB",
        "busway/rules/evaluate.py",
        """        self.budget.spend(self.pattern.quarters * len(value))
        return self.pattern.matches(value)
""",
        """        return self.pattern.matches(value)
""",
        ("tests/unit/rules/test_budget.py",),
    ),
    Fault(
        "one budget for all messages",
        "B13: the same message and rule give the same result",
        "busway/rules/filters.py",
        """        if self._budget is not None:
            self._budget.renew()
        return _all_true(self._conjuncts, subject)
""",
        """        return _all_true(self._conjuncts, subject)
""",
        ("tests/unit/rules/test_budget.py",),
    ),
    Fault(
        "a looked-up filter spends on other messages",
        "B13: found by its anchor or not, a filter answers the same",
        "busway/rules/filters.py",
        """        self._conjuncts = self._beside_anchor if index < 0 else [conjuncts[index], *self._beside_anchor]
""",
        """        self._conjuncts = conjuncts
""",
        ("tests/unit/rules/test_budget.py",),
    ),
    Fault(
        "a queue at a hub's address",
        "C19: no queue or topic lies below a hub",
        "busway/broker/entity_changes.py",
        """                self._check_above(description.path)
""",
        "",
        ("tests/unit/streams/test_event_hubs.py",),
    ),
    Fault(
        "a hub above a queue",
        "C19: no hub lies above a queue or topic",
        "busway/streams/hub_changes.py",
        """        below = namespace.entities.paths_below(key)
""",
        """        below: list[str] = []
""",
        ("tests/unit/streams/test_event_hubs.py",),
    ),
    Fault(
        "the key of a queue opens the hub",
        "C19: rights are those of what is attached",
        "busway/gateway/amqp/attaching.py",
        """            owner_key = self._events.owner_key(node.path)
""",
        """            owner_key = None
""",
        ("tests/unit/gateway/test_hub_and_queue_addresses.py",),
    ),
)
