"""Publishing: copies for many subscriptions, and one copy past many filters.

Everything is made by a configuration file, which is how users make a hundred thousand rules too. The peer's nearest
relative is the headers exchange with queues bound to it; over AMQP 1.0 its bindings have no conditions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

from benchmarks.busway_server import BuswayServer
from benchmarks.generator import Load, Target, run
from benchmarks.measurement import Figure, measure, middle
from benchmarks.parts import Bench
from benchmarks.rabbitmq import QUEUE_TYPES
from benchmarks.report import Report

#: Subscriptions of a topic that all get a copy.
FAN_OUTS = (1, 10, 100)
#: Filters of a topic of which one matches.
CORRELATION_FILTERS = (1_000, 10_000, 100_000)
SQL_FILTERS = (1, 200, 2_000)
#: Rules of one subscription, where many filters are spread over subscriptions.
RULES_EACH = 1_000
FILTER_ROUNDS_EACH = 3
#: The bar: copies per second against the peer's quorum queues, with the subscriptions that it counts at.
FACTOR, FACTOR_AT = 2.0, 10
#: The bar: what the largest number of correlation filters may cost more than the smallest.
GROWTH_MAX_PERCENT = 20
#: The bar: what one more SQL filter may cost each message.
SQL_FILTER_US_MAX = 0.5
#: With the one that every message has, three.
PROPERTIES = ("n=7", "region=eu")

Json = dict[str, object]


def topics(bench: Bench, report: Report) -> None:
    """publishing to 1, 10 and 100 subscriptions, and past 100,000 correlation and 2,000 SQL filters"""
    file = bench.folder / "topics.json"
    file.write_text(json.dumps(_config(list(_fan_outs()))))
    folder = bench.folder / "topics"
    with (
        BuswayServer(folder / "compiled", "--config", str(file)) as compiled,
        BuswayServer(folder / "pure", "--config", str(file), pure=True) as pure,
    ):
        compiled.start()
        pure.start()
        _measure_fan_outs(bench, report, compiled, pure)
    _measure_filters(bench, report, bench.folder / "filters")


# -- fan-out


def _measure_fan_outs(bench: Bench, report: Report, compiled: BuswayServer, pure: BuswayServer) -> None:
    found: dict[tuple[str, int], list[Figure]] = {}
    for _ in range(bench.rounds):
        for count in FAN_OUTS:
            for name, server in (("compiled", compiled), ("pure", pure)):
                fan = (
                    server.target(f"fan-{count}"),
                    [server.target(f"fan-{count}/Subscriptions/s{number}") for number in range(count)],
                )
                found.setdefault((name, count), []).append(_published(bench, fan, 1))
            for queue_type in QUEUE_TYPES if bench.peer is not None else ():
                assert bench.peer is not None
                fan = bench.peer.fan_out(queue_type, count)
                found.setdefault((queue_type, count), []).append(_published(bench, fan, 5))
    _report_fan_outs(report, {key: middle(figures) for key, figures in found.items()})


def _published(bench: Bench, fan: tuple[Target, list[Target]], less: int) -> Figure:
    """Copies per second and CPU per copy; then everything is received, so that the next round finds nothing."""
    target, outlets = fan
    messages = max(2 * bench.load.messages // less // max(len(outlets), 5), 10)
    load = replace(bench.load, messages=messages, properties=PROPERTIES)
    figure = measure(target, "send", load)
    for outlet in outlets:
        run(outlet, "recv", load)
    return replace(figure, rate=figure.rate * len(outlets), cpu_us=figure.cpu_us / len(outlets))


def _report_fan_outs(report: Report, best: dict[tuple[str, int], Figure]) -> None:
    for count in FAN_OUTS:
        peer = best.get(("quorum", count))
        rate, cpu_us = (peer.rate, peer.cpu_us) if peer is not None else (None, None)
        for name, words in (("compiled", ""), ("pure", ", pure Python")):
            figure = best[name, count]
            title = f"copies to {count} subscription{'s' if count > 1 else ''}, a SQL filter each{words}"
            if name == "compiled" and count == FACTOR_AT:
                report.at_least(title, figure.rate, rate, FACTOR)
            else:
                report.beside(title, figure.rate, rate, "/s")
            report.beside(f"broker CPU, {title}", figure.cpu_us, cpu_us, "µs/copy")
        if ("classic", count) in best:
            classic = best["classic", count]
            title = f"RabbitMQ classic, copies to {count} bound queue{'s' if count > 1 else ''}"
            report.note(title, f"{classic.rate:,.0f}/s, {classic.cpu_us:.2f} µs/copy")


# -- many filters


def _measure_filters(bench: Bench, report: Report, folder: Path) -> None:
    file = bench.folder / "filters.json"
    file.write_text(json.dumps(_config([*_correlation_topics(), *_sql_topics()])))
    rules = sum(CORRELATION_FILTERS) + sum(SQL_FILTERS)
    with BuswayServer(folder, "--config", str(file)) as server:
        report.note(f"start that creates {rules:,} rules of a file", f"{server.start():.1f} s")
        report.note(f"RSS with {rules:,} rules", f"{server.rss_mib():.0f} MiB")
        server.stop()
        report.note(f"start with the same file and {rules:,} rules", f"{server.start():.1f} s")
        _report_filters(report, _costs(bench, server))
    with BuswayServer(folder) as server:
        report.note(f"start with {rules:,} rules, without a file", f"{server.start():.1f} s")


def _costs(bench: Bench, server: BuswayServer) -> dict[str, float]:
    """By topic the CPU of one message. What only the first message of a topic costs is not in it. More rounds than
    elsewhere: single ones differ by a fifth on a shared machine, which is as much as the bar allows."""
    counts = {_correlation_name(count): 60_000 for count in CORRELATION_FILTERS}
    counts |= {_sql_name(count): max(2_000, 30_000 // count) for count in SQL_FILTERS}
    for topic in counts:
        _past_filters(server, topic, 100)
    found: dict[str, list[float]] = {topic: [] for topic in counts}
    for _ in range(FILTER_ROUNDS_EACH * bench.rounds):
        for topic, messages in counts.items():
            found[topic].append(_past_filters(server, topic, messages))
    return {topic: median(costs) for topic, costs in found.items()}


def _past_filters(server: BuswayServer, topic: str, messages: int) -> float:
    """The server's CPU for one message that one filter selects."""
    load = Load(messages, properties=(*PROPERTIES, "customer=c0"))
    figure = measure(server.target(topic), "send", load)
    run(server.target(f"{topic}/Subscriptions/s0"), "recv", load)
    return figure.cpu_us


