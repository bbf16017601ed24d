"""Files of data, compressed or not, with errors that name them."""

import bz2
import gzip
import io
import lzma
import os.path
import struct
import sys
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from fairlead.errors import DataError, FairleadError, FieldError, one_line

_PACKED: dict[str, type[gzip.GzipFile | lzma.LZMAFile | bz2.BZ2File]] = {
    ".gz": gzip.GzipFile,
    ".xz": lzma.LZMAFile,
    ".bz2": bz2.BZ2File,
}
_ALWAYS_UNPACKED = 2**28
_GROWTH_AT_MOST = 200
"""Largest ratio of unpacked to packed size beyond the first 256 MiB; text and images reach about 30."""
_PIECE = 2**20
_MOST_SETUP = 2**30
_FORMAT_ERRORS = (EOFError, lzma.LZMAError, struct.error, zipfile.BadZipFile, zlib.error)
_PYTHON_ERRORS = (ArithmeticError, AttributeError, ImportError, LookupError, RuntimeError, TypeError)
_OWN_ERRORS = {"pyarrow.lib": "ArrowException", "PIL.Image": "DecompressionBombError"}
"""Errors of libraries that are no kind of Python's, by module."""


def _library_errors() -> tuple[type[Exception], ...]:
    """Errors that libraries raise when a file is not what it claims to be: few of them check it first."""
    own = (getattr(sys.modules[name], _OWN_ERRORS[name]) for name in _OWN_ERRORS if name in sys.modules)
    return OSError, MemoryError, ValueError, *_FORMAT_ERRORS, *_PYTHON_ERRORS, *own


@contextmanager
def read_as(
    kind: str, file: object, reason: str = "", *, refusal: type[FairleadError] = DataError
) -> Iterator[None]:
    """Turn an error of a library that reads a file into one sentence with the file's name.

    `kind` follows "cannot be read"; without a `reason` the library gives it.
    """
    try:
        yield
    except FairleadError:
        raise
    except _library_errors() as error:
        raise refusal(f"{file} cannot be read{kind}: {reason or one_line(error)}.") from error


def existing(path: str) -> Path:
    """The file or folder at a path, with ~ for the home folder; refused if it does not exist.

    A path that no system could have, too long or with a null, does not exist either.
    """
    found = os.path.expanduser(path)
    if not os.path.exists(found):
        raise absent(Path(found))
    return Path(found)


def existing_file(path: str) -> Path:
    """The same for a file."""
    file = existing(path)
    if not file.is_file():
        raise DataError(f"{file} is {'a folder' if file.is_dir() else 'a device'}, but a file is needed.")
    return file


def existing_folder(path: str) -> Path:
    """The same for a folder."""
    folder = existing(path)
    if not folder.is_dir():
        raise DataError(f"{folder} is a file, but a folder is needed.")
    return folder


def absent(path: Path) -> DataError:
    """The error for a missing path; relative paths are named with the working directory."""
    where = "" if path.is_absolute() else f" in the working directory {Path.cwd()}"
    return DataError(f"The path {path} does not exist{where}.")


def read_file(file: Path) -> bytes:
    """The content of a file, unpacked if its name ends in .gz, .xz or .bz2."""
    with read_as("", file):
        if file.suffix not in _PACKED:
            return file.read_bytes()
        with _PACKED[file.suffix](file) as stream:
            pieces: list[bytes] = []
            packed, size = file.stat().st_size, 0
            while piece := stream.read(_PIECE):
                pieces.append(piece)
                size += len(piece)
                refuse_bomb(file, size, packed)
            return b"".join(pieces)


def opened(file: Path) -> BinaryIO:
    """A file to read from, unpacked in memory if its name ends in .gz, .xz or .bz2."""
    return io.BytesIO(read_file(file)) if file.suffix in _PACKED else file.open("rb")


def refuse_bomb(file: object, unpacked: int, packed: int) -> None:
    """Refuse a file that would unpack to a suspicious multiple of its size."""
    if unpacked > max(_ALWAYS_UNPACKED, _GROWTH_AT_MOST * packed):
        raise DataError(
            f"{file} is refused: its {packed} bytes would unpack to more than {_GROWTH_AT_MOST} times as many, at "
            f"least {unpacked / 2**30:.1f} GiB; unpack it yourself if you trust it."
        )


def read_text(file: Path) -> str:
    """The content of a UTF-8 text file, without a byte-order mark."""
    with read_as("", file):
        return read_file(file).decode("utf-8-sig")


def read_setup(file: Path, what: str, encoding: str = "utf-8") -> str:
    """The text of a file that a user wrote about an experiment; `what` it is stands in errors."""
    with read_as("", f"The {what} {file}", refusal=FieldError), file.open("rb") as stream:
        content = stream.read(_MOST_SETUP + 1)
        if len(content) > _MOST_SETUP:
            # A device may give bytes forever.
            raise FieldError(f"The {what} {file} must have at most {_MOST_SETUP} bytes.")
        return content.decode(encoding)
