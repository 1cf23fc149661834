"""All rows, by import of the files that have them."""

from tests.cost import (
    rows_amqp,
    rows_http,
    rows_http_browsing,
    rows_http_console,
    rows_http_messages,
    rows_http_pipelines,
    rows_http_staging,
    rows_jms,
    rows_management,
    rows_sending,
)
from tests.cost.row import ROWS

__all__ = [
    "ROWS",
    "rows_amqp",
    "rows_http",
    "rows_http_browsing",
    "rows_http_console",
    "rows_http_messages",
    "rows_http_pipelines",
    "rows_http_staging",
    "rows_jms",
    "rows_management",
    "rows_sending",
]
