"""Tokens that our client makes are tokens that our server takes."""

import pytest

from busway.client.connection_string import LIFETIME_S, ConnectionString, sas_token, token_for
from busway.model.authorization import Authorizer
from busway.model.descriptions import ALL_RIGHTS, AuthorizationRule
from busway.model.errors import AuthenticationFailed
from tests.harness.manual_clock import ManualClock

RULE = AuthorizationRule("root rule+", ALL_RIGHTS, "first/+key=", "second")


class RootRuleOnly:
    def rules(self) -> tuple[AuthorizationRule, ...]:
        return (RULE,)

    def entity_rules(self, key: str) -> None:
        del key

    def owner_key(self, key: str) -> str:
        return key

    def other_owner_key(self, key: str) -> str | None:
        del key
        return None


def test_a_token_made_here_is_accepted_there() -> None:
    """A-4: signed over the encoded address, keys as text, any letters in the rule's name."""
    clock = ManualClock()
    token = sas_token("sb://host:1/orders", RULE.name, RULE.primary_key, clock.wall_ms() // 1000 + 60)
    grant = Authorizer(RootRuleOnly(), clock).grant_of_token(token, "sb://host:1/orders")
    assert grant.rule_name == RULE.name


def test_another_key_is_not_accepted() -> None:
    """A-6: a wrong key is a wrong signature."""
    clock = ManualClock()
    token = sas_token("sb://host/orders", RULE.name, "another", clock.wall_ms() // 1000 + 60)
    with pytest.raises(AuthenticationFailed):
        Authorizer(RootRuleOnly(), clock).grant_of_token(token, "sb://host/orders")


def test_a_token_lives_an_hour() -> None:
    """A-4: `se` is the wall time of its end."""
    target = ConnectionString("h", None, "n", "k")
    assert f"&se={1_000 + LIFETIME_S}&" in token_for(target, "sb://h/q", 1_000.9)


def test_a_ready_made_signature_is_used_as_it_is() -> None:
    """A-4: a connection string may bring a token instead of a key."""
    assert (
        token_for(ConnectionString("h", None, signature="made elsewhere"), "sb://h/q", 0) == "made elsewhere"
    )
