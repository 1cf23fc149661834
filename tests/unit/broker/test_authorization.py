"""Shared access signatures: who may do what, and above all who may not."""

import ast
import base64
import hashlib
import hmac
import inspect
import itertools
from dataclasses import dataclass, field, replace
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway.model import authorization
from busway.model.authorization import Authorizer, Grant, path_segments
from busway.model.descriptions import ALL_RIGHTS, AuthorizationRule
from busway.model.entity_path import path_key, topic_key_of
from busway.model.errors import AuthenticationFailed, Unauthorized
from tests.harness.manual_clock import ManualClock

_HOST = "sb://bus.example:5672"
_NOW_S = 1_700_000_000


def _rule(name: str, *rights: str) -> AuthorizationRule:
    return AuthorizationRule(name, frozenset(rights), f"{name}-first-key", f"{name}-second-key")


_ROOT = AuthorizationRule("RootManageSharedAccessKey", ALL_RIGHTS, "root-first-key", "root-second-key")


@dataclass
class _Book:
    """Rules in plain dicts."""

    namespace: tuple[AuthorizationRule, ...] = (_ROOT,)
    entities: dict[str, tuple[int, tuple[AuthorizationRule, ...]]] = field(default_factory=dict)

    def rules(self) -> tuple[AuthorizationRule, ...]:
        return self.namespace

    def entity_rules(self, key: str) -> tuple[int, tuple[AuthorizationRule, ...]] | None:
        return self.entities.get(key)

    def owner_key(self, key: str) -> str:
        return topic_key_of(key)

    def other_owner_key(self, key: str) -> str | None:
        del key
        return None


def _token(
    rule_name: str,
    key: str,
    scope: str = _HOST,
    expires_at_s: object = _NOW_S + 3600,
    encode: bool = True,
) -> str:
    raw = quote(scope, safe="") if encode else scope
    digest = hmac.new(key.encode(), f"{raw}\n{expires_at_s}".encode(), hashlib.sha256).digest()
    signature = quote(base64.b64encode(digest), safe="")
    return f"SharedAccessSignature sr={raw}&sig={signature}&se={expires_at_s}&skn={rule_name}"


def _root_token(scope: str = _HOST, expires_at_s: object = _NOW_S + 3600, encode: bool = True) -> str:
    return _token(_ROOT.name, _ROOT.primary_key, scope, expires_at_s, encode)


def _authorizer(book: _Book | None = None, **kwargs: bool) -> Authorizer:
    return Authorizer(book or _Book(), ManualClock(_NOW_S * 1000), **kwargs)


def _sub_code(authorizer: Authorizer, token: str, audience: str = _HOST + "/q") -> int:
    with pytest.raises(AuthenticationFailed) as caught:
        authorizer.grant_of_token(token, audience)
    return caught.value.sub_code


# -- the matrix: every right against every operation
_LEVELS = ("namespace", "queue", "other queue")
_RIGHTS: dict[str, tuple[str, ...]] = {
    "Listen": ("Listen",),
    "Send": ("Send",),
    "Manage": ("Manage", "Send", "Listen"),
}
_PATHS = ("A", "a", "A/$DeadLetterQueue", "A/$management", "a/$DeadLetterQueue/$Management")
#: name → (token's scope, expiry, sign with this rule's key?, does it stand?)
_FORMS: dict[str, tuple[str, int, bool, bool]] = {
    "valid": ("sb://bus.example:5672/A", 3600, True, True),
    "namespace scope": ("sb://bus.example:5672", 3600, True, True),
    "namespace scope with slash": ("sb://bus.example:5672/", 3600, True, True),
    "bare host": ("bus.example", 3600, True, True),
    "bare host and path": ("bus.example/A", 3600, True, True),
    "case": ("SB://BUS.Example:5672/a", 3600, True, True),
    "trailing slash": ("sb://bus.example:5672/A/", 3600, True, True),
    "other scheme": ("https://bus.example/A", 3600, True, True),
    "other port": ("amqps://bus.example:1/A", 3600, True, True),
    "with a query": ("https://bus.example/A?api-version=2021-05", 3600, True, True),
    "expired": ("sb://bus.example:5672/A", 0, True, False),
    "other key": ("sb://bus.example:5672/A", 3600, False, False),
    "longer name": ("sb://bus.example:5672/AB", 3600, True, False),
    "dot dot": ("sb://bus.example:5672/B/%2e%2e/A", 3600, True, False),
    "plain dot dot": ("sb://bus.example:5672/B/../A", 3600, True, False),
    "dot": ("sb://bus.example:5672/./A", 3600, True, False),
    "endpoint with slash": ("sb://bus.example:5672//A", 3600, True, True),
    "double slash": ("sb://bus.example:5672/A//", 3600, True, False),
    "backslash": ("sb://bus.example:5672\\A", 3600, True, False),
    "other host": ("sb://elsewhere.example/A", 3600, True, False),
    "longer host": ("sb://bus.example.evil/A", 3600, True, False),
    "host as user": ("sb://bus.example@evil/A", 3600, True, False),
    "bare path": ("A", 3600, True, False),
    "below": ("sb://bus.example:5672/A/x", 3600, True, False),
    "encoded letter": ("sb://bus.example:5672/%2541", 3600, True, False),
    "look-alike": ("sb://bus.example:5672/\u0410", 3600, True, False),
    "NUL": ("sb://bus.example:5672/A\x00", 3600, True, False),
}


