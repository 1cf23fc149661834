"""XML that attacks, and XML that is only odd."""

import builtins
import socket
import time

import pytest

from busway.gateway.http.atom.atom import timestamp
from busway.gateway.http.atom.entity_xml import entity_of_url, parse_entity
from busway.gateway.http.untrusted_input import BODY_BYTES_MAX, parse_xml
from busway.model.errors import BadArgument
from busway.rules.rule import Rule, TrueFilter
from tests.unit.gateway.http_exchange import VERSION, Exchange, queue_body, sas_token

INNER = '<content type="application/xml"><QueueDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect">{}</QueueDescription></content>'
ENTRY = f'<entry xmlns="http://www.w3.org/2005/Atom">{INNER}</entry>'
BOMB = "<!ENTITY a 'aaaaaaaaaa'>" + "".join(
    f"<!ENTITY {name} '{f'&{before};' * 10}'>" for before, name in zip("abcdefg", "bcdefgh", strict=True)
)

ATTACKS: dict[str, bytes] = {
    "entity expansion": f"<!DOCTYPE entry [{BOMB}]>{ENTRY.format('<UserMetadata>&h;</UserMetadata>')}".encode(),
    "quadratic expansion": (
        f"<!DOCTYPE entry [<!ENTITY x '{'x' * 1000}'>]>{ENTRY.format('&x;' * 1000)}".encode()
    ),
    "external entity, file": (
        "<!DOCTYPE entry [<!ENTITY x SYSTEM 'file:///etc/passwd'>]>"
        + ENTRY.format("<UserMetadata>&x;</UserMetadata>")
    ).encode(),
    "external entity, network": (
        "<!DOCTYPE entry [<!ENTITY x SYSTEM 'http://127.0.0.1:1/x'>]>"
        + ENTRY.format("<UserMetadata>&x;</UserMetadata>")
    ).encode(),
    "external DTD": ("<!DOCTYPE entry SYSTEM 'http://127.0.0.1:1/x.dtd'>" + ENTRY.format("")).encode(),
    "parameter entity": (
        "<!DOCTYPE entry [<!ENTITY % x SYSTEM 'http://127.0.0.1:1/x.dtd'> %x;]>" + ENTRY.format("")
    ).encode(),
    "harmless DTD": ("<!DOCTYPE entry>" + ENTRY.format("")).encode(),
    "undefined entity": ENTRY.format("<UserMetadata>&nbsp;</UserMetadata>").encode(),
    "deep": ("<a>" * 5000 + "</a>" * 5000).encode(),
    "deep inside an entry": ENTRY.format("<x>" * 40 + "</x>" * 40).encode(),
    "many elements": ENTRY.format("<x/>" * 5000).encode(),
    "many attributes": ENTRY.format("<x " + " ".join(f'a{n}="1"' for n in range(9000)) + "/>").encode(),
    "a huge attribute": ENTRY.format(f'<x a="{"y" * BODY_BYTES_MAX}"/>').encode(),
    "too long": ENTRY.format(f"<UserMetadata>{'y' * BODY_BYTES_MAX}</UserMetadata>").encode(),
    "UTF-16": ENTRY.format("").encode("utf-16"),
    "UTF-16 without a mark": ENTRY.format("").encode("utf-16-le"),
    "UTF-32": ENTRY.format("").encode("utf-32"),
    "UTF-7 declared": b"<?xml version='1.0' encoding='utf-7'?>" + ENTRY.format("").encode(),
    "UTF-16 declared": b"<?xml version='1.0' encoding='utf-16'?>" + ENTRY.format("").encode(),
    "EBCDIC declared": b'<?xml version="1.0" encoding="cp037"?>' + ENTRY.format("").encode(),
    "unknown encoding": b'<?xml version="1.0" encoding="x-nothing"?>' + ENTRY.format("").encode(),
    "Latin-1 bytes": ENTRY.format("<UserMetadata>\u00e4</UserMetadata>").encode("latin-1"),
    "overlong UTF-8": ENTRY.format("<UserMetadata>X</UserMetadata>").encode().replace(b"X", b"\xc0\xbc"),
    "a surrogate": ENTRY.format("<UserMetadata>X</UserMetadata>").encode().replace(b"X", b"\xed\xa0\x80"),
    "NUL": ENTRY.format("<UserMetadata>X</UserMetadata>").encode().replace(b"X", b"\x00"),
    "NUL reference": ENTRY.format("<UserMetadata>&#0;</UserMetadata>").encode(),
    "control reference": ENTRY.format("<UserMetadata>&#x8;</UserMetadata>").encode(),
    "XML 1.1": b'<?xml version="1.1"?>' + ENTRY.format("<UserMetadata>&#x8;</UserMetadata>").encode(),
    "empty": b"",
    "blank": b"   \n",
    "no XML": b"{}",
    "half": ENTRY.format("").encode()[:-20],
    "two roots": ENTRY.format("").encode() * 2,
    "unbound prefix": b"<x:entry/>",
    "another root": b"<feed xmlns='http://www.w3.org/2005/Atom'/>",
    "no content": b"<entry xmlns='http://www.w3.org/2005/Atom'/>",
    "two contents": ENTRY.format("").replace("<content", f"{INNER.format('')}<content", 1).encode(),
    "another namespace": ENTRY.format("").replace("netservices", "elsewhere").encode(),
    "a property twice": ENTRY.format("<MaxDeliveryCount>1</MaxDeliveryCount>" * 2).encode(),
    "many unknown": ENTRY.format("".join(f"<x{n}/>" for n in range(65))).encode(),
}


