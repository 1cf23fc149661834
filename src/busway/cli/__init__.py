"""The command line. One file per verb family; what a verb needs is imported when it runs, so help is quick.

app                 the tree of verbs, what a call gives as values, failures as a sentence and an exit code
verbs               what every verb has: how it is declared, which server it talks to, how it fails
output              what a verb prints; points in time as people type them
serving             serve
entity_family       create|update|show|list|delete of any kind of entity, by a row for each kind
entities            the rows of queue, topic and subscription, and a warning of forwards that lead back
rules               the row of rule, filters and actions as a call gives them; rule test (`rule_trial`: its message,
                    and why)
sending             send
receiving           receive, peek, purge
claims              claims list|release: what streams of Spark hold
resubmitting        resubmit; `resubmission` is the work, and what its filter sees
eventhubs           the rows of eventhub and eventhub group
events              events send|tail
pipeline            jobs on Spark: pipeline capture|compact|backfill|deadletters|report|replay; list|status|forget
keys                key list|create|rotate|delete
definitions         export, import; `remote_definition` reads and changes a namespace by its management API
stores              stores [disable|enable|copy], reset; `store_copy` is the copy
nodes               nodes: the servers that share the stores
safekeeping         backup, check
health              connection-string, health
console             console
top                 top
programs            exec; `own_server`: what programs find, and the server of `exec --serve` and of the pytest plug-in

Others know none of it.
"""


def main() -> None:
    """The entry point of the `busway` program."""
    import sys

    if sys.argv[1:] == ["--version"] and _print_version():
        sys.exit(0)
    if sys.argv[1:2] == ["serve"]:
        import gc

        gc.disable()  # until all is imported (`slow_the_collector`): that makes much and hardly any garbage
    from busway.cli.app import run

    sys.exit(run(sys.argv[1:]))


def _print_version() -> bool:
    """Without the tree of verbs: installers and scripts ask often. False when nobody reads it; the tree knows what to
    do then."""
    from busway import version_line

    try:
        print(version_line(), flush=True)
    except OSError:
        return False
    return True
