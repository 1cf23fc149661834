"""Programs with the unmodified SDKs of other languages, against real servers: `make test-sdk`.

program            a program: what it needs, how it is built (once, into build/sdk), what it printed
programs           all of them
bus                the two servers, and the three ways to them that a program is run by
known_failures     operations that do not work by a fault of the SDK, with the reason
test_operations    each operation of each program by each way is a test of its own
test_missing_tools what a machine does not have is said, and only that is skipped
test_how_to        the programs of docs/how-to, as they stand

Each folder holds the programs of one language. A program tries named operations, one after the other, and prints a
line of JSON for each: `{"operation": …, "passed": …, "found": …, "seconds": …}`. An operation is declared in its
source as `operation("name", …)`, which is where this suite finds the names. Whoever adds one adds nothing else.

    make test-sdk ARGS="-k go"                           one language
    make test-sdk ARGS="-k java-service-bus-tls"          one program by one way
    BUSWAY_SDK_ONLY=session_in_order make test-sdk         one operation; the others are skipped
"""
