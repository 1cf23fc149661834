"""Every timer of the sources: `test_timer_table` compares it with them."""

from __future__ import annotations

from typing import Final

from tests.timers.broker_timers import BROKER_TIMERS
from tests.timers.client_timers import CLIENT_TIMERS
from tests.timers.cluster_timers import CLUSTER_TIMERS
from tests.timers.server_timers import SERVER_TIMERS

TIMERS: Final = (*BROKER_TIMERS, *SERVER_TIMERS, *CLUSTER_TIMERS, *CLIENT_TIMERS)
