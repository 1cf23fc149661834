"""The table: what was measured, against what, and whether the bar holds."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.bars import Bar

PEERS = (
    "Compared with RabbitMQ's quorum queue in the same run, unless the metric names another. RabbitMQ 3.10 speaks"
    " AMQP 1.0 through a plug-in that stands before AMQP 0-9-1; RabbitMQ 4, which has AMQP 1.0 at its core, is said"
    " to be 2 to 3 times as fast there. Artemis keeps its own defaults, its journal synced. CPU and bytes of every"
    " broker are counted until its store is idle again, checkpoints and whatever was put off included, and what it"
    " uses idle is taken off for that time. Where load generator and broker together use more than 1.9 cores, a rate"
    " tells how they share the machine: there the ratio of CPU decides, and the row says so."
)


@dataclass(frozen=True)
class Row:
    metric: str
    measured: str
    peer: str
    ratio: str
    bar: str
    holds: bool | None  # None: printed for information
    goal: str = ""


class Report:
    def __init__(self, headline: str, remark: str = PEERS) -> None:
        self._headline = headline
        self._remark = remark
        self._rows: list[Row] = []

    def at_least(
        self, metric: str, value: float, peer: float | None, factor: float | Bar, unit: str = "/s"
    ) -> None:
        """A rate that must be at least `factor` times the peer's."""
        if peer is None:
            self.note(metric, f"{value:,.0f}{unit}")
            return
        bar, ratio = _bar(factor), value / peer
        shown = (f"{value:,.0f}{unit}", f"{peer:,.0f}{unit}", f"{ratio:.2f}x")
        self._rows.append(Row(metric, *shown, f">= {bar.bar:g}x", ratio >= bar.bar, _goal(bar, ">=", "x")))

    def at_least_by_cpu(
        self, metric: str, rates: tuple[float, float], costs_us: tuple[float, float], factor: float | Bar
    ) -> None:
        """As `at_least` on a machine that is full: ours and the peer's; by how much less CPU it takes."""
        bar, ratio = _bar(factor), costs_us[1] / costs_us[0]
        shown = (
            f"{rates[0]:,.0f}/s",
            f"{rates[1]:,.0f}/s",
            f"{rates[0] / rates[1]:.2f}x; by CPU {ratio:.2f}x",
        )
        words = f">= {bar.bar:g}x by CPU, the machine is full"
        self._rows.append(Row(metric, *shown, words, ratio >= bar.bar, _goal(bar, ">=", "x")))

    def at_most(
        self,
        metric: str,
        value: float,
        peer: float | None,
        factor: float | Bar,
        unit: str,
        ratio: float | None = None,
    ) -> None:
        """A cost that must be at most `factor` times the peer's. `ratio`: the median of those of pairs, where both
        were measured in pairs."""
        if peer is None:
            self.note(metric, f"{value:.2f} {unit}")
            return
        bar, ratio = _bar(factor), value / peer if ratio is None else ratio
        shown = (f"{value:.2f} {unit}", f"{peer:.2f} {unit}", f"{ratio:.2f}x")
        self._rows.append(Row(metric, *shown, f"<= {bar.bar:.3g}x", ratio <= bar.bar, _goal(bar, "<=", "x")))

    def beside(self, metric: str, value: float, peer: float | None, unit: str) -> None:
        """Both figures and their ratio, without a bar."""
        if peer is None:
            self.note(metric, _amount(value, unit))
            return
        shown = (_amount(value, unit), _amount(peer, unit), f"{value / peer:.2f}x")
        self._rows.append(Row(metric, *shown, "", None))

    def within(self, metric: str, value: float, limit: float | Bar, unit: str) -> None:
        bar = _bar(limit)
        words = f"<= {bar.bar:g} {unit}"
        goal = _goal(bar, "<=", f" {unit}")
        self._rows.append(Row(metric, f"{value:.2f} {unit}", "", "", words, value <= bar.bar, goal))

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
            "| metric | Busway | compared with | ratio | bar | holds | goal |",
            "|---|---|---|---|---|---|---|",
        ]
        for row in self._rows:
            verdict = {True: "yes", False: "**no**", None: ""}[row.holds]
            cells = (row.metric, row.measured, row.peer, row.ratio, row.bar, verdict, row.goal)
            lines.append(f"| {' | '.join(cells)} |")
        return "\n".join(lines) + "\n"


def _bar(given: float | Bar) -> Bar:
    return given if isinstance(given, Bar) else Bar(given)


def _goal(bar: Bar, sign: str, unit: str) -> str:
    """With what it was before there was a bar, where that is known."""
    parts = [] if bar.goal is None else [f"{sign} {bar.goal:g}{unit}"]
    parts += [f"was {bar.today}"] if bar.today else []
    return ", ".join(parts)


def _amount(value: float, unit: str) -> str:
    """Rates are large and without fractions."""
    return f"{value:,.0f}{unit}" if unit == "/s" else f"{value:.2f} {unit}"
