"""Worker processes that end with the process that they work for."""

import os
import threading
from multiprocessing import connection, parent_process


def leave_with_parent() -> None:
    """Exit as soon as the parent of this worker has ended for any reason; return at once.

    Workers of a fork server wait for work without end, and the server for its workers.
    """
    threading.Thread(target=_leave, daemon=True).start()


def _leave() -> None:
    connection.wait([parent_process().sentinel])
    os._exit(1)
