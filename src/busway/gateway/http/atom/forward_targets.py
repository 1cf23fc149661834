"""F-5: whoever makes an entity forward must hold Manage on the target too, by the same token or by one of its own
in a header. Else the manager of one queue could fill, or watch the errors of, any other."""

from typing import Final

from busway.broker.descriptions import MANAGE
from busway.broker.entity_path import check_path, path_key
from busway.broker.limits import Limits
from busway.gateway.http.atom.entity_xml import EntityInput
from busway.gateway.http.call import Call

#: Field of a description → header with the token for its target.
TARGET_TOKENS: Final = {
    "forward_to": "servicebussupplementaryauthorization",
    "forward_dead_lettered_messages_to": "servicebusdlqsupplementaryauthorization",
}


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