def _report_filters(report: Report, best: dict[str, float]) -> None:
    for count in CORRELATION_FILTERS:
        cost = best[_correlation_name(count)]
        report.note(f"publish past {count:,} correlation filters, one matches", f"{cost:.2f} µs/message")
    least, most = (
        best[_correlation_name(count)] for count in (CORRELATION_FILTERS[0], CORRELATION_FILTERS[-1])
    )
    report.within("growth of that cost", max(0.0, most / least - 1) * 100, GROWTH_MAX_PERCENT, "%")
    for count in SQL_FILTERS:
        cost = best[_sql_name(count)]
        report.note(f"publish past {count:,} SQL filters, one matches", f"{cost:.2f} µs/message")
    least, most = (best[_sql_name(count)] for count in (SQL_FILTERS[0], SQL_FILTERS[-1]))
    each = (most - least) / (SQL_FILTERS[-1] - SQL_FILTERS[0])
    report.within("cost of one more SQL filter", each, SQL_FILTER_US_MAX, "µs/message")


# -- the file


def _config(topics_: list[Json]) -> Json:
    namespace = {"Name": "busway", "Queues": [], "Topics": topics_}
    return {"Format": "busway/1", "UserConfig": {"Namespaces": [namespace]}}


def _topic(name: str, subscriptions: list[list[Json]]) -> Json:
    return {
        "Name": name,
        "Properties": {"MaxSizeInMegabytes": 5120},
        "Subscriptions": [
            {"Name": f"s{number}", "Rules": rules} for number, rules in enumerate(subscriptions)
        ],
    }


def _sql_rule(name: str, expression: str) -> Json:
    return {"Name": name, "Properties": {"FilterType": "Sql", "SqlFilter": {"SqlExpression": expression}}}


def _correlation_rule(name: str, customer: str) -> Json:
    filter_ = {"Properties": {"customer": customer}}
    return {"Name": name, "Properties": {"FilterType": "Correlation", "CorrelationFilter": filter_}}


def _fan_outs() -> Iterator[Json]:
    """Filters that differ and all match."""
    for count in FAN_OUTS:
        rules = [[_sql_rule("r", f"n >= 0 AND color <> 'x{number}'")] for number in range(count)]
        yield _topic(f"fan-{count}", rules)


def _correlation_name(count: int) -> str:
    return f"correlation-{count}"


def _correlation_topics() -> Iterator[Json]:
    for count in CORRELATION_FILTERS:
        rules = [_correlation_rule(f"r{number}", f"c{number}") for number in range(count)]
        yield _topic(_correlation_name(count), list(_spread(rules)))


def _sql_name(count: int) -> str:
    return f"sql-{count}"


def _sql_topics() -> Iterator[Json]:
    """Filters that cannot be looked up by a property's value: each one is evaluated."""
    for count in SQL_FILTERS:
        rules = [_sql_rule(f"r{number}", f"n > {6 + number} AND color <> 'x'") for number in range(count)]
        yield _topic(_sql_name(count), list(_spread(rules)))


def _spread(rules: list[Json]) -> Iterator[list[Json]]:
    for start in range(0, len(rules), RULES_EACH):
        yield rules[start : start + RULES_EACH]
