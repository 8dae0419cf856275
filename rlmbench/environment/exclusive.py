"""An exclusive lock on a file that the builder's children hold as well.

The lock belongs to the open file, not to the process. Handed on to pip it lasts until the last of them has ended: after
a `kill -9` of the builder, nobody starts over in a folder that an orphan still writes to.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

POLL_S = 0.25


@contextmanager
def exclusive(path: Path, waiting: Callable[[], None] = lambda: None) -> Iterator[int]:
    """Hold the lock at `path`; yields its file descriptor, for `pass_fds`. Calls `waiting` between tries while another holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        while not _try(descriptor):
            waiting()
            time.sleep(POLL_S)
        yield descriptor
    finally:
        os.close(descriptor)


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True
