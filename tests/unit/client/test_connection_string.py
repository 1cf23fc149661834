"""Connection strings: what they mean, and that a wrong one never leaks its key."""

import pytest

from busway.client.connection_string import BadConnectionString, ConnectionString, compose

EMULATOR = "Endpoint=sb://127.0.0.1:6000/;SharedAccessKeyName=root;SharedAccessKey=c2VjcmV0==;UseDevelopmentEmulator=true"


def test_the_emulator_switch_sends_everything_plain_to_one_port() -> None:
    """A-11: with the switch AMQP and HTTP share the endpoint's port."""
    parsed = ConnectionString.parse(EMULATOR)
    assert (parsed.host, parsed.amqp_port, parsed.http_port, parsed.emulator) == (
        "127.0.0.1",
        6000,
        6000,
        True,
    )
    assert parsed.key == "c2VjcmV0=="


def test_without_the_switch_the_ports_are_those_of_tls() -> None:
    """A-11: AMQP 5671, HTTPS 443."""
    parsed = ConnectionString.parse("Endpoint=sb://bus.example.org;SharedAccessKeyName=a;SharedAccessKey=b")
    assert (parsed.amqp_port, parsed.http_port, parsed.emulator) == (5671, 443, False)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense-with-secret-inside",
        "Endpoint=http://h;SharedAccessKeyName=a;SharedAccessKey=secret",
        "Endpoint=sb://h:99999999;SharedAccessKeyName=a;SharedAccessKey=secret",
        "Endpoint=sb://h;SharedAccessKeyName=a",
        "SharedAccessKeyName=a;SharedAccessKey=secret",
        "Endpoint=sb://h;SharedAccessKeyName=a;SharedAccessKey=secret;SharedAccessKey=secret",
        "Endpoint=sb://h;Unknown=1;SharedAccessKeyName=a;SharedAccessKey=secret",
    ],
)
def test_a_wrong_string_is_refused_without_showing_secrets(text: str) -> None:
    """A wrong connection string gives a sentence that holds no part of a key."""
    with pytest.raises(BadConnectionString) as refusal:
        ConnectionString.parse(text)
    assert "secret" not in str(refusal.value)


def test_a_key_is_not_in_the_repr() -> None:
    """Secrets never reach a repr."""
    assert "c2VjcmV0" not in repr(ConnectionString.parse(EMULATOR))


def test_what_is_composed_parses_back() -> None:
    """The printed connection string is one that clients read."""
    text = compose("::1", 5672, "root", "k=", emulator=True)
    parsed = ConnectionString.parse(text)
    assert (parsed.host, parsed.port, parsed.key_name, parsed.key) == ("::1", 5672, "root", "k=")
    assert parsed.audience("orders") == "sb://[::1]:5672/orders"
