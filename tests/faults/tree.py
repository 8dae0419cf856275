"""A process tree that is hard to end, as frameworks grow them. Standard library only.

python tree.py quick     leaves a stubborn daemon behind and ends with exit code 3
python tree.py wait      the same, and then sleeps
"""

from __future__ import annotations

import os
import signal
import sys
import time


def announce(name: str, told: int | None = None) -> None:
    """Say that this process is what it is to be, to main by a byte in the pipe `told`."""
    os.write(1, f"{name} {os.getpid()}\n".encode())  # in one piece, whatever buffering the environment asks for
    if told is not None:
        os.write(told, b".")
        os.close(told)


def stubborn_daemon(told: int) -> None:
    """Fork twice into a session of its own and ignore every polite request."""
    if os.fork():
        os.wait()
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    announce("daemon", told)
    time.sleep(1000)


def worker_in_own_session(told: int) -> None:
    """A child of the main process in its own session, like a rank of torchrun."""
    if os.fork() == 0:
        os.setsid()
        announce("worker", told)
        time.sleep(1000)


def main() -> int:
    heard, told = os.pipe()
    stubborn_daemon(told)
    worker_in_own_session(told)
    os.close(told)
    while os.read(heard, 1):  # until both have told, however late they come to it
        pass
    announce("main")
    if sys.argv[1] == "quick":
        return 3
    time.sleep(1000)
    return 0


if __name__ == "__main__":
    sys.exit(main())
