"""Whoever manages entities needs Manage (A-9); what somebody without it is told, in the words that programs look for.

A token that is not valid for the address is refused before any of this, so a stranger learns nothing.

F-5: whoever makes an entity forward must hold Manage on the target too, by the same token or by one of its own in a
header. Else the manager of one queue could fill, or watch the errors of, any other.
"""

from typing import Final

from busway.gateway.http.atom.entity_xml import EntityInput
from busway.gateway.http.atom.topic_address import TopicAddress
from busway.gateway.http.call import Call
from busway.model.authorization import path_segments
from busway.model.descriptions import LISTEN, MANAGE
from busway.model.entity_path import check_path, path_key
from busway.model.errors import Unauthorized
from busway.model.limits import Limits

#: Method → sentence about a queue, a topic or a list of them.
_SENTENCES: Final = {
    "GET": "Manage,EntityRead claims required for this operation.",
    "HEAD": "Manage,EntityRead claims required for this operation.",
    "PUT": "Authorization failed for specified action: Manage,EntityWrite.",
    "DELETE": "Authorization failed for specified action: Manage,EntityDelete.",
}
#: Method → what the service calls the operation on what lies below a topic.
_OPERATIONS: Final = {"GET": "Get", "HEAD": "Get", "PUT": "CreateOrUpdate", "DELETE": "Delete"}
#: Field of a description → header with the token for its target.
TARGET_TOKENS: Final = {
    "forward_to": "servicebussupplementaryauthorization",
    "forward_dead_lettered_messages_to": "servicebusdlqsupplementaryauthorization",
}


def require_manage(call: Call) -> None:
    """On the address of the request. Raises 401s."""
    try:
        call.require(MANAGE)
    except Unauthorized as error:
        sentence = _SENTENCES.get(call.method)
        raise error if sentence is None else Unauthorized(sentence) from error


def check_address(call: Call, limits: Limits) -> None:
    """No token can be for a path that is not clean (some clients make one for exactly the address they ask for), and
    there is nothing to protect at it: everybody is told what is wrong with it (E-6)."""
    if path_segments(call.path) is None:
        check_path(call.path, limits.path_characters_max)


def require_below_topic(call: Call, address: TopicAddress, limits: Limits) -> None:
    """On a subscription or a rule, or a list of them, whether they exist or not: the topic's right counts (A-2). To
    list rules Listen is enough (T-12). Raises 401s."""
    check_address(call, limits)
    address.check(limits)
    rights = (MANAGE, LISTEN) if address.lists_rules else (MANAGE,)
    for right in rights:
        try:
            call.require_for(address.topic, call.path, right)
        except Unauthorized:
            continue
        return
    raise Unauthorized(
        f"SubCode=40100: Unauthorized : Unauthorized access for '{_operation(call, address)}' operation on endpoint"
        f" 'sb://{call.authority}/{call.path}'."
    )


def _operation(call: Call, address: TopicAddress) -> str:
    is_rule = address.lists_rules or address.rule is not None
    kind = "Rule" if is_rule else "Subscription"
    if address.lists_rules or address.subscription is None:
        return f"Enumerate{kind}s"
    return f"{_OPERATIONS.get(call.method, 'Get')}{kind}"


def check_targets(call: Call, sent: EntityInput, present: object, limits: Limits) -> None:
    """`present` is the description before an update, None at creation: a target that stays as it is was allowed
    to whoever set it."""
    for field, header in TARGET_TOKENS.items():
        target = sent.values.get(field)
        if not isinstance(target, str):
            continue
        before = getattr(present, field, None)
        if before is not None and path_key(before) == path_key(target):
            continue
        check_path(target, limits.path_characters_max)
        call.require_on(target, MANAGE, header)
