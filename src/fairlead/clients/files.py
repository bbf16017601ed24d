"""Files of data, compressed or not, with errors that name them."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import zlib
from pathlib import Path

from fairlead.errors import DataError

_UNPACK = {".gz": gzip.decompress, ".xz": lzma.decompress, ".bz2": bz2.decompress}


def existing_file(path: str) -> Path:
    """The file that a user names, with ~ for the home folder."""
    file = Path(path).expanduser()
    if not file.is_file():
        reason = "is a folder, and a file is needed" if file.is_dir() else "does not exist"
        raise DataError(f"{file} {reason}.")
    return file


def existing_folder(path: str) -> Path:
    """The folder that a user names, with ~ for the home folder."""
    folder = Path(path).expanduser()
    if not folder.is_dir():
        reason = "is a file, and a folder is needed" if folder.exists() else "does not exist"
        raise DataError(f"{folder} {reason}.")
    return folder


def read_file(file: Path) -> bytes:
    """What a file holds, unpacked if its name ends in .gz, .xz or .bz2."""
    try:
        content = file.read_bytes()
        return _UNPACK[file.suffix](content) if file.suffix in _UNPACK else content
    except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise DataError(f"{file} cannot be read: {reason.rstrip('.')}.") from error


def read_text(file: Path) -> str:
    """What a file of UTF-8 text holds, without the mark that some programs put first."""
    try:
        return read_file(file).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{file} is not UTF-8 text: see byte {error.start}.") from error


def as_path(path: str | os.PathLike[str]) -> str:
    """A path as a spec holds it."""
    return os.fspath(path)
