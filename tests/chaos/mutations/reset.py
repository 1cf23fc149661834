"""Faults of a bus that is made as new, and of what is shipped."""

from __future__ import annotations

from typing import Final

from tests.chaos.mutations.fault import Fault

RESET: Final = (
    Fault(
        "a reset that everybody may ask for",
        "A-9: only whoever may Manage the namespace empties it",
        "busway/gateway/http/router.py",
        """    yield Row("$reset", {"POST": reset.reset}, _manages)
""",
        """    yield Row("$reset", {"POST": reset.reset})
""",
        ("tests/unit/gateway/test_http_reset.py",),
    ),
    Fault(
        "a reset that leaves keys behind",
        "Reset: rules of the namespace go, but for the root rule",
        "busway/broker/namespace/entity_deletion.py",
        """    if root != present.rules:
""",
        """    if not root:
""",
        ("tests/unit/staging/test_reset.py",),
    ),
    Fault(
        "a reset that leaves fragments behind",
        "Reset: no store holds anything of before",
        "busway/broker/namespace/entity_deletion.py",
        """    if is_home or keeper.join(dropping(fragments)):
""",
        """    if is_home:
""",
        ("tests/unit/staging/test_reset.py",),
    ),
    Fault(
        "a reset that remembers writes",
        "Reset: a job of the next test may write under the same name",
        "busway/broker/namespace/entity_deletion.py",
        """    await contents.staged.forget_all()
""",
        "",
        ("tests/unit/staging/test_reset.py",),
    ),
    Fault(
        "a shipped twin that is not compared with its sources",
        "Shipping: a stale twin never runs, also in an installed package",
        "busway/compiled.py",
        """        return self.sources == digests(self.sources)
""",
        """        return self.interpreter == SUFFIX or self.sources == digests(self.sources)
""",
        ("tests/unit/test_compiled.py",),
    ),
)
