"""Timers of servers that share their stores."""

from __future__ import annotations

from typing import Final

from tests.timers.scan import LOOKS, RINGS, WAITS
from tests.timers.timer import Timer, timers_in

_STILL: Final = "fault/test_postgres_takeover::test_while_the_database_stands_still_no_lease_changes_hands"
_STOPPED: Final = "fault/test_postgres_takeover::test_an_owner_that_stops_leaves_its_stores_at_once"

CLUSTER_TIMERS: Final = (
    *timers_in(
        "busway/cluster/cluster_node.py",
        Timer(
            "ClusterNode._beat",
            RINGS,
            "the loop's pulse for whoever renews leases",
            "`stop`",
            "the pulse is noted, leases are looked at",
            _STOPPED,
            longest_s=0.2,
        ),
        Timer(
            "ClusterNode._look_at_leases",
            LOOKS,
            "leases that were not renewed in time",
            "a renewal",
            "it is told; nothing is handed out until they are",
            _STILL,
        ),
        Timer(
            "ClusterNode.owned",
            WAITS,
            "databases behind the first one",
            "their stores being ours, too",
            "what there is is served; the others follow",
            "unit/cluster/test_cluster_node::test_who_has_the_first_database_takes_the_others",
        ),
    ),
    *timers_in(
        "busway/cluster/lease.py",
        Timer(
            "LeaseWatch.may_take",
            LOOKS,
            "another node's silence",
            "its next beat",
            "its stores may be taken",
            "unit/cluster/test_lease::test_a_candidate_waits_a_whole_lease_from_the_first_answer_on",
            longest_s=60,
        ),
    ),
    *timers_in(
        "busway/cluster/lease_keeper.py",
        Timer(
            "LeaseKeeper.stop",
            WAITS,
            "the last word to the database",
            "its answer",
            "the server stops; its stores are free when its lease has ended",
            _STOPPED,
            longest_s=2,
        ),
    ),
)
