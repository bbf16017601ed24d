"""Interrupts that let work end in order: the first asks, the second insists."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def interrupts(on_interrupt: Callable[[], None] | None = None) -> Iterator[threading.Event]:
    """An event that the first Ctrl-C or SIGTERM sets; the second raises `KeyboardInterrupt`."""
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        # Python lets only the main thread receive signals.
        yield interrupted
        return

    def receive(number: int, frame: FrameType | None) -> None:
        if interrupted.is_set():
            raise KeyboardInterrupt
        interrupted.set()
        if on_interrupt:
            on_interrupt()

    # What whoever started the process chose to ignore stays ignored.
    heeded = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    previous = {number: signal.signal(number, receive) for number in heeded}
    try:
        yield interrupted
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
