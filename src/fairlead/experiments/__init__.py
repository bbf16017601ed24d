"""Experiments as values: specs, runs kept in folders, comparisons and the catalog of parts."""

import os
import threading
from multiprocessing import parent_process
from multiprocessing.connection import Connection


def start_worker(connection: Connection, every: int, keep: bool, threads: int) -> None:
    """The life of a worker process; here, because it must end with its parent even while it still imports torch."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    from fairlead.experiments.workers import serve

    serve(connection, every, keep, threads)


def _end_with_parent() -> None:
    if parent := parent_process():
        parent.join()
    # At once, however long the round still takes: the run can be resumed.
    os._exit(1)
