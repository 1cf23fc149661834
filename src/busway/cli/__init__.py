"""The command line. One file per verb family; what a verb needs is imported when it runs, so help is quick."""


def main() -> None:
    """The entry point of the `busway` program."""
    import sys

    from busway.cli.app import run

    sys.exit(run(sys.argv[1:]))
