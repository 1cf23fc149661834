"""An event loop whose time a test can let pass: timers ring as if one had waited for them; sockets work as ever."""

import asyncio


class SkippingLoop(asyncio.SelectorEventLoop):
    """`skip` moves the loop's clock on; whatever was to happen in between happens in the next turns, in order."""

    def __init__(self, *, stands_still: bool = False) -> None:
        """`stands_still`: no time passes but what is skipped."""
        self._skipped_s = 0.0
        self._stands_still = stands_still
        super().__init__()

    def time(self) -> float:
        return self._skipped_s if self._stands_still else super().time() + self._skipped_s

    def skip(self, seconds: float) -> None:
        self._skipped_s += seconds
