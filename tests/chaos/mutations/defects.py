"""Producers, budgets, addresses (A9, B13, C19, C20 of the review) and waiting, brought back one by one."""

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
        "busway/gateway/amqp/links/send_link.py",
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
        "busway/rules/compiled_rule.py",
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
        "busway/rules/compiled_rule.py",
        """        self._conjuncts = self._beside_anchor if index < 0 else [conjuncts[index], *self._beside_anchor]
""",
        """        self._conjuncts = conjuncts
""",
        ("tests/unit/rules/test_budget.py",),
    ),
    Fault(
        "a queue at a hub's address",
        "C19: no queue or topic lies below a hub",
        "busway/broker/namespace/entity_creation.py",
        """            _check_above(contents, description.path)
""",
        "",
        ("tests/unit/streams/test_event_hubs.py",),
    ),
    Fault(
        "a hub above a queue",
        "C19: no hub lies above a queue or topic",
        "busway/streams/event_hubs.py",
        """        below = namespace.contents.entities.index.paths_below(key)
""",
        """        below: list[str] = []
""",
        ("tests/unit/streams/test_event_hubs.py",),
    ),
    Fault(
        "the key of a queue opens the hub",
        "C19: rights are those of what is attached",
        "busway/gateway/amqp/attach/attaching.py",
        """            owner_key = self._events.owner_key(node.path)
""",
        """            owner_key = None
""",
        ("tests/unit/gateway/test_hub_and_queue_addresses.py",),
    ),
    Fault(
        "a name that looks like loopback",
        "C20: every address of the host is tested",
        "busway/host_addresses.py",
        "    return bool(addresses) and all(",
        '    return host.startswith("127.") or all(',
        ("tests/unit/test_host_addresses.py",),
    ),
    Fault(
        "one loopback address is enough",
        "C20: every address of the host is tested",
        "busway/host_addresses.py",
        "    return bool(addresses) and all(",
        "    return bool(addresses) and any(",
        ("tests/unit/test_host_addresses.py",),
    ),
    Fault(
        "two answers of a name server",
        "C20: exactly what was tested is bound",
        "busway/host_addresses.py",
        """@cache
def addresses_of""",
        """@__import__("functools").lru_cache(maxsize=0)
def addresses_of""",
        ("tests/unit/test_host_addresses.py",),
    ),
    Fault(
        "one token that fails ends the renewing",
        "A-8: each token is renewed by itself, and tried again",
        "busway/client/client_connection.py",
        "                except ClientError:  # one that lasts shows itself to whoever uses the connection next\n"
        "                    pause_s = _RENEW_AGAIN_AFTER_S\n",
        "                except ClientError:\n                    break\n",
        ("tests/timers/test_client_timers.py",),
    ),
    Fault(
        "a link that is gone keeps its alarm",
        "R-22: who goes takes his timers along",
        "busway/gateway/amqp/links/receive_link.py",
        """        self._is_gone = True
        self._silence_alarm()
        self._outlet.remove_receiver(self)
""",
        """        self._is_gone = True
        self._outlet.remove_receiver(self)
""",
        ("tests/timers/test_gateway_timers.py::test_a_drain_that_goes_with_its_link_leaves_no_alarm",),
    ),
    Fault(
        "an idle connection is ended",
        "R-22: credit keeps a link, and empty frames a connection",
        "busway/gateway/amqp/links/receive_link.py",
        "        return self.link.credit() == 0 and self._settling == 0\n",
        "        return self._settling == 0\n",
        ("tests/timers/test_patience.py::test_an_idle_receiver_outlives_every_timer",),
    ),
    Fault(
        "a browser takes what it shows",
        "JMS: a queue browser locks nothing",
        "busway/gateway/amqp/attach/attaching.py",
        """        if is_browser(link.source):
            self._attach_browser(link, node, queue, outlet)
            return
""",
        "",
        ("tests/unit/gateway/test_jms_browser.py",),
    ),
    Fault(
        "a selector is ignored",
        "JMS: a receiver with a selector gets what it selects, or is refused",
        "busway/gateway/amqp/links/browse_link.py",
        """    if _text_of(source) is not None:
        raise""",
        """    if selector_of(source) is None and source is None:
        raise""",
        ("tests/unit/gateway/test_jms_browser.py",),
    ),
    Fault(
        "a temporary queue is made for nobody",
        "JMS: it goes with its link, also when that goes while it is made",
        "busway/gateway/amqp/attach/client_made_entities.py",
        """        if link.owner is None:
            self._namespace.release(path)
""",
        "",
        ("tests/unit/gateway/test_jms_temporary.py",),
    ),
    Fault(
        "a topic selects by what it knew before its catalogue was read anew",
        "a subscription that turns out to be there gets its copies",
        "busway/broker/namespace/rule_table.py",
        "        self._selections.clear()\n",
        "",
        ("tests/unit/broker/test_selection_after_failure.py",),
    ),
    Fault(
        "nobody watches over what the catalogue tells anew",
        "E-110: what turns out to be there goes when nobody uses it",
        "busway/broker/namespace/namespace.py",
        """        if contents.idle.opened_at_ms:  # else all are watched when it is open
            contents.auto_delete.watch_all()
""",
        "",
        ("tests/unit/gateway/test_jms_temporary_left.py",),
    ),
    Fault(
        "a durable subscription is ended under who comes to receive",
        "JMS: nobody new receives while a link stands for its end",
        "busway/broker/entity/entity.py",
        "        if not sends and self._attachments.is_ending():",
        "        if False:",
        ("tests/unit/gateway/test_jms_unsubscribing.py",),
    ),
    Fault(
        "a shared subscription goes under a new receiver",
        "JMS: what is let go stays when somebody holds it by then",
        "busway/broker/namespace/entity_deletion.py",
        "            if contents.entities.is_held(present):\n",
        "            if False:\n",
        ("tests/unit/gateway/test_jms_subscriptions.py",),
    ),
)
