"""Real processes for tests, started quickly and without anything of the test's own."""

from __future__ import annotations

import multiprocessing

# A plain fork would inherit SQLite's open files and the table of their locks; a spawned interpreter imports everything
# anew. The fork server has imported it and has opened nothing.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    ["crossbreed.storage", "crossbreed.core.lab.records", "alembic.command", "psycopg"]
)
