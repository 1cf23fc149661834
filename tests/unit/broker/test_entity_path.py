"""Names of entities and the addresses they are reached under."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway.model.entity_path import EntityAddress, check_path, not_found, path_key
from busway.model.errors import BadArgument


@pytest.mark.parametrize(
    "path", ["q", "orders", "site2/page1/orders", "a.b-c_d~e", "A1", "x" * 260, "con", "a..b"]
)
def test_a_plain_name_is_allowed(path: str) -> None:
    """E-2, E-5, E-6: 1 to 260 characters, several segments, letters, digits and . - _ ~."""
    check_path(path)


_WRONG = [
    ("", "empty"),
    ("x" * 261, "at most 260"),
    ("/a", "start or end"),
    ("a/", "start or end"),
    ("a//b", "empty segment"),
    ("..", "dots only"),
    (".", "dots only"),
    ("a/../b", "dots only"),
    ("$cbs", "reserved"),
    ("$management", "reserved"),
    ("a/$DeadLetterQueue", "reserved"),
    ("a/Subscriptions/b", "subscription"),
    ("a b", "not allowed"),
    ("a\\b", "not allowed"),
    ("a@b", "not allowed"),
    ("a?b", "not allowed"),
    ("a#b", "not allowed"),
    ("a*b", "not allowed"),
    ("a%2fb", "not allowed"),
    ("a:b", "not allowed"),
    ("a|b", "not allowed"),
    ("a\x00b", "not allowed"),
    ("a\nb", "not allowed"),
    ("a\x7f", "not allowed"),
    ("оrders", "not allowed"),  # a Cyrillic o
    ("ｏrders", "not allowed"),  # full width
    ("\u212a", "not allowed"),  # the Kelvin sign
    ("ſ", "not allowed"),
    ("a\u200bb", "not allowed"),
    ("a\u202eb", "not allowed"),
    ("ä", "not allowed"),
    ("١", "not allowed"),  # a digit, but not ours
    ("<script>", "not allowed"),
]


@pytest.mark.parametrize(("path", "part"), _WRONG)
def test_a_name_that_could_be_misread_is_refused_with_the_reason(path: str, part: str) -> None:
    """E-2, E-5, E-6: other characters are a bad argument (40000) and the sentence says why."""
    with pytest.raises(BadArgument, match=part) as caught:
        check_path(path)
    assert len(caught.value.sentence) < 600
    assert caught.value.sentence.isprintable()


def test_a_lower_limit_is_respected() -> None:
    """E-2, L-22: the length is a setting."""
    with pytest.raises(BadArgument, match="at most 3"):
        check_path("abcd", 3)


def test_names_are_found_without_regard_to_case() -> None:
    """E-7: Orders and ORDERS are one name, a look-alike is another."""
    assert path_key("Orders/A") == path_key("ORDERS/a")
    assert path_key("\u212a") != "k"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("orders", EntityAddress("orders")),
        ("/orders", EntityAddress("orders")),
        ("orders/", EntityAddress("orders")),
        ("a/b/c", EntityAddress("a/b/c")),
        ("orders/$DeadLetterQueue", EntityAddress("orders", dead_letter=True)),
        ("Orders/$deadletterqueue", EntityAddress("Orders", dead_letter=True)),
        ("orders/$management", EntityAddress("orders", management=True)),
        ("orders/$MANAGEMENT", EntityAddress("orders", management=True)),
        ("orders/$DeadLetterQueue/$management", EntityAddress("orders", dead_letter=True, management=True)),
        ("orders/$Transfer/$DeadLetterQueue", EntityAddress("orders", transfer_dead_letter=True)),
        (
            "a/b/$transfer/$deadletterqueue/$management",
            EntityAddress("a/b", transfer_dead_letter=True, management=True),
        ),
        ("$management", EntityAddress("", management=True)),
        ("$cbs", EntityAddress("$cbs")),
        ("", EntityAddress("")),
        ("$DeadLetterQueue", EntityAddress("$DeadLetterQueue")),
        ("q/$DeadLetterQueue/$DeadLetterQueue", EntityAddress("q/$DeadLetterQueue", dead_letter=True)),
        ("q/$Transfer", EntityAddress("q/$Transfer")),
        ("//q", EntityAddress("/q")),
        ("q/../r", EntityAddress("q/../r")),
    ],
)
def test_an_address_is_split_into_entity_and_door(text: str, expected: EntityAddress) -> None:
    """E-8: sub-queues and $management, keywords in any case."""
    assert EntityAddress.parse(text) == expected


@given(st.text(max_size=300))
def test_any_text_can_be_parsed_and_what_is_odd_names_no_entity(text: str) -> None:
    """E-8: parsing never fails, and only clean names come out as names that can exist."""
    address = EntityAddress.parse(text)
    try:
        check_path(address.path)
    except BadArgument:
        return
    assert address.path.isascii()
    assert path_key(address.path) == address.key


def test_the_sentence_of_a_missing_entity_is_the_one_that_clients_parse() -> None:
    """ERR-1: two SDKs look for these words; foreign text in it is bounded and printable."""
    assert not_found("ns", "q").sentence == "The messaging entity 'sb://ns/q' could not be found."
    sentence = not_found("ns", "q\x00\n" + "y" * 5000).sentence
    assert sentence.isprintable()
    assert len(sentence) < 400
