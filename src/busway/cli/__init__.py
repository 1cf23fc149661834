"""The command line. One file per verb family; what a verb needs is imported when it runs, so help is quick.

app                 the tree of verbs, failures as a sentence and an exit code
target              which server a verb talks to
plain_values        what a call gives, as values
serving             serve
queues topics subscriptions  create|show|list|update|delete
property_options    one option for each property; `entity_output` prints entities
forward_cycles      warnings of forwards that lead back
rules               rule create|list|delete
rule_testing        rule test; `trial_message` is its message, `explanation` says why
sending             send
receiving           receive, peek, purge
claims              claims list|release: what streams of Spark hold
resubmitting        resubmit; `resubmission` is the work, `received_subject` what its filter sees
eventhubs           eventhub create|show|list|update|delete, eventhub group create|list|delete
events              events send|tail
pipeline            jobs on Spark: pipeline capture|compact|backfill|deadletters|report|replay; list|status|forget
keys                key list|create|rotate|delete
definitions         export, import; `remote_definition` reads and changes a namespace by its management API
stores              stores [disable|enable]
health resetting    health, reset
connection_strings  connection-string
programs            exec; `program_environment`: what programs find; `own_server`: the server of `exec --serve` and of
                    the pytest plug-in
failures instants output   errors, points in time and tables as people read and type them
"""


def main() -> None:
    """The entry point of the `busway` program."""
    import sys

    if sys.argv[1:] == ["--version"] and _print_version():
        sys.exit(0)
    from busway.cli.app import run

    sys.exit(run(sys.argv[1:]))


def version_line() -> str:
    from busway import __version__
    from busway.compiled import status

    return f"busway {__version__}, {status()}"


def _print_version() -> bool:
    """Without the tree of verbs: installers and scripts ask often. False when nobody reads it; the tree knows what to
    do then."""
    try:
        print(version_line(), flush=True)
    except OSError:
        return False
    return True
