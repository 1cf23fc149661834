"""Who gets SIGINT. A new session takes it for itself, so that Ctrl-C ends what Spark is doing. That is right where
nobody else wants it; a program that ends in good order on the first Ctrl-C keeps its own handler."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def kept_interrupt() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if _is_ones_own(before) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def _is_ones_own(handler: object) -> bool:
    """Not what every process of Python begins with. None: it was not set from Python and cannot be set again."""
    return handler not in (None, signal.SIG_DFL, signal.default_int_handler)
