"""Keys of authorization rules: 256 random bits, written in base64 (A-1)."""

import base64
from dataclasses import replace
from typing import Final

from busway.clock import Entropy
from busway.model.descriptions import ALL_RIGHTS, AuthorizationRule

ROOT_RULE_NAME: Final = "RootManageSharedAccessKey"
_KEY_BYTES: Final = 32


def random_key(entropy: Entropy) -> str:
    return base64.b64encode(entropy.bytes(_KEY_BYTES)).decode("ascii")


def root_rule(entropy: Entropy, now_ms: int, key: str | None) -> AuthorizationRule:
    """The rule a new namespace has (A-3), with the operator's own key when there is one."""
    return AuthorizationRule(
        name=ROOT_RULE_NAME,
        rights=ALL_RIGHTS,
        primary_key=key or random_key(entropy),
        secondary_key=random_key(entropy),
        created_at_ms=now_ms,
        modified_at_ms=now_ms,
    )


def completed_rules(
    wanted: tuple[AuthorizationRule, ...],
    present: tuple[AuthorizationRule, ...],
    entropy: Entropy,
    now_ms: int,
) -> tuple[AuthorizationRule, ...]:
    """The rules as they are kept: a key left empty stays as it is, or is drawn at random for a new rule; times
    are set by us."""
    known = {rule.name: rule for rule in present}
    return tuple(_completed(rule, known.get(rule.name), entropy, now_ms) for rule in wanted)


def _completed(
    wanted: AuthorizationRule, known: AuthorizationRule | None, entropy: Entropy, now_ms: int
) -> AuthorizationRule:
    if known is None:
        return replace(
            wanted,
            primary_key=wanted.primary_key or random_key(entropy),
            secondary_key=wanted.secondary_key or random_key(entropy),
            created_at_ms=now_ms,
            modified_at_ms=now_ms,
        )
    kept = replace(
        wanted,
        primary_key=wanted.primary_key or known.primary_key,
        secondary_key=wanted.secondary_key or known.secondary_key,
        created_at_ms=known.created_at_ms,
        modified_at_ms=known.modified_at_ms,
    )
    return kept if kept == known else replace(kept, modified_at_ms=now_ms)
