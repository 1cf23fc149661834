"""The tables, pair by pair."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from itertools import product
from typing import Any

import pytest

from busway.amqp.states import (
    CONNECTION_TABLE,
    LINK_TABLE,
    SASL_TABLE,
    SESSION_TABLE,
    ConnectionInput,
    ConnectionState,
    IllegalMove,
    LinkInput,
    LinkState,
    SaslInput,
    SaslState,
    SessionInput,
    SessionState,
    advance,
)

MACHINES: list[Any] = [
    pytest.param(
        SASL_TABLE, SaslState, SaslInput, SaslState.START, {SaslState.PASSED, SaslState.FAILED}, id="sasl"
    ),
    pytest.param(
        CONNECTION_TABLE,
        ConnectionState,
        ConnectionInput,
        ConnectionState.START,
        {ConnectionState.END},
        id="connection",
    ),
    pytest.param(
        SESSION_TABLE, SessionState, SessionInput, SessionState.UNMAPPED, {SessionState.ENDED}, id="session"
    ),
    pytest.param(LINK_TABLE, LinkState, LinkInput, LinkState.DETACHED, {LinkState.OVER}, id="link"),
]
Table = Mapping[tuple[IntEnum, IntEnum], IntEnum]


@pytest.mark.parametrize(("table", "states", "inputs", "first", "last"), MACHINES)
def test_every_pair_is_a_move_of_the_table_or_a_violation(
    table: Table, states: type[IntEnum], inputs: type[IntEnum], first: IntEnum, last: set[IntEnum]
) -> None:
    del first, last
    for state, given in product(states, inputs):
        if (state, given) in table:
            assert advance(table, state, given) in states
        else:
            with pytest.raises(IllegalMove, match=rf"{given.name}.*{state.name}"):
                advance(table, state, given)


@pytest.mark.parametrize(("table", "states", "inputs", "first", "last"), MACHINES)
def test_what_carries_a_machine_may_go_in_every_state(
    table: Table, states: type[IntEnum], inputs: type[IntEnum], first: IntEnum, last: set[IntEnum]
) -> None:
    del first
    for state in states:
        assert table[state, inputs["CUT"]] in last


@pytest.mark.parametrize(("table", "states", "inputs", "first", "last"), MACHINES)
def test_nothing_leaves_the_end(
    table: Table, states: type[IntEnum], inputs: type[IntEnum], first: IntEnum, last: set[IntEnum]
) -> None:
    del states, first
    for state, given in product(last, inputs):
        if given.name != "CUT":
            assert (state, given) not in table


@pytest.mark.parametrize(("table", "states", "inputs", "first", "last"), MACHINES)
def test_every_state_can_be_reached(
    table: Table, states: type[IntEnum], inputs: type[IntEnum], first: IntEnum, last: set[IntEnum]
) -> None:
    del inputs, last
    reached = {first}
    while more := {after for (before, _), after in table.items() if before in reached} - reached:
        reached |= more
    assert reached == set(states)


@pytest.mark.parametrize(
    ("table", "state", "given"),
    [
        (CONNECTION_TABLE, ConnectionState.HDR_EXCH, ConnectionInput.RECV_FRAME),
        (CONNECTION_TABLE, ConnectionState.OPENED, ConnectionInput.RECV_OPEN),
        (CONNECTION_TABLE, ConnectionState.HDR_EXCH, ConnectionInput.RECV_CLOSE),
        (SESSION_TABLE, SessionState.MAPPED, SessionInput.RECV_BEGIN),
        (SESSION_TABLE, SessionState.END_RCVD, SessionInput.RECV_FRAME),
        (LINK_TABLE, LinkState.ATTACHED, LinkInput.RECV_ATTACH),
        (LINK_TABLE, LinkState.DETACH_RCVD, LinkInput.RECV_TRANSFER),
        (LINK_TABLE, LinkState.ATTACH_RCVD, LinkInput.SEND_TRANSFER),
        (SASL_TABLE, SaslState.OUTCOME_OWED, SaslInput.RECV_INIT),
        (SASL_TABLE, SaslState.INIT_AWAITED, SaslInput.SEND_OUTCOME_OK),
    ],
)
def test_known_dangers_have_no_row(table: Table, state: IntEnum, given: IntEnum) -> None:
    """Frames before open, a second login, an outcome without an init: each must be a violation."""
    with pytest.raises(IllegalMove):
        advance(table, state, given)
