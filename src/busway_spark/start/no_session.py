"""Why there can be no session of Spark."""


class NoSession(RuntimeError):
    """The text is a sentence for people and says what to do."""
