"""A process tree that is hard to end, as frameworks grow them. Standard library only.

python tree.py quick     leaves a stubborn daemon behind and ends with exit code 3
python tree.py wait      the same, and then sleeps
"""

from __future__ import annotations

import os
import signal
import sys
import time


def announce(name: str) -> None:
    os.write(1, f"{name} {os.getpid()}\n".encode())  # in one piece, whatever buffering the environment asks for


def stubborn_daemon() -> None:
    """Fork twice into a session of its own and ignore every polite request."""
    if os.fork():
        os.wait()
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    announce("daemon")
    time.sleep(1000)


def worker_in_own_session() -> None:
    """A child of the main process in its own session, like a rank of torchrun."""
    if os.fork() == 0:
        os.setsid()
        announce("worker")
        time.sleep(1000)


def main() -> int:
    stubborn_daemon()
    worker_in_own_session()
    announce("main")
    if sys.argv[1] == "quick":
        return 3
    time.sleep(1000)
    return 0


if __name__ == "__main__":
    sys.exit(main())
