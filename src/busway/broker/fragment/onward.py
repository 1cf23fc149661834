"""Takes what arrives in a fragment on to another entity, instead of handing it to receivers (F-1). How: `forward`."""

from __future__ import annotations

from mypy_extensions import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class Onward:
    """Of one fragment."""

    def __init__(self) -> None:
        #: Numbers of rows that are on their way.
        self.moving: set[int] = set()

    def wake(self) -> None:
        """Something may have arrived."""
        raise NotImplementedError

    def arrived(self, numbers: list[int]) -> None:
        """Rows have come with numbers they had before: dead letters, in any order."""
        raise NotImplementedError

    def stop(self) -> None:
        """The fragment is out of use."""
        raise NotImplementedError
