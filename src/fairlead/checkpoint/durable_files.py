"""Atomic, durable writes: a file is replaced in one step and flushed to disk, or stays unchanged."""

import os
from contextlib import suppress
from pathlib import Path

DRAFT = ".part"
"""Suffix of a file that is being written."""


def write_durably(path: Path, content: bytes) -> None:
    """Replace a file in one step and flush it to disk; an error leaves the file unchanged."""
    draft = new_draft(path)
    try:
        # Always a new file: a link under this name is never followed.
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
            file.write(content)
    except OSError:
        drop(draft)
        raise
    publish(draft, path)


def new_draft(path: Path) -> Path:
    """The path of a draft that will replace a file; an old draft is removed."""
    draft = path.with_name(path.name + DRAFT)
    draft.unlink(missing_ok=True)
    return draft


def publish(draft: Path, path: Path) -> None:
    """Replace a file by a written draft, durably; on an error the draft is removed."""
    try:
        _sync(draft)
        os.replace(draft, path)
        _sync(path.parent)
    except OSError:
        drop(draft)
        raise


def make_folder(path: Path) -> None:
    """Make a folder durably."""
    if not path.is_dir():
        path.mkdir(parents=True, exist_ok=True)
        _sync(path.parent)


def drop(draft: Path) -> None:
    """Remove a draft, if the disk allows it."""
    with suppress(OSError):
        draft.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