def _matrix() -> list[tuple[str, str, str, str, str]]:
    return list(itertools.product(_LEVELS, _RIGHTS, ("Listen", "Send", "Manage"), _FORMS, _PATHS))


def test_only_what_the_table_allows_is_allowed() -> None:
    """A-1, A-4, A-5, A-6, A-9: every level, right, wanted right, form of token and address; one table."""
    cells = 0
    for level, granted, wanted, form, path in _matrix():
        rule = _rule("policy", *_RIGHTS[granted])
        book = _Book(entities={"a": (1, ()), "b": (1, ()), "ab": (1, ())})
        if level == "namespace":
            book.namespace = (_ROOT, rule)
        else:
            book.entities["a" if level == "queue" else "b"] = (1, (rule,))
        scope, seconds, is_own_key, stands = _FORMS[form]
        key = rule.primary_key if is_own_key else "another key"
        token = _token("policy", key, scope, _NOW_S + seconds)
        expected = stands and level != "other queue" and wanted in _RIGHTS[granted]
        assert _is_allowed(_authorizer(book), token, path, wanted) is expected, (
            level,
            granted,
            wanted,
            form,
            path,
        )
        cells += 1
    assert cells == 3 * 3 * 3 * len(_FORMS) * len(_PATHS)


def _is_allowed(authorizer: Authorizer, token: str, path: str, right: str) -> bool:
    try:
        grant = authorizer.grant_of_token(token, f"{_HOST}/{path}")
        authorizer.authorise([grant], path, right)
    except (AuthenticationFailed, Unauthorized):
        return False
    return True


@pytest.mark.parametrize("cut", [1, 2, 4, 20, 43])
def test_a_truncated_signature_opens_nothing(cut: int) -> None:
    """A-4, A-6: no prefix of a signature will do."""
    head, _, tail = _root_token().partition("&sig=")
    signature, _, rest = tail.partition("&")
    assert _sub_code(_authorizer(), f"{head}&sig={signature[:-cut]}&{rest}") == 40103


def test_a_token_for_one_queue_does_not_open_a_longer_name() -> None:
    """A-5: paths are compared by segments, so queue1 never opens queue10."""
    authorizer = _authorizer()
    assert _sub_code(authorizer, _root_token(_HOST + "/queue1"), _HOST + "/queue10") == 40104
    grant = authorizer.grant_of_token(_root_token(_HOST + "/queue1"), _HOST + "/queue1")
    for path in (
        "queue10",
        "queue1x",
        "queue",
        "",
        "other",
        "queue1/../queue2",
        "queue1//x",
        "queue1/%2e%2e/b",
    ):
        with pytest.raises(Unauthorized):
            authorizer.authorise([grant], path, "Send")
    assert authorizer.authorise([grant], "QUEUE1/$DeadLetterQueue", "Listen") is grant


def test_a_wide_token_opens_only_what_was_asked_for_with_it() -> None:
    """A-7: links are checked against the tokens whose name covers their path, not against the signed scope."""
    authorizer = _authorizer()
    grant = authorizer.grant_of_token(_root_token(), _HOST + "/orders")
    assert authorizer.authorise([grant], "orders", "Send") is grant
    with pytest.raises(Unauthorized):
        authorizer.authorise([grant], "payments", "Send")


