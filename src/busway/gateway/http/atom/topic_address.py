"""What a management address means below a topic (E-8):

    T/Subscriptions            its subscriptions        T/Subscriptions/S/Rules      the rules of one
    T/Subscriptions/S          one of them              T/Subscriptions/S/Rules/R    one of those

The keywords are known in any case; T may have several segments. JS ends the address of a list with a slash.
"""

from dataclasses import dataclass
from typing import Final

from busway.model.entity_path import check_name, check_path, subscription_path
from busway.model.errors import BadArgument
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