TARGETS = {
    "orders": "QueueDescription",
    "t/subscriptions/s": "SubscriptionDescription",
    "t/subscriptions/there/rules/r": "RuleDescription",
    "t/subscriptions/there/rules/$Default": "RuleDescription",
}


#: A rule keeps no unknown elements, so it may be sent any number of them.
CASES = [
    (name, target)
    for name in ATTACKS
    for target in TARGETS
    if name != "many unknown" or TARGETS[target] != "RuleDescription"
]


@pytest.mark.parametrize(("name", "target"), CASES)
def test_hostile_xml_is_refused_fast(exchange: Exchange, name: str, target: str) -> None:
    """ERR-42: every case of the XML attack list is 400 SubCode=40000 within 50 ms, and nothing is made."""
    exchange.request("PUT", f"/t?{VERSION}", queue_body(kind="TopicDescription"))
    exchange.request("PUT", f"/t/subscriptions/there?{VERSION}", queue_body(kind="SubscriptionDescription"))
    attack = ATTACKS[name].replace(b"QueueDescription", TARGETS[target].encode())
    headers = {"If-Match": "*"} if target.endswith("$Default") else None
    started = time.thread_time()
    answer = exchange.request("PUT", f"/{target}?{VERSION}", attack, headers)
    spent_s = time.thread_time() - started
    assert (answer.status, answer.detail[:15]) == (400, "SubCode=40000. ")
    namespace = exchange.namespace
    assert (namespace.queues(), len(namespace.subscriptions("t"))) == ([], 1)
    assert namespace.rules.of("t/subscriptions/there") == [
        Rule("$Default", TrueFilter(), None, 1_700_000_000_000)
    ]
    assert spent_s < 0.5  # 50 ms and the slack of a busy machine


def test_attacks_open_no_file_and_no_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    """ERR-42: the parser fetches nothing, whatever a document names."""
    touched: list[object] = []
    monkeypatch.setattr(builtins, "open", lambda *names, **_: touched.append(names))
    monkeypatch.setattr(socket, "socket", lambda *names, **_: touched.append(names))
    for attack in ATTACKS.values():
        with pytest.raises(BadArgument):
            parse_entity(attack, "2024-05")
    assert touched == []


@pytest.mark.parametrize(
    ("element", "says"),
    [
        ("<LockDuration>soon</LockDuration>", "LockDuration: 'soon' is not an ISO 8601 duration"),
        ("<MaxDeliveryCount>1e3</MaxDeliveryCount>", "MaxDeliveryCount: '1e3' is not a whole number"),
        ("<MaxDeliveryCount>٣</MaxDeliveryCount>", "is not a whole number"),
        (f"<MaxSizeInMegabytes>{'9' * 5000}</MaxSizeInMegabytes>", "is not a whole number"),
        ("<RequiresSession>yes</RequiresSession>", "RequiresSession: 'yes' is not true or false"),
        ("<Status>Deleting</Status>", "Status"),
        ("<LockDuration>PT0S</LockDuration>", "LockDuration"),
        ("<MaxDeliveryCount>0</MaxDeliveryCount>", "MaxDeliveryCount"),
        (f"<UserMetadata>{'x' * 1025}</UserMetadata>", "UserMetadata"),
    ],
)
def test_a_wrong_value_is_named(exchange: Exchange, element: str, says: str) -> None:
    """E-20 E-21 E-25 E-28 E-36 E-80 L-19: the refusal names property and value."""
    answer = exchange.request("PUT", f"/orders?{VERSION}", queue_body(element))
    assert answer.status == 400
    assert says in answer.detail