def test_a_rule_of_a_queue_does_not_open_a_queue_whose_name_lies_below() -> None:
    """A-2, A-5: `a` and `a/b` are two entities; only the namespace is above both."""
    rule = _rule("own", "Manage", "Send", "Listen")
    book = _Book(entities={"a": (1, (rule,)), "a/b": (2, ())})
    authorizer = _authorizer(book)
    token = _token("own", rule.primary_key, _HOST + "/a")
    assert _sub_code(authorizer, token, _HOST + "/a/b") == 40103
    assert _sub_code(authorizer, token, _HOST + "/a/new") == 40103
    grant = authorizer.grant_of_token(token, _HOST + "/a")
    for path in ("a/b", "a/new", "a/messages", "$Resources/queues", ""):
        with pytest.raises(Unauthorized):
            authorizer.authorise([grant], path, "Manage")


def test_a_namespace_key_opens_everything_below_the_scope_it_signed() -> None:
    """A-5: a token is valid for its URI and everything below."""
    authorizer = _authorizer()
    token = _root_token(_HOST + "/a")
    for path in ("a", "a/b", "a/b/$DeadLetterQueue"):
        grant = authorizer.grant_of_token(token, f"{_HOST}/{path}")
        assert authorizer.authorise([grant], path, "Manage") is grant


def test_a_token_for_the_management_node_is_a_token_for_its_queue() -> None:
    """A-7, E-8: JavaScript's client asks for `q/$management`."""
    authorizer = _authorizer()
    url = _HOST + "/q/$management"
    grant = authorizer.grant_of_token(_root_token(url), url)
    assert authorizer.authorise([grant], "q/$management", "Listen") is grant
    assert authorizer.authorise([grant], "q", "Listen") is grant


def test_attaching_to_management_needs_any_right() -> None:
    """A-7: `X/$management` needs a valid token for X with any right."""
    book = _Book((_rule("send", "Send"),))
    authorizer = _authorizer(book)
    grant = authorizer.grant_of_token(_token("send", "send-first-key"), _HOST + "/q")
    assert authorizer.authorise_any([grant], "q/$management") is grant
    with pytest.raises(Unauthorized, match="claim"):
        authorizer.authorise_any([grant], "r/$management")
    book.namespace = ()
    with pytest.raises(Unauthorized):
        authorizer.authorise_any([grant], "q/$management")


def test_both_keys_sign_and_their_text_is_the_key() -> None:
    """A-4: primary or secondary, as text and not base64-decoded, parameters in any order."""
    authorizer = _authorizer()
    for key in (_ROOT.primary_key, _ROOT.secondary_key):
        prefix, _, rest = _token(_ROOT.name, key).partition(" ")
        for order in itertools.permutations(rest.split("&")):
            grant = authorizer.grant_of_token(f"{prefix} {'&'.join(order)}", _HOST + "/q")
            assert grant.rights == ALL_RIGHTS


def test_the_signature_is_over_the_scope_as_transmitted() -> None:
    """A-4: clients encode differently (upper-case, lower-case escapes, none); what arrived is what was signed."""
    authorizer = _authorizer()
    for raw in (
        "sb%3A%2F%2Fbus.example%3A5672%2Fq",
        "sb%3a%2f%2fbus.example%3a5672%2fq",
        "sb://bus.example:5672/q",
        "https%3a%2f%2fbus.example%2fq%3fapi-version%3d2021-05",
    ):
        assert authorizer.grant_of_token(_root_token(raw, encode=False), _HOST + "/q").scope == ("q",)


def test_an_expired_token_says_so() -> None:
    """A-6, A-8: 40106; the second of expiry is already too late."""
    authorizer = _authorizer()
    for expires_at_s in (_NOW_S, _NOW_S - 1, 0):
        with pytest.raises(
            AuthenticationFailed, match=r"ExpiredToken: The token is expired\. Expiration time:"
        ) as c:
            authorizer.grant_of_token(_root_token(expires_at_s=expires_at_s), _HOST + "/q")
        assert c.value.sub_code == 40106
    authorizer.grant_of_token(_root_token(expires_at_s=_NOW_S + 1), _HOST + "/q")
    authorizer.grant_of_token(_root_token(expires_at_s=999_999_999_999_999), _HOST + "/q")


