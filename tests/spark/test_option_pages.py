"""What the pages say about options is what the parsers do: every default, and the limits beside them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from busway.broker.bulk.claims import COUNT_MAX, OPEN_MAX, SESSION_MESSAGES_MAX
from busway.staging.decisions import STREAM_LIFE_MS, WRITE_LIFE_MS
from busway_spark.eventhubs import options as hub_options
from busway_spark.eventhubs.options import EVENTS_PER_PARTITION, EventHubsOptions
from busway_spark.servicebus import claim_reader
from busway_spark.servicebus import options as queue_options
from busway_spark.servicebus.options import read_options
from busway_spark.wire.patience import FIRST_S

PAGES: Final = Path(__file__).parents[2] / "docs/how-to"
PAGE: Final = (PAGES / "spark.md").read_text()
CLAIMS: Final = (PAGES / "spark-claims.md").read_text()
BUS: Final = {
    "connectionString": "Endpoint=sb://x;SharedAccessKeyName=k;SharedAccessKey=a2V5;EntityPath=e",
}
HUBS: Final = '`format("eventhubs")`'
QUEUES: Final = '`format("servicebus")`'
PARSERS: Final[dict[str, Callable[[dict[str, str]], object]]] = {
    HUBS: EventHubsOptions.parse,
    QUEUES: read_options,
}
KNOWN: Final = {HUBS: hub_options.KNOWN, QUEUES: queue_options.KNOWN}
#: For each option with a default that can be given: something else, which must not come to the same.
OTHERS: Final = {
    "consumerGroup": "mine", "failOnDataLoss": "false", "receiverTimeout": "PT7S", "operationTimeout": "PT7S",
    "idleWait": "PT7S", "includeBody": "false", "filterPushdown": "false", "transport": "websocket",
    "bodyFormat": "text", "subQueue": "deadLetter", "allowDestructive": "true", "properties": "json",
    "startingSequenceNumber": "7", "maxWaitSeconds": "7", "adoptClaims": "true", "claimOperations": "stock",
}  # fmt: skip
#: What is said in words, and is none of a value: it depends on more than the options.
IN_WORDS: Final = {
    "", "needed", "`EntityPath`", "start (batch), end (stream)", "end", "one task a partition", "random", "Spark's",
    "all", "the system's", "see above", "the last", "until nothing comes",
}  # fmt: skip
BULK_AND_STOCK: Final = {
    "maxMessagesPerTrigger": (claim_reader._BULK_PER_TRIGGER, claim_reader._STOCK_PER_TRIGGER),
    "messagesPerPartition": (claim_reader._BULK_PER_PARTITION, claim_reader._STOCK_PER_PARTITION),
}


def defaults(section: str) -> dict[str, str]:
    """By option, as the table of the section says it."""
    text = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    table = text.partition("| Option | Default | Meaning |\n|---|---|---|\n")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    return {row[0].strip("`"): row[1] for row in rows}


@pytest.mark.parametrize("section", [HUBS, QUEUES])
def test_each_option_has_a_row_with_its_default(section: str) -> None:
    """Documentation: what can be given as it stands there comes to the same as leaving it out."""
    parse, found = PARSERS[section], defaults(section)
    assert set(found) == set(KNOWN[section])
    for name, told in found.items():
        literal = re.fullmatch(r"`([^`]+)`|([\d.]+)", told)
        if told in IN_WORDS or name in (*BULK_AND_STOCK, "maxEventsPerTrigger", "badRecords"):
            continue
        assert literal is not None, f"{name}: {told}"
        given = {**BUS, name: literal[1] or literal[2]}
        assert parse(given) == parse(dict(BUS)), f"{name} is not {told} by default"
        assert parse({**BUS, name: OTHERS[name]}) != parse(dict(BUS)), name


@pytest.mark.parametrize("section", [HUBS, QUEUES])
def test_bad_records_are_what_the_page_says(section: str) -> None:
    """Documentation: a policy needs a format that a body can fail to have."""
    parse, text = PARSERS[section], {**BUS, "bodyFormat": "text"}
    assert parse({**text, "badRecords": defaults(section)["badRecords"].strip("`")}) == parse(dict(text))
    assert parse({**text, "badRecords": "drop"}) != parse(dict(text))


def test_defaults_that_depend_on_the_server_are_those_of_the_readers() -> None:
    """Documentation: how much streams take at once, on both pages."""
    assert defaults(HUBS)["maxEventsPerTrigger"] == f"{EVENTS_PER_PARTITION:,} a partition"
    for name, (bulk, stock) in BULK_AND_STOCK.items():
        assert defaults(QUEUES)[name] == f"{bulk}, stock {stock}"
        assert re.search(rf"^\| `{name}` \|.*\| {bulk} \(stock: {stock}\) \|$", CLAIMS, re.MULTILINE)


def test_the_page_of_claims_repeats_the_defaults() -> None:
    """Documentation: two pages, one default."""
    table = CLAIMS.partition("| option | meaning | default |\n|---|---|---|\n")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    assert len(rows) == 6
    for name, _, told in rows:
        if name.strip("`") not in BULK_AND_STOCK:
            assert told == defaults(QUEUES)[name.strip("`")], name


def test_limits_that_the_pages_name_are_those_of_the_code() -> None:
    """Documentation: seconds, days and numbers of messages."""
    hours = 3_600_000
    for text, sentence in (
        (PAGE, f"a bus that never answered: at most {FIRST_S:g} s"),
        (PAGE, f"at most {hub_options._IDLE_WAIT_MAX_S:g} s; `0`: not at all"),
        (PAGE, f"for {WRITE_LIFE_MS // hours} hours after it was written"),
        (PAGE, f"A query is remembered for {STREAM_LIFE_MS // (24 * hours)} days after its last batch."),
        (CLAIMS, f"A claim has at most {COUNT_MAX:,} messages."),
        (CLAIMS, f"{OPEN_MAX:,} claims can be taken and not yet held"),
        (CLAIMS, f"all that a session has (up to {SESSION_MESSAGES_MAX:,} messages)"),
    ):
        assert sentence in text
