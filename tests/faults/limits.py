"""Judges of refusals: little memory and time, since what asks for much must be refused, and one sentence."""

from __future__ import annotations

import os
import random
import resource
import signal
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

SEED = os.environ.get("FAIRLEAD_FAULTS_SEED", "0")
"""Another one makes other mutations."""

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


def fuzzed(kind: str, count: int, receive: Callable[[int, random.Random], str]) -> Counter[str]:
    """How often each outcome came; fails with all mutations that ended in an error, not with the first alone."""
    outcomes, failed = Counter[str](), list[str]()
    for case in range(count):
        try:
            outcomes[receive(case, random.Random(f"{SEED} {kind} {case}"))] += 1
        except Exception as error:
            said = "".join(traceback.format_exception(error, limit=-4, chain=False))
            failed.append(f"case {case}: {said[-6000:]}")
            print(failed[-1], flush=True)
    assert not failed, f"{len(failed)} of {count} {kind}, seed {SEED}:\n" + "\n".join(failed[:50])
    return outcomes