def test_the_checks_come_in_their_order() -> None:
    """A-7: form, rule, signature, expiry, audience: the first that fails is the one reported."""
    authorizer = _authorizer()
    wrong_everything = _token("nobody", "x", "sb://elsewhere/z", 1)
    assert _sub_code(authorizer, wrong_everything.replace("se=1", "se=x")) == 40105
    assert _sub_code(authorizer, wrong_everything) == 40103
    assert _sub_code(authorizer, _token(_ROOT.name, "x", "sb://elsewhere/z", 1)) == 40103
    assert _sub_code(authorizer, _root_token("sb://elsewhere/z", expires_at_s=1)) == 40106
    assert _sub_code(authorizer, _root_token("sb://elsewhere/z")) == 40104


def test_an_unknown_rule_looks_like_a_wrong_signature() -> None:
    """A-6, A-7: an entity-level rule of a missing entity is unknown: 401, and nobody learns which it was."""
    sentences = set()
    for token in (_token("nobody", "x"), _token(_ROOT.name, "x"), _token("entity", "x", _HOST + "/missing")):
        with pytest.raises(AuthenticationFailed) as caught:
            _authorizer().grant_of_token(token, _HOST + "/missing")
        sentences.add((caught.value.sentence, caught.value.sub_code))
    assert sentences == {("InvalidSignature: The token has an invalid signature.", 40103)}


@pytest.mark.parametrize(
    ("token", "sub_code"),
    [
        ("", 40105),
        ("SharedAccessSignature", 40105),
        ("Bearer abc", 40105),
        ("SharedAccessSignature " + "x" * 25_000, 40105),
        ("SharedAccessSignature sr=ä&sig=1&se=1&skn=1", 40105),
        ("SharedAccessSignature sr=a&sr=b&sig=1&se=1&skn=1", 40105),
        ("SharedAccessSignature " + "&".join(f"a{i}=1" for i in range(50)), 40105),
        ("SharedAccessSignature sr=a&sig=1&se=-1&skn=1", 40105),
        ("SharedAccessSignature sr=a&sig=1&se=1e9&skn=1", 40105),
        ("SharedAccessSignature sr=a&sig=1&se=" + "9" * 40 + "&skn=1", 40105),
        ("SharedAccessSignature sig=1&se=1&skn=1", 40107),
        ("SharedAccessSignature sr=a&sig=1&skn=1", 40108),
        ("SharedAccessSignature sr=a&sig=1&se=1", 40109),
        ("SharedAccessSignature sr=a&se=1&skn=1", 40110),
        ("SharedAccessSignature sr=a&sig=&se=1&skn=1", 40110),
        ("SharedAccessSignature sr=%FF%FE&sig=%FF&se=1&skn=%00", 40103),
    ],
)
def test_a_malformed_token_is_refused_with_its_sub_code(token: str, sub_code: int) -> None:
    """ERR-42: 40105 malformed, 40107…40110 a part is missing."""
    assert _sub_code(_authorizer(), token) == sub_code


def test_the_right_is_named_when_it_is_missing() -> None:
    """A-6: put-token succeeds, the attach is refused with the sentence that clients show."""
    authorizer = _authorizer(_Book((_rule("listen", "Listen"),)))
    grant = authorizer.grant_of_token(_token("listen", "listen-first-key"), _HOST + "/q")
    assert authorizer.authorise([grant], "q", "Listen") is grant
    with pytest.raises(Unauthorized) as caught:
        authorizer.authorise([grant], "q", "Send")
    expected = "Unauthorized access. 'Send' claim(s) are required to perform this operation."
    assert caught.value.sentence == expected


def test_any_of_several_grants_will_do() -> None:
    """A-7: a connection holds many tokens."""
    authorizer = _authorizer(_Book((_rule("listen", "Listen"), _rule("send", "Send"))))
    grants = [
        authorizer.grant_of_token(_token(name, f"{name}-first-key"), f"{_HOST}/{path}")
        for name, path in itertools.product(("listen", "send"), ("q", "r"))
    ]
    assert authorizer.authorise(grants, "r", "Send") is grants[3]
    with pytest.raises(Unauthorized):
        authorizer.authorise([], "r", "Send")


