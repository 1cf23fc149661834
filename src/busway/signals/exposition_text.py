"""The text that Prometheus reads (exposition format 0.0.4), written line by line.

Hundreds of thousands of lines are asked for at a time, and most of what a library does for each of them (an object,
labels sorted, numbers dressed) is the same for all lines of an entity. So an entity's labels are written once, and a
line is three pieces put together.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate

from busway.signals.metric_names import Metric


class ExpositionText:
    """Family after family; the lines of one must stand together."""

    def __init__(self) -> None:
        self._families: list[bytes] = []

    def add(self, metric: Metric, samples: Iterable[tuple[str, float]]) -> None:
        """`samples`: labels as text, and the value."""
        name = metric.name
        lines = [f"{name}{labels} {float(value)!r}\n" for labels, value in samples]
        self._families.append((_head(metric) + "".join(lines)).encode())

    def add_histogram(
        self, metric: Metric, limits: Sequence[str], rows: Iterable[tuple[str, Sequence[int], float]]
    ) -> None:
        """`rows`: labels as text, how many fell into each step, and their sum."""
        name = metric.name
        lines: list[str] = []
        for labels, steps, total in rows:
            begin = f"{name}_bucket{labels[:-1]},le="
            count = 0
            for limit, count in zip(limits, accumulate(steps), strict=True):
                lines.append(f'{begin}"{limit}"}} {float(count)!r}\n')
            lines.append(f"{name}_count{labels} {float(count)!r}\n{name}_sum{labels} {float(total)!r}\n")
        self._families.append((_head(metric) + "".join(lines)).encode())

    def text(self) -> bytes:
        return b"".join(self._families)


def labels_text(names: Sequence[str], values: Sequence[str]) -> str:
    """The labels of a sample in braces; nothing where there are none."""
    if not names:
        return ""
    pairs = [f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True)]
    return "{" + ",".join(pairs) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _head(metric: Metric) -> str:
    meaning = metric.meaning.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {metric.name} {meaning}\n# TYPE {metric.name} {metric.kind}\n"
