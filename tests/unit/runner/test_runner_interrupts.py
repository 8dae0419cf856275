from __future__ import annotations

import os
import signal
import threading

from rlmbench.runner.interrupts import Interrupts


def test_signals_leave_a_note_and_raise_nothing() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with Interrupts() as interrupts:
        assert not interrupts.asked
        os.kill(os.getpid(), signal.SIGTERM)
        assert interrupts.asked and not interrupts.insisted
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupts.insisted
    assert interrupts.signal == signal.SIGTERM
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            os.kill(os.getpid(), signal.SIGINT)
            assert not interrupts.asked
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_off_the_main_thread_nothing_is_installed() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def enter() -> None:
        with Interrupts() as interrupts:
            seen.append((interrupts.asked, signal.getsignal(signal.SIGINT)))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [(False, before)]