def test_a_grant_ends_with_its_expiry() -> None:
    """A-8: an expired token no longer counts, although it was good when it came."""
    clock = ManualClock(_NOW_S * 1000)
    authorizer = Authorizer(_Book(), clock)
    grant = authorizer.grant_of_token(_root_token(expires_at_s=_NOW_S + 10), _HOST + "/q")
    clock.advance(9.9)
    assert authorizer.is_valid(grant)
    clock.advance(0.1)
    assert not authorizer.is_valid(grant)
    with pytest.raises(Unauthorized):
        authorizer.authorise([grant], "q", "Send")


def test_a_grant_ends_with_the_key_that_signed_it() -> None:
    """A-10: regenerating a key ends the tokens made with it, and only those."""
    book = _Book()
    authorizer = _authorizer(book)
    first = authorizer.grant_of_token(_token(_ROOT.name, _ROOT.primary_key), _HOST + "/q")
    second = authorizer.grant_of_token(_token(_ROOT.name, _ROOT.secondary_key), _HOST + "/q")
    plain = authorizer.grant_of_key(_ROOT.name, _ROOT.primary_key)
    book.namespace = (replace(_ROOT, primary_key="new"),)
    assert [authorizer.is_valid(grant) for grant in (first, second, plain)] == [False, True, False]
    book.namespace = ()
    assert not authorizer.is_valid(second)


def test_a_grant_has_the_rights_its_rule_has_now() -> None:
    """A-10: a right taken from the rule is taken from tokens that are out already."""
    book = _Book((_rule("r", "Send", "Listen"),))
    authorizer = _authorizer(book)
    grant = authorizer.grant_of_token(_token("r", "r-first-key"), _HOST + "/q")
    book.namespace = (_rule("r", "Listen"),)
    authorizer.authorise([grant], "q", "Listen")
    with pytest.raises(Unauthorized):
        authorizer.authorise([grant], "q", "Send")


def test_a_grant_of_a_queues_rule_ends_with_the_queue() -> None:
    """E-86: a name created again is a new entity, even with the same rule and key."""
    rule = _rule("own", "Send")
    book = _Book(entities={"q": (1, (rule,))})
    authorizer = _authorizer(book)
    token = _token("own", rule.primary_key, _HOST + "/q")
    grant = authorizer.grant_of_token(token, _HOST + "/Q")
    assert authorizer.is_valid(grant)
    book.entities["q"] = (2, (rule,))
    assert not authorizer.is_valid(grant)
    assert authorizer.is_valid(authorizer.grant_of_token(token, _HOST + "/Q"))
    del book.entities["q"]
    assert not authorizer.is_valid(grant)


def test_rules_of_one_name_on_both_levels_are_two_rules() -> None:
    """A-2, A-5: the key decides which of them signed."""
    own = AuthorizationRule("same", frozenset({"Listen"}), "own-key", "own-key-2")
    shared = AuthorizationRule("same", frozenset({"Send"}), "shared-key", "shared-key-2")
    authorizer = _authorizer(_Book((shared,), {"q": (1, (own,))}))
    assert authorizer.grant_of_token(_token("same", "own-key"), _HOST + "/q").rights == {"Listen"}
    assert authorizer.grant_of_token(_token("same", "shared-key"), _HOST + "/q").rights == {"Send"}
    assert _sub_code(authorizer, _token("same", "own-key"), _HOST + "/r") == 40103


def test_plain_takes_a_namespace_rule_and_one_of_its_keys() -> None:
    """A-7: SASL PLAIN; a queue's rule is unknown there."""
    rule = _rule("own", "Send")
    authorizer = _authorizer(_Book(entities={"q": (1, (rule,))}))
    for key in (_ROOT.primary_key, _ROOT.secondary_key):
        grant = authorizer.grant_of_key(_ROOT.name, key)
        assert authorizer.authorise([grant], "any/path/$DeadLetterQueue", "Manage") is grant
    for name, key in (
        (_ROOT.name, ""),
        (_ROOT.name, "x"),
        (_ROOT.name, _ROOT.primary_key + " "),
        (_ROOT.name, "\ud800"),
        ("own", rule.primary_key),
        ("", ""),
        ("nobody", "nobody's first key"),
    ):
        with pytest.raises(AuthenticationFailed):
            authorizer.grant_of_key(name, key)


def test_the_dummy_that_unknown_rules_are_measured_against_opens_nothing() -> None:
    """A-6: it exists for the time it takes, not for anybody to use."""
    for key in ("nobody's first key", "nobody's second key"):
        for name in ("", "nobody"):
            token = _token(name, key)
            with pytest.raises(AuthenticationFailed):
                _authorizer().grant_of_token(token, _HOST + "/q")


