"""Whether a database of stores is whole: what is counted is there, what belongs together is there together.

For a database that nobody is writing to. Each check is a question whose every row is a violation.
"""

from __future__ import annotations

from typing import Final

import psycopg

#: What must hold → the rows that break it.
CHECKS: Final = {
    "every store has one last commit": """
        SELECT stores.store, count(commits.number) FROM busway.stores
        LEFT JOIN busway.commits ON commits.store = stores.store
        GROUP BY stores.store HAVING count(commits.number) <> 1
    """,
    "every fragment has one row of counters": """
        SELECT key, count(counters.version) FROM busway.fragments
        LEFT JOIN busway.counters ON counters.fragment = fragments.key
        GROUP BY key HAVING count(counters.version) <> 1
    """,
    "counters tell what is there": """
        SELECT fragments.key, fragments.owner, counters.active, counters.deferred, counters.scheduled, found.*
        FROM busway.fragments INNER JOIN busway.counters ON counters.fragment = fragments.key, LATERAL (
            SELECT
                (SELECT count(*) FROM busway.messages WHERE messages.key >> 40 = fragments.key) AS active,
                (SELECT count(*) FROM busway.deferred WHERE deferred.key >> 40 = fragments.key) AS deferred,
                (SELECT count(*) FROM busway.scheduled WHERE scheduled.key >> 40 = fragments.key) AS scheduled
        ) AS found
        WHERE (counters.active, counters.deferred, counters.scheduled)
            <> (found.active, found.deferred, found.scheduled)
            AND NOT EXISTS (SELECT FROM busway.log_chunks WHERE log_chunks.log = fragments.key)
    """,
    "no row is above the last number or below the head": """
        SELECT messages.key FROM busway.messages
        INNER JOIN busway.counters ON counters.fragment = messages.key >> 40
        WHERE messages.key & ((1::bigint << 40) - 1) NOT BETWEEN counters.head AND counters.last_counter
    """,
    "every row belongs to a fragment": """
        SELECT key FROM (
            SELECT key FROM busway.messages UNION ALL SELECT key FROM busway.deferred
            UNION ALL SELECT key FROM busway.scheduled
        ) AS rows
        WHERE NOT EXISTS (SELECT FROM busway.fragments WHERE fragments.key = rows.key >> 40)
            AND NOT EXISTS (SELECT FROM busway.dropped_fragments WHERE dropped_fragments.key = rows.key >> 40)
    """,
    "the session index names active rows": """
        SELECT key FROM busway.session_messages
        WHERE NOT EXISTS (SELECT FROM busway.messages WHERE messages.key = session_messages.key)
    """,
    "sessions know their first row": """
        SELECT sessions.*, found.* FROM (
            SELECT key >> 40 AS fragment, session_id, min(key) AS first_key
            FROM busway.session_messages GROUP BY 1, 2
        ) AS found FULL JOIN busway.sessions
        ON sessions.fragment = found.fragment AND sessions.session_id = found.session_id
        WHERE sessions.first_key IS DISTINCT FROM found.first_key
    """,
    "expiry entries belong to rows": """
        SELECT key FROM busway.expiry_entries
        WHERE NOT EXISTS (SELECT FROM busway.messages WHERE messages.key = expiry_entries.key)
            AND NOT EXISTS (SELECT FROM busway.deferred WHERE deferred.key = expiry_entries.key)
            AND NOT EXISTS (SELECT FROM busway.scheduled WHERE scheduled.key = expiry_entries.key)
    """,
}
_SHOWN_MAX: Final = 5


def wrong_books(url: str) -> list[str]:
    """A sentence for each check that fails."""
    found = []
    with psycopg.connect(url) as connection:
        for rule, question in CHECKS.items():
            rows = connection.execute(question.encode()).fetchall()
            if rows:
                found.append(f"{rule}: {len(rows)} do not: {rows[:_SHOWN_MAX]}")
    return found
