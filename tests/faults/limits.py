"""Judges of refusals: little memory and time, since what asks for much must be refused, and one sentence."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOM = 3 * 2**30
"""Bytes that reading and building may take."""
SECONDS = 60


def is_sentence(said: str) -> bool:
    """Whether an error is one line of text that someone would read."""
    return said.isprintable() and said.endswith((".", "?")) and len(said) < 900


@contextmanager
def bounded() -> Iterator[None]:
    """Limits of memory and of computing; whoever exceeds them gets a `MemoryError` or a `TimeoutError`."""

    def too_slow(*_: object) -> None:
        raise TimeoutError(f"more than {SECONDS} s of computing")

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    old = signal.signal(signal.SIGPROF, too_slow)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + ROOM, before[1]))
    # The time of the process, not that of the wall: others may use the machine.
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, old)
        resource.setrlimit(resource.RLIMIT_AS, before)
