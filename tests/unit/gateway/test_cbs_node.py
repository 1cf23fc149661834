"""The node `$cbs`: the order of its checks, and the shape of its answers."""

from uuid import UUID

import pytest

from busway.amqp.types import ULong
from busway.model.descriptions import AuthorizationRule, QueueDescription
from busway.model.limits import Limits
from tests.unit.gateway.node_bench import NodeBench, condition, on_a_bench, request, sentence, status


def test_a_good_token_is_accepted() -> None:
    """A-7: 202 without any error condition, because one client takes the key's presence for failure."""

    async def test(bench: NodeBench) -> None:
        await bench.queue("Orders")
        answer = await bench.put_token("sb://bus/orders")
        assert status(answer) == 202
        assert condition(answer) is None
        assert any(grant.audience == ("orders",) for grant in bench.tokens.grants())

    on_a_bench(test)


@pytest.mark.parametrize(
    "name",
    [
        "sb://bus/orders",
        "amqp://bus:5672/orders",
        "amqps://bus/orders/$management",
        "sb://bus/orders/$DeadLetterQueue",
        "sb://bus/%6Frders",
        "sb://bus",
    ],
)
def test_every_spelling_of_an_audience_is_understood(name: str) -> None:
    """A-5: scheme, port, case and escapes do not matter."""

    async def test(bench: NodeBench) -> None:
        await bench.queue("Orders")
        assert status(await bench.put_token(name, bench.token("sb://bus/"))) == 202

    on_a_bench(test)


def test_a_missing_entity_fails_after_the_token_was_found_good() -> None:
    """S-10, A-7, ERR-1: 404 with the sentence that SDKs parse; a bad token is 401 before that."""

    async def test(bench: NodeBench) -> None:
        missing = await bench.put_token("sb://bus/nowhere")
        assert (status(missing), condition(missing)) == (404, "amqp:not-found")
        assert "The messaging entity 'sb://bus/nowhere' could not be found." in sentence(missing)
        bad = await bench.put_token("sb://bus/nowhere", bench.token("sb://bus/nowhere", key="wrong"))
        assert status(bad) == 401

    on_a_bench(test)


def test_bad_tokens_are_told_apart() -> None:
    """A-6, ERR-4: signature, expiry and audience; all 401 and com.microsoft:auth-failed."""

    async def test(bench: NodeBench) -> None:
        await bench.queue("orders")
        tokens = {
            "InvalidSignature: The token has an invalid signature.": bench.token("sb://bus/orders", key="no"),
            "ExpiredToken": bench.token("sb://bus/orders", lives_s=-1),
            "InvalidAudience": bench.token("sb://bus/other"),
            "MalformedToken": "SharedAccessSignature sr=x",
        }
        for words, token in tokens.items():
            answer = await bench.put_token("sb://bus/orders", token)
            assert (status(answer), condition(answer)) == (401, "com.microsoft:auth-failed")
            assert words in sentence(answer)

    on_a_bench(test)


def test_a_json_web_token_is_refused_with_a_sentence() -> None:
    """A-12: no identity provider is configured, so such tokens are refused; the text decides, not the type."""

    async def test(bench: NodeBench) -> None:
        await bench.queue("orders")
        answer = await bench.put_token("sb://bus/orders", "eyJhbGciOiJub25lIn0.e30.")
        assert status(answer) == 401
        assert "shared access signature" in sentence(answer)

    on_a_bench(test)


def test_a_token_that_lacks_the_right_is_held_all_the_same() -> None:
    """A-6: rights are looked at when a link is attached, not here."""

    async def test(bench: NodeBench) -> None:
        rule = AuthorizationRule("listener", frozenset({"Listen"}), "k" * 44, "l" * 44)
        await bench.queue(QueueDescription("orders", authorization_rules=(rule,)))
        token = bench.token("sb://bus/orders", "listener", "k" * 44)
        assert status(await bench.put_token("sb://bus/orders", token)) == 202

    on_a_bench(test)


def test_a_connection_holds_so_many_tokens_and_no_more() -> None:
    """L-18: one more is refused with 403; renewing one of them is not one more."""

    async def test(bench: NodeBench) -> None:
        await bench.queue("a")
        await bench.queue("b")
        assert status(await bench.put_token("sb://bus/a")) == 202
        refused = await bench.put_token("sb://bus/b")
        assert (status(refused), condition(refused)) == (403, "amqp:resource-limit-exceeded")
        assert status(await bench.put_token("sb://bus/a")) == 202

    on_a_bench(test, Limits(tokens_per_connection_max=2))


@pytest.mark.parametrize(
    ("properties", "body", "code"),
    [
        ({"operation": "put-token"}, "SharedAccessSignature x", 400),
        ({"operation": "put-token", "name": 7}, "SharedAccessSignature x", 400),
        ({"operation": "put-token", "name": "sb://bus/q"}, None, 400),
        ({"operation": "put-token", "name": "sb://bus/q"}, b"SharedAccessSignature x", 400),
        ({"operation": "put-token", "name": "sb://bus/" + "x" * 9_000}, "SharedAccessSignature x", 400),
        ({"operation": "put-token", "name": "sb://bus/%ff"}, "SharedAccessSignature x", 400),
        ({"operation": "delete-token"}, "x", 501),
        ({}, "x", 501),
        ({"operation": ["put-token"]}, "x", 501),
    ],
)
def test_nonsense_is_answered_not_raised(properties: dict[str, object], body: object, code: int) -> None:
    """A-7, ERR-7: whatever a stranger sends, an answer comes back."""

    async def test(bench: NodeBench) -> None:
        assert status(await bench.cbs.handle(request(properties, body))) == code

    on_a_bench(test)


@pytest.mark.parametrize("message_id", [UUID(int=7), "text", ULong(9), b"bytes"])
def test_the_answer_names_the_request_in_its_own_type(message_id: object) -> None:
    """ERR-40: the correlation id is the request's message id with the same AMQP type."""

    async def test(bench: NodeBench) -> None:
        answer = await bench.cbs.handle(request({"operation": "?"}, None, message_id))
        assert answer.properties is not None
        assert answer.properties.correlation_id == message_id
        assert type(answer.properties.correlation_id) is type(message_id)

    on_a_bench(test)
