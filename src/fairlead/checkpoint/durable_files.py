"""Files that are replaced in one step and are on the disk afterwards, or stay as they were."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

DRAFT = ".part"
"""What the name of a file ends in while it is being written."""


def write_durably(path: Path, content: bytes) -> None:
    """Replace a file in one step, on the disk before this returns; what fails leaves it as it was."""
    draft = new_draft(path)
    try:
        # A file of its own: whatever lies or points elsewhere under this name is not written to.
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
            file.write(content)
    except OSError:
        drop(draft)
        raise
    publish(draft, path)


def new_draft(path: Path) -> Path:
    """Where to write what will replace a file; nothing is there."""
    draft = path.with_name(path.name + DRAFT)
    draft.unlink(missing_ok=True)
    return draft


def publish(draft: Path, path: Path) -> None:
    """Put a written draft in the place of a file, both durably; a draft that cannot be is dropped."""
    try:
        _sync(draft)
        os.replace(draft, path)
        _sync(path.parent)
    except OSError:
        drop(draft)
        raise


def make_folder(path: Path) -> None:
    """Make a folder, and its entry in the one above durable."""
    if not path.is_dir():
        path.mkdir(parents=True, exist_ok=True)
        _sync(path.parent)


def drop(draft: Path) -> None:
    """Remove a draft so that it takes no space, if the disk still lets us."""
    with suppress(OSError):
        draft.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
