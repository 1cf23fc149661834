"""What a management address means, and whether the caller may manage what is there.

Below a topic (E-8):

    T/Subscriptions            its subscriptions        T/Subscriptions/S/Rules      the rules of one
    T/Subscriptions/S          one of them              T/Subscriptions/S/Rules/R    one of those

The keywords are known in any case; T may have several segments. JS ends the address of a list with a slash.

Whoever manages entities needs Manage (A-9); somebody without it is told so in the words that programs look for. A
token that is not valid for the address is refused before any of this, so a stranger learns nothing.

F-5: whoever makes an entity forward must hold Manage on the target too, by the same token or by one of its own in
a header. Else the manager of one queue could fill, or watch the errors of, any other.
"""

from dataclasses import dataclass
from typing import Final

from busway.gateway.http.atom.entity_xml import EntityInput
from busway.gateway.http.call import Call
from busway.model.authorization import path_segments
from busway.model.descriptions import LISTEN, MANAGE
from busway.model.entity_path import check_name, check_path, path_key, subscription_path
from busway.model.errors import BadArgument, Unauthorized
from busway.model.limits import Limits

_SUBSCRIPTIONS: Final = "subscriptions"
_RULES: Final = "rules"


def is_topic(_: object, topic: str, *__: str) -> bool:
    """Whether what stands before the last `subscriptions` of an address ends there: the first one counts."""
    return _SUBSCRIPTIONS not in topic.lower().split("/")[1:]


def is_below_topic(_: object, path: str) -> bool:
    return not is_topic(_, path)


@dataclass(frozen=True)
class TopicAddress:
    """`subscription` None: the list of subscriptions. `lists_rules`: the list of rules; `rule`: one of them."""

    topic: str
    subscription: str | None = None
    rule: str | None = None
    lists_rules: bool = False

    @property
    def path(self) -> str:
        """Of the subscription, in the spelling that was asked for."""
        return subscription_path(self.topic, self.subscription or "")

    def check(self, limits: Limits) -> None:
        """Raises BadArgument when nothing can be called so."""
        check_path(self.topic, limits.path_characters_max)
        if self.subscription is not None:
            check_name("subscription", self.subscription, limits.name_characters_max)
        if self.rule is not None:
            check_name("rule", self.rule, limits.name_characters_max)

    @classmethod
    def parse(cls, path: str, limits: Limits) -> "TopicAddress | None":
        """None when the path does not lead below a topic. Raises BadArgument when it leads nowhere."""
        segments = path.split("/")
        words = path.lower().split("/") if path.isascii() else segments
        if _SUBSCRIPTIONS not in words[1:]:
            return None
        at = words.index(_SUBSCRIPTIONS, 1)
        topic, rest = "/".join(segments[:at]), segments[at + 1 :]
        check_path(topic, limits.path_characters_max)
        if rest in ([], [""]):
            return cls(topic)
        check_name("subscription", rest[0], limits.name_characters_max)
        if len(rest) == 1:
            return cls(topic, rest[0])
        if words[at + 2] != _RULES or len(rest) > 3:
            raise BadArgument("Below a subscription there are only its rules: T/Subscriptions/S/Rules/R.")
        if rest[2:] in ([], [""]):
            return cls(topic, rest[0], lists_rules=True)
        check_name("rule", rest[2], limits.name_characters_max)
        return cls(topic, rest[0], rest[2])


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
