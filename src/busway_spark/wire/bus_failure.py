"""What goes wrong on the bus, said so that a reader of Spark's error knows what to do. No key is ever in it."""

from collections.abc import Iterator
from contextlib import contextmanager

from busway.client.errors import ClientError, EntityMissing, NotAuthorised, Unreachable


class BusFailure(Exception):
    """Spark shows the sentence in its PYTHON_DATA_SOURCE_ERROR or STREAM_FAILED."""


@contextmanager
def failing(what: str) -> Iterator[None]:
    try:
        yield
    except ClientError as error:
        raise BusFailure(f"Could not {what}: {_reason(error)}") from error


def _reason(error: ClientError) -> str:
    if isinstance(error, EntityMissing):
        return f"there is no such entity. {error}"
    if isinstance(error, NotAuthorised):
        return f"the key does not allow it. {error}"
    if isinstance(error, Unreachable):
        return f"the bus cannot be reached. {error}"
    return str(error)
