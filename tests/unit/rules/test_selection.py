"""All rules of a topic at once, against the same rules one by one."""

from dataclasses import dataclass, field
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from busway.rules.compiled_rule import CompiledSqlFilter, compiled_filter
from busway.rules.rule import (
    CorrelationFilter,
    FalseFilter,
    Filter,
    FilterError,
    Rule,
    RuleSyntaxError,
    SqlAction,
    SqlFilter,
    TrueFilter,
    TypedValue,
)
from busway.rules.selection import Selection
from busway.rules.subject import Missing, Subject, Value
from tests.harness.examples import examples_of
from tests.unit.rules.property_bag import PropertyBag, an_id

ACTION: Final = SqlAction("SET seen = TRUE")
Row = tuple[str, bool, list[str], list[str]]


def rows(selection: Selection, message: Subject) -> list[Row]:
    return [
        (match.owner, match.is_plain, [rule.name for rule in match.acting], [str(e) for e in match.errors])
        for match in selection.matching(message)
    ]


def selection_of(*rules: tuple[str, Rule]) -> Selection:
    selection = Selection(an_id)
    for owner, rule in rules:
        selection.add(owner, rule)
    return selection


def test_plain_rules_give_one_copy_and_acting_rules_one_each() -> None:
    """T-4: two rules with an action and three without make three copies."""
    selection = selection_of(
        ("s", Rule("plain 1", SqlFilter("color = 'red'"))),
        ("s", Rule("acting 1", SqlFilter("size > 5"), ACTION)),
        ("s", Rule("plain 2", TrueFilter())),
        ("s", Rule("acting 2", CorrelationFilter(label="x"), ACTION)),
        ("s", Rule("plain 3", CorrelationFilter(label="x"))),
        ("s", Rule("acting 3", TrueFilter(), ACTION)),
        ("s", Rule("acting never", FalseFilter(), ACTION)),
    )
    message = PropertyBag({"color": "red", "size": 6}, {"Label": "x"})
    assert rows(selection, message) == [("s", True, ["acting 1", "acting 2", "acting 3"], [])]
    assert rows(selection, PropertyBag()) == [("s", True, ["acting 3"], [])]


def test_an_acting_rule_brings_its_action() -> None:
    """T-4: an acting rule brings its action."""
    selection = selection_of(("s", Rule("acting", TrueFilter(), ACTION)))
    copy = PropertyBag()
    selection.matching(copy)[0].acting[0].action.apply(copy)
    assert copy.user_properties == {"seen": True}


def test_without_rules_nobody_gets_anything() -> None:
    """T-5: without rules nobody gets anything."""
    selection = selection_of(("s", Rule("r", TrueFilter())))
    assert len(selection.matching(PropertyBag())) == 1
    selection.remove("s", "r")
    assert rows(selection, PropertyBag()) == []


def test_owners_come_in_the_order_of_their_first_rule() -> None:
    """T-1: whatever kind of rule selects them."""
    selection = selection_of(
        ("d", Rule("r", SqlFilter("size > 1"))),
        ("c", Rule("r", TrueFilter())),
        ("b", Rule("r", CorrelationFilter(label="x"))),
        ("a", Rule("r", SqlFilter("color = 'red'"))),
        ("e", Rule("r", TrueFilter())),
        ("d", Rule("later", TrueFilter())),
    )
    message = PropertyBag({"color": "red", "size": 2}, {"Label": "x"})
    assert [match.owner for match in selection.matching(message)] == ["d", "c", "b", "a", "e"]
    assert [match.owner for match in selection.matching(PropertyBag())] == ["d", "c", "e"]
    selection.remove_owner("d")
    selection.add("d", Rule("again", TrueFilter()))
    assert [match.owner for match in selection.matching(PropertyBag())] == ["c", "e", "d"]


def test_a_failed_filter_is_reported_for_its_owner_only() -> None:
    """T-60: the sentence names the rule; other rules and other owners are not affected."""
    selection = selection_of(
        ("a", Rule("bad", SqlFilter("1 / size = 1"))),
        ("a", Rule("good", TrueFilter())),
        ("b", Rule("anchored", SqlFilter("color = 'red' AND 1 / size = 1"))),
        ("c", Rule("other", SqlFilter("color = 'blue' AND 1 / size = 1"))),
    )
    assert rows(selection, PropertyBag({"color": "red", "size": 0})) == [
        ("a", True, [], ["Rule 'bad': An integer was divided by zero."]),
        ("b", False, [], ["Rule 'anchored': An integer was divided by zero."]),
    ]


def test_a_wrong_rule_changes_nothing() -> None:
    """T-36: a wrong rule changes nothing."""
    selection = selection_of(("a", Rule("1", TrueFilter())))
    for wrong in (
        Rule("2", SqlFilter("x >")),
        Rule("2", CorrelationFilter()),
        Rule("2", TrueFilter(), SqlAction("SET")),
    ):
        with pytest.raises(RuleSyntaxError):
            selection.add("b", wrong)
    assert rows(selection, PropertyBag()) == [("a", True, [], [])]


