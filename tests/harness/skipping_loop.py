"""An event loop whose time a test can let pass: timers ring as if one had waited for them; sockets work as ever."""

import asyncio


class SkippingLoop(asyncio.SelectorEventLoop):
    """`skip` moves the loop's clock on; whatever was to happen in between happens in the next turns, in order."""

    def __init__(self) -> None:
        self._skipped_s = 0.0
        super().__init__()

    def time(self) -> float:
        return super().time() + self._skipped_s

    def skip(self, seconds: float) -> None:
        self._skipped_s += seconds
