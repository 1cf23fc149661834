"""Serial number arithmetic (RFC 1982) over 32 bits: delivery ids, transfer ids and delivery counts wrap around.

Two numbers that lie exactly half the circle apart have no order; `less` and `compare` then call the first one
smaller, so that they stay total functions. Peers never come near: every window is far below 2**31.
"""

from typing import Final

MODULUS: Final = 1 << 32
HALF: Final = 1 << 31
_MASK: Final = MODULUS - 1


def add(number: int, count: int) -> int:
    """The number `count` steps after `number` (before it, when negative)."""
    return (number + count) & _MASK


def distance(start: int, end: int) -> int:
    """How many steps lead forward from `start` to `end`; negative when `end` lies behind."""
    steps = (end - start) & _MASK
    return steps if steps <= HALF else steps - MODULUS


def less(left: int, right: int) -> bool:
    """Whether `left` comes before `right`."""
    steps = (right - left) & _MASK
    return 0 < steps <= HALF


def compare(left: int, right: int) -> int:
    """-1, 0 or 1 as `left` comes before, is, or comes after `right`."""
    if left == right:
        return 0
    return -1 if less(left, right) else 1