def test_removing_what_is_not_there_is_a_mistake() -> None:
    """T-11: the broker asks first."""
    selection = selection_of(("a", Rule("1", TrueFilter())))
    for owner, name in (("a", "2"), ("b", "1")):
        with pytest.raises(KeyError):
            selection.remove(owner, name)


class CountingBag(PropertyBag):
    """Counts what is asked of it."""

    def __init__(self, user: dict[str, Value]) -> None:
        super().__init__(user)
        self.asked = 0

    def user(self, folded_name: str) -> Value | Missing:
        self.asked += 1
        return super().user(folded_name)


@pytest.mark.parametrize("count", [1, 1_000, 100_000])
def test_one_look_up_finds_any_number_of_correlation_filters(count: int) -> None:
    """T-44, E-72: a message is asked once for each shape, not once for each filter."""
    selection = Selection(an_id)
    for number in range(count):
        filter_ = CorrelationFilter(properties=(("x", TypedValue("int", number)),))
        selection.add(f"s{number % 2_000}", Rule(f"r{number}", filter_))
    message = CountingBag({"x": 0})
    assert rows(selection, message) == [("s0", True, [], [])]
    assert message.asked == 1


def test_one_look_up_finds_any_number_of_anchored_filters() -> None:
    """T-44: SQL filters too, where an equality allows it."""
    selection = Selection(an_id)
    for number in range(2_000):
        selection.add(f"s{number}", Rule("a", SqlFilter(f"x = {number} AND y > 1")))
    message = CountingBag({"x": 0, "y": 2})
    assert rows(selection, message) == [("s0", True, [], [])]
    assert message.asked == 2


def test_removed_filters_leave_nothing_behind() -> None:
    """T-44: neither a look-up nor the memory for it."""
    selection = Selection(an_id)
    for number in range(10):
        typed = TypedValue("int", number)
        selection.add("s", Rule(f"c{number}", CorrelationFilter(properties=(("x", typed),))))
        selection.add("s", Rule(f"a{number}", SqlFilter(f"x IN ({number}, 5)")))
        selection.add("s", Rule(f"b{number}", SqlFilter(f"x > {number}")))
    selection.remove_owner("s")
    message = CountingBag({"x": 5})
    assert rows(selection, message) == []
    assert message.asked == 0


ANCHORED: Final = [
    ("x = 1", True),
    ("1 = x", True),
    ("x = 'a' AND y > 1", True),
    ("y > 1 AND x = 'a'", True),
    ("(y > 1 AND z) AND x = 'a'", True),
    ("y LIKE 'a%' AND x = 'a'", True),
    ("sys.Label = 'a'", True),
    ("x IN ('a', 'b', 1)", True),
    ("x = @p", True),
    ("x = 9007199254740992", True),
    ("x = 9007199254740993", False),
    ("x = 1.0", False),
    ("x = TRUE", False),
    ("x = NULL", False),
    ("x = y", False),
    ("x <> 1", False),
    ("x > 1", False),
    ("x NOT IN ('a')", False),
    ("x IN ('a', y)", False),
    ("x IN ('a', NULL)", False),
    ("NOT x = 1", False),
    ("x = 1 OR y = 1", False),
    ("(x = 1 OR y = 1) AND z = 1", True),
    ("1 / y = 1 AND x = 1", False),
    ("-y = 1 AND x = 1", False),
    ("y LIKE z AND x = 1", False),
    ("y LIKE 'a' ESCAPE z AND x = 1", False),
    ("x = 1 AND 1 / y = 1", True),
    ("x + 0 = 1", False),
    ("p('x') = 1", False),
]


@pytest.mark.parametrize(("text", "is_anchored"), ANCHORED)
def test_a_filter_is_looked_up_only_by_a_part_that_decides(text: str, is_anchored: bool) -> None:
    """T-29, T-33: an equality that must hold, before which nothing can fail."""
    compiled = compiled_filter(SqlFilter(text, (("@p", TypedValue("string", "a")),)), an_id)
    assert isinstance(compiled, CompiledSqlFilter)
    assert (compiled.anchor is not None) is is_anchored


VALUES: Final[list[Value]] = [
    None, 0, 1, 2, True, False, 1.0, 0.5, float(1 << 53), 1 << 53, (1 << 53) + 1, "a", "b", "1", b"a",
]  # fmt: skip


@pytest.mark.parametrize("text", [text for text, _ in ANCHORED])
def test_a_look_up_answers_as_the_filter_itself(text: str) -> None:
    """T-29, T-30, T-33: for every pair of values, errors included; TRUE is not 1."""
    filter_ = SqlFilter(text, (("@p", TypedValue("string", "a")),))
    selection, compiled = selection_of(("s", Rule("r", filter_))), compiled_filter(filter_, an_id)
    for x in VALUES:
        for y in VALUES:
            message = PropertyBag({"x": x, "y": y, "z": True}, {"Label": "a"})
            try:
                expected: bool | str = compiled.matches(message)
            except FilterError as error:
                expected = f"Rule 'r': {error}"
            found = [row[3][0] if row[3] else row[1] for row in rows(selection, message)]
            assert found == ([expected] if expected else []), (x, y)