def test_prefixes_marks_and_spaces_do_not_matter() -> None:
    """E-20: clients write their own prefixes, byte order marks and blanks."""
    body = (
        '\ufeff<?xml version="1.0" encoding="UTF-8" standalone="yes"?><z:entry xmlns:z="http://www.w3.org/2005/Atom">'
        '<z:title/><z:content type="application/xml">'
        '<p:QueueDescription xmlns:p="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect">\n'
        "<!-- why --><p:LockDuration> PT5S\n</p:LockDuration><p:RequiresSession>TRUE</p:RequiresSession>"
        '<p:UserMetadata xmlns:i="http://www.w3.org/2001/XMLSchema-instance" i:nil="true"/>'
        "</p:QueueDescription></z:content></z:entry>"
    )
    sent = parse_entity(body.encode(), "2024-05")
    assert sent.values["lock_duration_ms"] == 5000
    assert sent.values["requires_session"] is True
    assert sent.values["user_metadata"] is None


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("sb://localhost:5672/a/b", "a/b"),
        ("https://host/orders/", "orders"),
        ("orders", "orders"),
        ("SB://host/x", "x"),
        ("sb://host", ""),
        ("sb://another.example:1/a%2Fb", "a/b"),
    ],
)
def test_the_target_of_a_forward_is_a_name(text: str, name: str) -> None:
    """E-33 E-34: clients send addresses."""
    assert entity_of_url(text) == name


def test_a_forward_needs_a_right_on_its_target(exchange: Exchange) -> None:
    """F-2 F-5 E-33 A-9: whoever manages one queue cannot fill another by forwarding to it."""
    body = queue_body("<ForwardTo>sb://localhost:5672/victim</ForwardTo>")
    rule = (
        "<AuthorizationRules><AuthorizationRule><KeyName>k</KeyName><Rights><AccessRights>Manage</AccessRights>"
        "<AccessRights>Send</AccessRights><AccessRights>Listen</AccessRights></Rights><PrimaryKey>a</PrimaryKey>"
        "<SecondaryKey>b</SecondaryKey></AuthorizationRule></AuthorizationRules>"
    )
    assert exchange.request("PUT", f"/mine?{VERSION}", queue_body(rule)).status == 201
    token = sas_token("https://localhost:5672/mine", "k", "a")
    answer = exchange.request("PUT", f"/mine?{VERSION}", body, {"If-Match": "*"}, token)
    assert (answer.status, "'Manage' claim" in answer.detail) == (401, True)
    # The manager of the namespace gets as far as the target itself.
    answer = exchange.request("PUT", f"/mine?{VERSION}", body, {"If-Match": "*"})
    assert (answer.status, answer.detail[:14]) == (400, "SubCode=40400.")


def test_the_largest_allowed_body_is_read() -> None:
    """ERR-42: 64 KiB pass, one byte more does not."""
    padding = " " * (BODY_BYTES_MAX - len(ENTRY.format("")))
    assert parse_xml((ENTRY.format("") + padding).encode()).tag.endswith("entry")
    with pytest.raises(BadArgument, match="more than 65536 bytes"):
        parse_xml((ENTRY.format("") + padding + " ").encode())


@pytest.mark.parametrize(
    ("at_ms", "text"),
    [
        (0, "0001-01-01T00:00:00Z"),
        (1_700_000_000_760, "2023-11-14T22:13:20.76Z"),
        (1_700_000_000_000, "2023-11-14T22:13:20Z"),
        (1_700_000_000_001, "2023-11-14T22:13:20.001Z"),
    ],
)
def test_times_have_as_many_decimals_as_needed(at_ms: int, text: str) -> None:
    """E-41: and "never" is the year 1."""
    assert timestamp(at_ms) == text
