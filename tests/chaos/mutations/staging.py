"""Faults against writes in two phases: lost, double, or seen before their decision."""

from __future__ import annotations

from typing import Final

from tests.chaos.mutations.fault import Fault

STAGING: Final = (
    Fault(
        "rows leave with a commit that fails",
        "Staging: what its commit did not take is still in the stage",
        "busway/staging/publisher.py",
        """        if piece.error is None:
            self.rows_published""",
        """        if True:
            self.rows_published""",
        ("tests/unit/staging/test_changes_meanwhile.py",),
    ),
    Fault(
        "a stage is forgotten before it is durable elsewhere",
        "Staging: a decision names a stage until its last rows are durably out of every store",
        "busway/staging/publisher.py",
        """        return (stage_id, store_name) in self._left
""",
        """        return False
""",
        ("tests/unit/staging/test_changes_meanwhile.py",),
    ),
    Fault(
        "a repeated part is staged twice",
        "Staging: a repetition finds its first try",
        "busway/staging/stagings.py",
        """        has_it = {name for name, note in notes.items() if note.part >= part.number}
""",
        """        has_it: set[str] = set()
""",
        ("tests/unit/staging/test_stage_and_decide.py",),
    ),
    Fault(
        "the checkpoint may go back",
        "Staging: a lower batch than the last one is refused",
        "busway/staging/decisions.py",
        """        if decision.batch > batch:
            raise""",
        """        if decision.batch > batch + 1_000_000:
            raise""",
        ("tests/unit/staging/test_stage_and_decide.py",),
    ),
    Fault(
        "an abort drops what is decided",
        "Staging: abort spares what a decision names",
        "busway/staging/decider.py",
        """        if stage.is_decided or self._decisions.of_stage(stage.id) is not None:
            return False
""",
        "",
        ("tests/unit/staging/test_stage_and_decide.py",),
    ),
    Fault(
        "another entity of the same name takes the rows",
        "E-86: an entity that was made again is another one",
        "busway/staging/targets.py",
        """        if row is None or row.row_key != name.row_key or row.incarnation != name.incarnation:
            return None
""",
        """        if row is None:
            return None
""",
        ("tests/unit/staging/test_changes_meanwhile.py",),
    ),
    Fault(
        "staged bytes are free",
        "S-9: what is staged counts against the entity's size",
        "busway/broker/fragment/intake.py",
        """        return reserved.get(fragment.id, 0) if reserved else 0
""",
        """        return 0
""",
        ("tests/unit/staging/test_stage_and_decide.py",),
    ),
    Fault(
        "stages are nobody's",
        "Staging: what lies in a store and belongs to a stage is not dropped when the store is opened",
        "busway/broker/namespace/stores.py",
        """ | contents.staged.keys_in(name)
""",
        """
""",
        ("tests/unit/staging/test_stage_and_decide.py",),
    ),
)
