"""The command line. One file per verb family; what a verb needs is imported when it runs, so help is quick.

app                 the tree of verbs, failures as a sentence and an exit code
target              which server a verb talks to
serving             serve
queues              queue create|show|list|update|delete
sending             send
receiving           receive, peek, purge
keys                key list|create|rotate|delete
stores              stores [disable|enable]
connection_strings  connection-string
programs            exec
failures instants output   errors, points in time and tables as people read and type them
"""


def main() -> None:
    """The entry point of the `busway` program."""
    import sys

    from busway.cli.app import run

    sys.exit(run(sys.argv[1:]))
