"""The table: what was measured, against what, and whether the bar holds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    metric: str
    measured: str
    peer: str
    ratio: str
    bar: str
    holds: bool | None  # None: printed for information


class Report:
    def __init__(
        self,
        headline: str,
        remark: str = "Compared with RabbitMQ's quorum queue in the same run, unless the metric names another.",
    ) -> None:
        self._headline = headline
        self._remark = remark
        self._rows: list[Row] = []

    def at_least(
        self, metric: str, value: float, peer: float | None, factor: float, unit: str = "/s"
    ) -> None:
        """A rate that must be at least `factor` times the peer's."""
        if peer is None:
            self.note(metric, f"{value:,.0f}{unit}")
            return
        ratio = value / peer
        shown = (f"{value:,.0f}{unit}", f"{peer:,.0f}{unit}", f"{ratio:.2f}x")
        self._rows.append(Row(metric, *shown, f">= {factor:g}x", ratio >= factor))

    def at_most(self, metric: str, value: float, peer: float | None, factor: float, unit: str) -> None:
        """A cost that must be at most `factor` times the peer's."""
        if peer is None:
            self.note(metric, f"{value:.2f} {unit}")
            return
        ratio = value / peer
        shown = (f"{value:.2f} {unit}", f"{peer:.2f} {unit}", f"{ratio:.2f}x")
        self._rows.append(Row(metric, *shown, f"<= {factor:.3g}x", ratio <= factor))

    def beside(self, metric: str, value: float, peer: float | None, unit: str) -> None:
        """Both figures and their ratio, without a bar."""
        if peer is None:
            self.note(metric, _amount(value, unit))
            return
        shown = (_amount(value, unit), _amount(peer, unit), f"{value / peer:.2f}x")
        self._rows.append(Row(metric, *shown, "", None))

    def within(self, metric: str, value: float, limit: float, unit: str) -> None:
        self._rows.append(Row(metric, f"{value:.2f} {unit}", "", "", f"<= {limit:g} {unit}", value <= limit))

    def no_less(self, metric: str, value: float, limit: float, unit: str) -> None:
        """A rate that must reach a figure, whatever the peer does."""
        bar = f">= {_amount(limit, unit)}"
        self._rows.append(Row(metric, _amount(value, unit), "", "", bar, value >= limit))

    def note(self, metric: str, text: str) -> None:
        self._rows.append(Row(metric, text, "", "", "", None))

    def bar_holds(self) -> bool:
        return all(row.holds is not False for row in self._rows)

    def text(self) -> str:
        lines = [
            "# Benchmark",
            "",
            self._headline,
            "",
            self._remark,
            "",
            "| metric | Busway | compared with | ratio | bar | holds |",
            "|---|---|---|---|---|---|",
        ]
        for row in self._rows:
            verdict = {True: "yes", False: "**no**", None: ""}[row.holds]
            lines.append(
                f"| {row.metric} | {row.measured} | {row.peer} | {row.ratio} | {row.bar} | {verdict} |"
            )
        return "\n".join(lines) + "\n"


def _amount(value: float, unit: str) -> str:
    """Rates are large and without fractions."""
    return f"{value:,.0f}{unit}" if unit == "/s" else f"{value:.2f} {unit}"