FIXED: Final = [
    ("1=1", True),
    ("1=0", False),
    ("'a' LIKE 'a'", True),
    ("TRUE OR NULL", True),
    ("NULL", False),
]


@pytest.mark.parametrize(("text", "is_true"), FIXED)
def test_a_filter_that_reads_nothing_is_decided_once(text: str, is_true: bool) -> None:
    """E-73: `1=1` costs what a true filter costs, however it was written."""
    selection = selection_of(("s", Rule("r", SqlFilter(text))))
    answer = selection.matching(PropertyBag())
    assert len(answer) == is_true
    assert selection.matching(PropertyBag({"x": 1})) is answer


def test_a_filter_that_always_fails_fails_for_every_message() -> None:
    """T-29, T-60: it is not decided when it is made."""
    selection = selection_of(("s", Rule("r", SqlFilter("1 / 0 = 1"))))
    assert [row[3] for row in rows(selection, PropertyBag())] == [
        ["Rule 'r': An integer was divided by zero."]
    ]


# -- against a model


@dataclass
class Model:
    """Every rule for itself, in lists."""

    rules: list[tuple[str, Rule]] = field(default_factory=list)
    owners: list[str] = field(default_factory=list)

    def add(self, owner: str, rule: Rule) -> None:
        self.rules.append((owner, rule))
        if owner not in self.owners:
            self.owners.append(owner)

    def remove(self, owner: str, name: str) -> None:
        self.rules = [(o, r) for o, r in self.rules if (o, r.name) != (owner, name)]
        if all(o != owner for o, _ in self.rules):
            self.owners.remove(owner)

    def rows(self, message: PropertyBag) -> list[Row]:
        found = [self._row(owner, message) for owner in self.owners]
        return [row for row in found if row[1] or row[2] or row[3]]

    def _row(self, owner: str, message: PropertyBag) -> Row:
        is_plain, acting, errors = False, [], []
        for rule in (rule for rule_owner, rule in self.rules if rule_owner == owner):
            try:
                matched = compiled_filter(rule.filter, an_id).matches(message)
            except FilterError as error:
                errors.append(f"Rule '{rule.name}': {error}")
                continue
            if matched and rule.action is None:
                is_plain = True
            elif matched:
                acting.append(rule.name)
        return owner, is_plain, acting, sorted(errors)


_filters: st.SearchStrategy[Filter] = (
    st.just(TrueFilter())
    | st.just(FalseFilter())
    | st.builds(SqlFilter, st.sampled_from([text for text, _ in ANCHORED if "@p" not in text] + ["1=1"]))
    | st.builds(
        CorrelationFilter,
        label=st.sampled_from(["a", "b"]),
        properties=st.lists(
            st.tuples(
                st.sampled_from("xyX"),
                st.sampled_from(
                    [
                        TypedValue("int", 1),
                        TypedValue("boolean", True),
                        TypedValue("double", 1.0),
                        TypedValue("string", "a"),
                    ]
                ),
            ),
            max_size=2,
        ).map(tuple),
    )
    | st.builds(
        CorrelationFilter,
        properties=st.tuples(st.tuples(st.sampled_from("xy"), st.just(TypedValue("long", 1)))),
    )
)
_values = st.sampled_from(
    [None, 0, 1, 2, True, False, 1.0, 0.5, float(1 << 53), (1 << 53) + 1, "a", "b", b"a"]
)
_messages = st.builds(
    PropertyBag,
    st.dictionaries(st.sampled_from("xyz"), _values),
    st.dictionaries(st.just("Label"), st.sampled_from(["a", "b"])),
)
_changes = st.lists(
    st.tuples(st.sampled_from("ABC"), st.sampled_from("123"), _filters, st.booleans(), st.integers(0, 3)),
    max_size=14,
)


@settings(max_examples=examples_of(300))
@given(_changes, st.lists(_messages, min_size=1, max_size=4))
def test_a_selection_answers_as_its_rules_do_one_by_one(
    changes: list[tuple[str, str, Filter, bool, int]], messages: list[PropertyBag]
) -> None:
    """T-1, T-4, T-30, T-33, T-43, T-44, T-60: look-ups change nothing, errors and order included."""
    selection, model = Selection(an_id), Model()
    for owner, name, filter_, acts, dice in changes:
        exists = any((o, r.name) == (owner, name) for o, r in model.rules)
        if exists:
            selection.remove(owner, name)
            model.remove(owner, name)
        if not exists or dice:
            rule = Rule(name, filter_, ACTION if acts else None)
            selection.add(owner, rule)
            model.add(owner, rule)
        for message in messages:
            found = [
                (o, plain, acting, sorted(errors)) for o, plain, acting, errors in rows(selection, message)
            ]
            assert found == model.rows(message)
