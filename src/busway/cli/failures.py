"""Errors as people read them."""


class WrongCall(Exception):
    """The options or arguments make no sense together: exit code 2."""


class CommandFailed(Exception):
    """The work could not be done: exit code 1."""


def sentence_of(error: Exception) -> str:
    """One sentence, whatever it was. Our own errors bring theirs along."""
    from busway.client.connection_string import BadConnectionString
    from busway.client.entity_entry import BadAnswer
    from busway.client.errors import ClientError
    from busway.data_directory import DataDirectoryError
    from busway.model.errors import BrokerError

    if isinstance(error, CommandFailed | ClientError | BadAnswer | BadConnectionString | DataDirectoryError):
        return str(error)
    if isinstance(error, BrokerError):  # the checks that both ends share, on what a server answered
        return error.sentence
    if isinstance(error, OSError):
        where = f" {error.filename}" if error.filename is not None else ""
        return f"{error.strerror or error}{':' if where else ''}{where}."
    text = str(error)
    return (
        f"Something unexpected happened: {type(error).__name__}{': ' + text if text else ''}. "
        "Set BUSWAY_DEBUG=1 to see where."
    )
