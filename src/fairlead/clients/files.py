"""Files of data, compressed or not, with errors that name them."""

import bz2
import gzip
import io
import lzma
import zlib
from pathlib import Path
from typing import BinaryIO

from fairlead.errors import DataError

_PACKED: dict[str, type[gzip.GzipFile | lzma.LZMAFile | bz2.BZ2File]] = {
    ".gz": gzip.GzipFile,
    ".xz": lzma.LZMAFile,
    ".bz2": bz2.BZ2File,
}
_ALWAYS_UNPACKED = 2**30
_GROWTH_AT_MOST = 200
"""Largest ratio of unpacked to packed size beyond the first GiB; text and images reach about 30."""
_PIECE = 2**20


def existing_file(path: str) -> Path:
    """The file at a path, with ~ for the home folder; refused if it does not exist."""
    file = Path(path).expanduser()
    if not file.is_file():
        raise DataError(f"{file} is a folder, but a file is needed." if file.is_dir() else absent(file))
    return file


def existing_folder(path: str) -> Path:
    """The folder at a path, with ~ for the home folder; refused if it does not exist."""
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise DataError(f"{folder} is a file, but a folder is needed." if folder.exists() else absent(folder))
    return folder


def absent(path: Path) -> str:
    """The error for a missing path; relative paths are named with the working directory."""
    where = "" if path.is_absolute() else f" in the working directory {Path.cwd()}"
    return f"The path {path} does not exist{where}."


def read_file(file: Path) -> bytes:
    """The content of a file, unpacked if its name ends in .gz, .xz or .bz2."""
    try:
        if file.suffix not in _PACKED:
            return file.read_bytes()
        with _PACKED[file.suffix](file) as stream:
            pieces: list[bytes] = []
            size = 0
            while piece := stream.read(_PIECE):
                pieces.append(piece)
                size += len(piece)
                refuse_bomb(file, size)
            return b"".join(pieces)
    except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError) as error:
        if isinstance(error, DataError):
            raise
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise DataError(f"{file} cannot be read: {reason.rstrip('.')}.") from error


def opened(file: Path) -> BinaryIO:
    """A file to read from, unpacked in memory if its name ends in .gz, .xz or .bz2."""
    return io.BytesIO(read_file(file)) if file.suffix in _PACKED else file.open("rb")


def refuse_bomb(file: Path, unpacked: int) -> None:
    """Refuse a file that would unpack to a suspicious multiple of its size."""
    packed = file.stat().st_size
    if unpacked > max(_ALWAYS_UNPACKED, _GROWTH_AT_MOST * packed):
        raise DataError(
            f"{file} is refused: its {packed} bytes would unpack to more than {_GROWTH_AT_MOST} times as many, at "
            f"least {unpacked / 2**30:.1f} GiB; unpack it yourself if you trust it."
        )


def read_text(file: Path) -> str:
    """The content of a UTF-8 text file, without a byte-order mark."""
    try:
        return read_file(file).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{file} is not UTF-8 text: byte {error.start} is invalid.") from error
