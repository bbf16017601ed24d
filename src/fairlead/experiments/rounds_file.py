"""`RoundsFile`: the records of a run, one JSON object a line, read when they are looked at."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import overload

from fairlead.errors import FieldError, RunFolderError
from fairlead.experiments.record_lines import record_from_line, record_to_line
from fairlead.records import RoundLog, RoundRecord


class RoundsFile(RoundLog):
    """The complete lines of a file; a run of any length takes eight bytes of memory per round.

    A line that a crash cut short has no line break and does not count; the next one replaces it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ends = array("q", [0])
        self._last: RoundRecord | None = None
        with disk_errors(path, "read"), path.open("rb") as file:
            for line in file:
                if line.endswith(b"\n"):
                    self._ends.append(self._ends[-1] + len(line))
            self.cut_short = file.tell() > self._ends[-1]
            """Whether there is a line without an end."""

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, place: int) -> RoundRecord: ...
    @overload
    def __getitem__(self, place: slice) -> list[RoundRecord]: ...
    def __getitem__(self, place: int | slice) -> RoundRecord | list[RoundRecord]:
        if isinstance(place, slice):
            return [self[number] for number in range(*place.indices(len(self)))]
        number = range(len(self))[place]
        if number == len(self) - 1 and self._last is not None:
            return self._last
        with disk_errors(self.path, "read"), self.path.open("rb") as file:
            file.seek(self._ends[number])
            line = file.read(self._ends[number + 1] - self._ends[number])
        return self._parsed(line, number)

    def __iter__(self) -> Iterator[RoundRecord]:
        with disk_errors(self.path, "read"), self.path.open("rb") as file:
            for number, line in enumerate(islice(file, len(self))):
                yield self._parsed(line, number)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(one == two for one, two in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def append(self, record: RoundRecord) -> None:
        line = record_to_line(record).encode() + b"\n"
        with disk_errors(self.path, "written"), self.path.open("ab") as file:
            file.write(line)
        self._ends.append(self._ends[-1] + len(line))
        self._last = record

    def cut(self, length: int) -> None:
        """Keep the first `length` records, after making sure that they can be read."""
        for _ in islice(self, length):
            pass
        with disk_errors(self.path, "written"):
            os.truncate(self.path, self._ends[length])
        del self._ends[length + 1 :]
        self._last, self.cut_short = None, False

    def _parsed(self, line: bytes, number: int) -> RoundRecord:
        try:
            record = record_from_line(line.decode())
        except (FieldError, UnicodeDecodeError) as error:
            raise RunFolderError(f"Line {number + 1} of {self.path} is damaged.") from error
        if record.round != number:
            raise RunFolderError(
                f"Line {number + 1} of {self.path} should be round {number}, and is round {record.round}."
            )
        return record


@contextmanager
def disk_errors(path: Path, verb: str) -> Iterator[None]:
    """Say in one sentence what the disk refused."""
    try:
        yield
    except OSError as error:
        raise RunFolderError(f"{error.filename or path} cannot be {verb}: {error.strerror}.") from error
