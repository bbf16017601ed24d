"""Which devices engines can compute on here."""

from __future__ import annotations

import torch

from fairlead.errors import FieldError, field_error


def usable_device(owner: object, device: torch.device | str) -> torch.device:
    """The device of that name, which `owner.device` refuses unless engines can compute on it here."""
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise _refused(owner, device) from error
    # Torch keeps eight bits of an index, so that a large one may come back below zero.
    if found.type != "cpu" and not (
        found.type == "cuda" and 0 <= (found.index or 0) < torch.cuda.device_count()
    ):
        raise _refused(owner, device)
    return found


def _refused(owner: object, device: torch.device | str) -> FieldError:
    allowed = f"'cpu' or a CUDA device of this machine, which has {torch.cuda.device_count() or 'none'}"
    return field_error(owner, "device", allowed, device)