def test_the_development_key_works_only_when_asked_for() -> None:
    """A-3, A-11: the emulator's placeholder opens the root rule with --dev-key and never otherwise."""
    token = _token(_ROOT.name, "SAS_KEY_VALUE")
    assert _sub_code(_authorizer(), token) == 40103
    relaxed = _authorizer(_Book((_ROOT, _rule("other", "Send"))), accepts_development_key=True)
    assert relaxed.is_valid(relaxed.grant_of_token(token, _HOST + "/q"))
    assert relaxed.is_valid(relaxed.grant_of_key(_ROOT.name, "SAS_KEY_VALUE"))
    assert relaxed.is_valid(relaxed.grant_of_token(_root_token(), _HOST + "/q"))
    assert _sub_code(relaxed, _token("other", "SAS_KEY_VALUE")) == 40103
    book = _Book((), {"q": (1, (replace(_ROOT, primary_key="k"),))})
    assert _sub_code(_authorizer(book, accepts_development_key=True), token) == 40103


def test_names_of_this_machine_are_one_host() -> None:
    """A-5: localhost, 127.0.0.1 and ::1 are the same server; an address without a host fits every host."""
    authorizer = _authorizer()
    for scope, audience in (
        ("sb://localhost:5672", "https://127.0.0.1:5672/q"),
        ("sb://[::1]:5672", "amqp://LOCALHOST/q"),
        ("sb://localhost/q", "/q"),
        ("/q", "sb://localhost/q"),
    ):
        assert authorizer.is_valid(authorizer.grant_of_token(_root_token(scope), audience))


def test_a_bare_name_is_never_the_whole_namespace() -> None:
    """A-5: whoever signs `sr=orders` meant a queue; it must not open others, nor with a host-less audience."""
    for audience in ("/payments", "payments", _HOST + "/payments", "//payments", ""):
        assert _sub_code(_authorizer(), _root_token("orders"), audience) == 40104


def test_a_grant_shows_no_key() -> None:
    """A-10: grants get logged; their keys do not."""
    grant = _authorizer().grant_of_token(_root_token(), _HOST + "/q")
    assert _ROOT.primary_key not in repr(grant)


def test_every_comparison_of_secrets_takes_the_same_time() -> None:
    """A-4: the only comparison of keys and signatures is compare_digest."""
    tree = ast.parse(inspect.getsource(authorization))
    secret = {"key", "signature", "primary_key", "secondary_key", "candidate"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and any(isinstance(op, ast.Eq | ast.NotEq) for op in node.ops):
            sides = [ast.unparse(side) for side in (node.left, *node.comparators)]
            named = {side.rpartition(".")[2] for side in sides}
            # `grant.level.key` is an entity's name.
            assert not named & secret or sides == ["grant.level.key", "key"], ast.unparse(node)


@given(st.text(max_size=200), st.text(max_size=100))
def test_random_tokens_open_nothing(text: str, audience: str) -> None:
    """A-6: whatever arrives, the answer is a refusal and no other failure."""
    authorizer = _authorizer()
    for token in (text, "SharedAccessSignature " + text, f"SharedAccessSignature sr={text}&sig=a&se=1&skn=b"):
        with pytest.raises(AuthenticationFailed):
            authorizer.grant_of_token(token, audience)


@given(st.text(max_size=60))
def test_any_path_is_clean_segments_or_nothing(path: str) -> None:
    """A-5: no segment is ever empty, made of dots, or outside plain ASCII."""
    segments = path_segments(path)
    if segments is not None:
        for segment in segments:
            assert segment.isascii()
            assert segment == path_key(segment)
            assert segment.strip(".")
            assert "/" not in segment
            assert "%" not in segment


def test_a_grant_is_data() -> None:
    """A-7: the fields that gateways look at."""
    grant = _authorizer().grant_of_token(_root_token(_HOST + "/q"), _HOST + "/Q/$DeadLetterQueue")
    assert isinstance(grant, Grant)
    assert (grant.rule_name, grant.scope, grant.audience) == (_ROOT.name, ("q",), ("q", "$deadletterqueue"))
    assert grant.expires_at_ms == (_NOW_S + 3600) * 1000
