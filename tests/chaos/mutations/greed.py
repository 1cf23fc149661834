"""One client against all others (B11, B12, B14–B18 of the review), brought back one by one."""

from __future__ import annotations

from typing import Final

from tests.chaos.mutations.fault import Fault

GREED: Final = (
    Fault(
        "a stranger's thousand links",
        "B11: eight links before the first token",
        "busway/amqp/allowance.py",
        """        self.links_max = settings.links_max if stranger is None else stranger.links_max
""",
        """        self.links_max = settings.links_max
""",
        ("tests/unit/gateway/test_amqp_strangers.py::test_a_stranger_has_four_sessions_and_eight_links",),
    ),
    Fault(
        "a stranger's many unfinished deliveries",
        "B11: one at a time",
        "busway/amqp/allowance.py",
        """        if stranger is not None and self._partials >= stranger.partials_max:
            return False
""",
        "",
        ("tests/unit/gateway/test_amqp_strangers.py::test_a_stranger_has_one_unfinished_delivery",),
    ),
    Fault(
        "a stranger's large frames",
        "B11: 64 KiB that are not finished, by the frame's size field",
        "busway/amqp/allowance.py",
        """        return min(self._settings.max_frame_size, stranger.unfinished_bytes_max - self._partial_bytes)
""",
        """        return self._settings.max_frame_size
""",
        ("tests/unit/gateway/test_amqp_strangers.py::test_a_strangers_frames_and_deliveries_share_64_kib",),
    ),
    Fault(
        "attaches are kept whole",
        "B11: of an attach only what is used is kept",
        "busway/amqp/link.py",
        """            allowance.release_attach(self.attach_bytes - kept)
""",
        """            kept = self.attach_bytes
""",
        (
            "tests/unit/gateway/test_amqp_strangers.py::test_of_an_attach_only_its_name_and_addresses_are_kept",
        ),
    ),
    Fault(
        "a publish in one turn",
        "B12: matching and row building are cut into slices",
        "busway/broker/fragment/turns.py",
        "        return self.left <= 0\n",
        "        return False\n",
        ("tests/unit/broker/test_publish_slices.py::test_a_batch_takes_many_turns_and_commits_once",),
    ),
    Fault(
        "copies without a limit",
        "B12: above a limit a publish is refused with its numbers",
        "busway/broker/entity/distribution.py",
        "        self.copies_max = fragment.runtime.limits.publish_copies_max\n",
        "        self.copies_max = 1 << 60\n",
        (
            "tests/unit/broker/test_publish_in_parts.py::test_a_batch_of_too_many_copies_is_refused_with_numbers",
        ),
    ),
    Fault(
        "answers without a bound",
        "B14: refused above 16 MiB, before anything is locked",
        "busway/broker/fragment/read_requests.py",
        """        if len(wanted) > 1:  # one can always be had
""",
        """        if len(wanted) > 1_000_000:
""",
        ("tests/unit/broker/test_fetched_bytes.py",),
    ),
    Fault(
        "each fragment's answer by itself",
        "B14: the fragments of an entity count together",
        "busway/broker/entity/fragment_group.py",
        """        check_fits(numbers, sizes, self._runtime.limits.fetch_bytes_max)
""",
        "",
        ("tests/unit/broker/test_fetched_bytes.py",),
    ),
    Fault(
        "fetched in one page",
        "B14: what is asked for by number is read in pages",
        "busway/store/reads.py",
        """_BY_NUMBER_BYTES: Final = 1 << 20
""",
        """_BY_NUMBER_BYTES: Final = 1 << 40
""",
        ("tests/unit/broker/test_fetched_bytes.py::test_many_bytes_are_read_in_pages",),
    ),
    Fault(
        "answers ignore the brake",
        "B15: who does not read is not answered",
        "busway/gateway/amqp/nodes/request_link.py",
        """            if self._host.output_room_bytes() <= 0:
                self._host.when_output_drains(self)
                return
""",
        "",
        ("tests/unit/gateway/test_amqp_answers_brake.py",),
    ),
    Fault(
        "answers wait without a bound",
        "B15: those without credit are bounded in bytes",
        "busway/gateway/amqp/nodes/request_link.py",
        """        while self.unsent_bytes > bytes_max:
            stuck""",
        """        while self.unsent_bytes > 1_000 * bytes_max:
            stuck""",
        ("tests/unit/gateway/test_amqp_answers_brake.py::test_answers_without_credit_are_bounded_in_bytes",),
    ),
    Fault(
        "each token looks at every link",
        "B16: only what a token concerns is looked at",
        "busway/gateway/amqp/carrier.py",
        """            if any(path[:count] in audiences for path in paths for count in range(len(path) + 1))
""",
        """            if paths is not None or audiences
""",
        ("tests/unit/gateway/test_amqp_rights_check.py",),
    ),
    Fault(
        "rights are looked at in one turn",
        "B16: in slices",
        "busway/gateway/amqp/rights_check.py",
        """        for _ in range(min(SLICE_LINKS, len(self._links))):
""",
        """        for _ in range(len(self._links)):
""",
        ("tests/unit/gateway/test_amqp_rights_check.py",),
    ),
    Fault(
        "rules that changed end nothing",
        "B16: whoever holds grants of a level is found",
        "busway/gateway/amqp/rights_check.py",
        """        if rules != self._seen.get(key):
""",
        """        if rules is None:
""",
        ("tests/unit/gateway/test_amqp_rights_check.py",),
    ),
    Fault(
        "a slow read keeps what is written",
        "B17: only what corrects the read is kept",
        "busway/store/spans.py",
        """        if len(shadows) < 2:
            return
        reported = shadows[-2]
""",
        """        if shadows:
            return
        reported = shadows[-2]
""",
        ("tests/unit/store/test_slow_reads.py",),
    ),
    Fault(
        "a slow read is not corrected",
        "B17: it is still corrected by every batch since it began",
        "busway/store/shadow.py",
        """            self.removed[place].update(removed)
""",
        """            self.removed[place].intersection_update(removed)
""",
        ("tests/unit/store/test_slow_reads.py",),
    ),
    Fault(
        "each change walks all mortals",
        "B18: a change costs one entry",
        "busway/broker/namespace/auto_delete.py",
        '''        """A queue was created or updated."""
        self._lay(key)
''',
        '''        """A queue was created or updated."""
        for each in self._owner.mortal_keys():
            self._lay(each)
''',
        ("tests/unit/broker/test_many_mortals.py",),
    ),
    Fault(
        "figures in one turn",
        "B18: a scrape is cut into slices",
        "busway/signals/exposition.py",
        """_SLICE_ENTITIES: Final = 200
""",
        """_SLICE_ENTITIES: Final = 200_000
""",
        ("tests/unit/signals/test_many_figures.py",),
    ),
    Fault(
        "each scrape by itself",
        "B18: two at once share one",
        "busway/signals/exposition.py",
        "        if self._scrape is None:\n            named",
        "        if self._hubs is self._hubs:\n            named",
        ("tests/unit/gateway/test_http_metrics.py::test_those_who_ask_at_once_share_one_scrape",),
    ),
)
