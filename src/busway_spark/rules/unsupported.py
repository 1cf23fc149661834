"""What Spark's columns cannot say."""


class Unsupported(Exception):
    """This part of a rule has no exact form in columns; the text names it. The broker's evaluator takes the rule."""
