"""Validation of clients' replies: each reply is checked before any of it is loaded.

Worlds that receive messages call `validate_reply` for each reply. A refused reply becomes an absent row, and its
`Refusal` goes into the record of the round. Worlds that compute the updates themselves return whole blocks, which the
round checks with `finite_rows`.
"""

import math
from collections.abc import Callable, Collection, Container, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import reduce
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fairlead.errors import is_integer, is_number, require_integer, require_number
from fairlead.records import ClientUpdates, Refusal

_NPY_VERSIONS = {b"\x93NUMPY\x01\x00": 2, b"\x93NUMPY\x02\x00": 4}
"""First bytes of .npy files, and how many bytes then hold the length of the header."""


class Reason(StrEnum):
    """Why a reply is refused."""

    MALFORMED = "malformed"
    """One of its parts has a wrong type."""
    WRONG_ROUND = "wrong round"
    UNKNOWN_CLIENT = "unknown client"
    WRONG_CLIENT = "wrong client"
    """It names another client than the sender."""
    NOT_ASKED = "not asked"
    DUPLICATE = "duplicate"
    MISSING = "missing part"
    EXTRA = "extra part"
    WRONG_DTYPE = "wrong dtype"
    WRONG_SHAPE = "wrong shape"
    LYING_HEADER = "lying header"
    """The header of an array contradicts its content."""
    NOT_FINITE = "not finite"
    TOO_LARGE = "too large"
    SUBNORMAL = "subnormal"
    """So many numbers below the normal range that arithmetic with them would be slow."""
    OUT_OF_RANGE = "out of range"
    """An impossible number of steps or examples, or an impossible loss."""


@dataclass(frozen=True)
class ReplyLimits:
    """Bounds of an honest reply."""

    max_steps: int = 1_000_000
    max_examples: int = 1_000_000_000
    max_entry: float = 1e12
    """Largest absolute value in an array or of a loss: a sum of 10¹⁴ squares of such entries is still finite in single
    precision."""
    max_subnormal: float = 0.1
    """Share of the entries of an array that may be subnormal."""

    def __post_init__(self) -> None:
        require_integer(self, "max_steps", "max_examples", at_least=1)
        require_number(self, "max_entry", above=0)
        require_number(self, "max_subnormal", at_least=0, at_most=1)


class PackedArray(NamedTuple):
    """An array as received: its claimed type and shape, and bytes in little-endian C order or of an .npy file."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes
    encoding: Literal["raw", "npy"] = "raw"


@dataclass(frozen=True)
class ClientReply:
    """One client's reply as received. It is untrusted: any part may have any type."""

    client: object
    round: object
    arrays: Mapping[str, PackedArray]
    numbers: Mapping[str, object]
    """`num_steps`, `num_examples` and `loss`."""


@dataclass(frozen=True)
class ReplyForm:
    """The form that replies of a round must have."""

    round: int
    num_clients: int
    asked: Container[int]
    arrays: Mapping[str, tuple[int, ...]]
    """Names and shapes of all uploads: the update, buffers, messages of corrections."""
    dtype: torch.dtype = torch.float32
    limits: ReplyLimits = ReplyLimits()
    dtypes: Mapping[str, torch.dtype] = field(default_factory=dict)
    """Of the uploads that have another type."""
    decode: Callable[[dict[str, Tensor]], dict[str, Tensor]] | None = None
    """Completes the arrays of a reply whose update is encoded, or raises `ReplyError`."""


class ReceivedUpdate(NamedTuple):
    """A valid reply: safe to aggregate, though perhaps dishonest."""

    client: int
    round: int
    """The round in which it was asked for."""
    arrays: dict[str, Tensor]
    num_steps: int
    num_examples: int
    loss: float
    public_keys: tuple[bytes, bytes] | None = None
    """Of a client that hides its arrays and loss (secure aggregation)."""


class ReplyError(Exception):
    """The first fault of a reply; its text continues a sentence about the client."""

    def __init__(self, reason: Reason, fault: str) -> None:
        super().__init__(fault)
        self.reason = reason


def validate_reply(
    reply: ClientReply, form: ReplyForm, *, sender: int | None = None, received: Container[int] = ()
) -> ReceivedUpdate | Refusal:
    """The update in a reply, or why it is refused.

    `sender` is the client that the transport authenticated, if it did; `received` are the clients whose replies of
    this round were already accepted. Headers are checked before content, and memory is allocated only for arrays of
    the expected size. No reply makes it raise.

    >>> form = ReplyForm(round=3, num_clients=9, asked={4}, arrays={"delta": (2,)})
    >>> data = PackedArray("float32", (2,), bytes(8))
    >>> reply = ClientReply(4, 2, {"delta": data}, {"num_steps": 1, "num_examples": 5, "loss": 0.1})
    >>> refused = validate_reply(reply, form)
    >>> refused.reason, refused.sentence
    (<Reason.WRONG_ROUND: 'wrong round'>, 'Client 4 was refused in round 4: it answers round 3.')
    """
    client = reply.client if sender is None else sender
    known = client if is_integer(client, 0) and client < form.num_clients else None
    try:
        identity = _identified(reply, form, sender, received)
        arrays = _opened(reply.arrays, form)
        num_steps = _whole_number(reply.numbers, "num_steps", form.limits.max_steps)
        num_examples = _whole_number(reply.numbers, "num_examples", form.limits.max_examples)
        loss = _loss(reply.numbers, form.limits)
        return ReceivedUpdate(identity, form.round, arrays, num_steps, num_examples, loss)
    except ReplyError as refused:
        who = "A sender" if known is None else f"Client {known}"
        return Refusal(known, refused.reason, f"{who} was refused in round {form.round + 1}: {refused}.")


def finite_rows(updates: ClientUpdates) -> Tensor:
    """Which rows of a block hold neither NaN nor infinity, (m,), by one pass over each upload."""
    uploads = [updates.delta, *updates.messages.values(), *updates.memory.values()]
    # Most models have none, and each check takes a device as long as a small step.
    if updates.buffers.numel():
        uploads.append(updates.buffers)
    return reduce(torch.logical_and, map(are_finite, uploads))


def are_finite(rows: Tensor) -> Tensor:
    """Which of the rows hold neither NaN nor infinity, without a mask of all entries."""
    if rows.numel() == 0 or not rows.is_floating_point():
        return torch.ones(len(rows), dtype=torch.bool, device=rows.device)
    flat = rows.flatten(1)
    # NaN propagates through all of them and fails both comparisons. The norm is one kernel on a GPU, but takes a CPU
    # ten times as long as both extremes, and so does torch.aminmax.
    if rows.is_cuda:
        largest: Tensor = torch.linalg.vector_norm(flat, math.inf, dim=1)
        return largest < math.inf
    return (flat.amax(1) < math.inf) & (flat.amin(1) > -math.inf)


def leave_out(updates: ClientUpdates, bad: Tensor, reason: Reason, fault: str) -> ClientUpdates:
    """The updates without the rows marked in `bad` (m,), whose clients are recorded as refused."""
    keep = (~bad).nonzero().flatten()
    rows: dict[str, Tensor | dict[str, Tensor]] = {}
    for part in fields(updates):
        value = getattr(updates, part.name)
        if isinstance(value, Tensor):
            rows[part.name] = value[keep.to(value.device)]
        elif isinstance(value, Mapping) and part.name != "flight":
            rows[part.name] = {name: each[keep.to(each.device)] for name, each in value.items()}
    refused = tuple(
        Refusal(client, reason, f"Client {client} was refused: {fault}.")
        for client in updates.clients[bad].tolist()
    )
    return replace(updates, **rows, refused=(*updates.refused, *refused))  # type: ignore[arg-type]


def _identified(reply: ClientReply, form: ReplyForm, sender: int | None, received: Container[int]) -> int:
    """The client that replies, if it may reply in this round."""
    client = reply.client
    if not isinstance(client, int) or isinstance(client, bool):
        raise ReplyError(Reason.MALFORMED, f"its id is {_shown(client)}, not a whole number")
    if not 0 <= client < form.num_clients:
        raise ReplyError(Reason.UNKNOWN_CLIENT, f"there is no client {_shown(client)}")
    if sender is not None and client != sender:
        raise ReplyError(Reason.WRONG_CLIENT, f"it claims to be client {client}")
    if not isinstance(reply.round, int) or isinstance(reply.round, bool):
        raise ReplyError(Reason.MALFORMED, f"its round is {_shown(reply.round)}, not a whole number")
    if reply.round != form.round:
        raise ReplyError(Reason.WRONG_ROUND, f"it answers round {_shown(reply.round + 1)}")
    if client not in form.asked:
        raise ReplyError(Reason.NOT_ASKED, "it was not asked")
    if client in received:
        raise ReplyError(Reason.DUPLICATE, "it has answered already")
    _require_names(reply.numbers, ("num_steps", "num_examples", "loss"), "numbers")
    _require_names(reply.arrays, form.arrays, "arrays")
    return client


def _require_names(found: Mapping[str, object], expected: Collection[str], what: str) -> None:
    if not isinstance(found, Mapping) or not all(isinstance(name, str) for name in found):
        raise ReplyError(Reason.MALFORMED, f"its {what} have no names")
    for name in expected:
        if name not in found:
            raise ReplyError(Reason.MISSING, f"its {what} lack {name}")
    for name in found:
        if name not in expected:
            raise ReplyError(Reason.EXTRA, f"its {what} have {_shown(name)}, which was not asked for")


def _opened(arrays: Mapping[str, PackedArray], form: ReplyForm) -> dict[str, Tensor]:
    """All arrays as tensors; every header is checked before any content."""
    dtypes = {name: form.dtypes.get(name, form.dtype) for name in form.arrays}
    contents = {
        name: content_of(name, arrays[name], shape, dtypes[name]) for name, shape in form.arrays.items()
    }
    opened = {}
    for name, content in contents.items():
        values = numbers_in(content, dtypes[name])
        _require_sound(name, values, form.limits)
        opened[name] = values.reshape(form.arrays[name])
    if form.decode is not None:
        opened = form.decode(opened)
        _require_sound("delta", opened["delta"], form.limits)
    return opened


def numbers_in(content: memoryview, dtype: torch.dtype) -> Tensor:
    """The bytes of an array as a flat tensor."""
    # A copy, since torch needs writable memory; it accepts no empty buffer.
    return torch.frombuffer(bytearray(content), dtype=dtype) if content else torch.empty(0, dtype=dtype)


def content_of(name: str, array: PackedArray, shape: tuple[int, ...], dtype: torch.dtype) -> memoryview:
    """The bytes of an array with the expected and true header; raises `ReplyError` for any other."""
    if not isinstance(array, PackedArray) or not isinstance(array.data, bytes):
        raise ReplyError(Reason.MALFORMED, f"{name} is not an array")
    expected = str(dtype).removeprefix("torch.")
    if array.dtype != expected:
        raise ReplyError(Reason.WRONG_DTYPE, f"{name} is {_shown(array.dtype)} instead of {expected}")
    # By type too, since True and 1.0 equal 1.
    if not isinstance(array.shape, tuple) or any(type(length) is not int for length in array.shape):
        raise ReplyError(Reason.MALFORMED, f"{name} has no shape")
    if array.shape != shape:
        raise ReplyError(Reason.WRONG_SHAPE, f"{name} has shape {_shown(array.shape)} instead of {shape}")
    content = memoryview(array.data)
    if array.encoding == "npy":
        content = content[_length_of_npy_header(name, array) :]
    size = math.prod(shape) * dtype.itemsize
    if len(content) != size:
        raise ReplyError(Reason.LYING_HEADER, f"{name} has {len(content)} bytes instead of {size}")
    return content


def _length_of_npy_header(name: str, array: PackedArray) -> int:
    """Where the numbers of an .npy file start; its header must agree with the message.

    The two are compared as text, because numpy's parser raises errors of any kind on malformed headers.
    """
    length_bytes = _NPY_VERSIONS.get(array.data[:8])
    if length_bytes is None:
        raise ReplyError(Reason.LYING_HEADER, f"{name} is not an .npy file")
    start = 8 + length_bytes
    end = start + int.from_bytes(array.data[8:start], "little")
    little = np.dtype(array.dtype).newbyteorder("<").str
    expected = f"{{'descr': '{little}', 'fortran_order': False, 'shape': {array.shape!r}, }}"
    if array.data[start:end].rstrip(b" \n") != expected.encode():
        raise ReplyError(Reason.LYING_HEADER, f"{name} holds another array than its message says")
    return end


def _require_sound(name: str, values: Tensor, limits: ReplyLimits) -> None:
    if not len(values) or not values.is_floating_point():
        return
    low, high = torch.aminmax(values)
    largest = max(abs(float(low)), abs(float(high)))
    # NaN first: comparisons with it are always false.
    if not (math.isfinite(float(low)) and math.isfinite(float(high))):
        raise ReplyError(Reason.NOT_FINITE, f"{name} holds NaN or infinity")
    if largest > limits.max_entry:
        raise ReplyError(Reason.TOO_LARGE, f"{name} holds {largest:.3g}, more than {limits.max_entry:g}")
    tiny = torch.finfo(values.dtype).tiny
    share = float(((values.abs() < tiny) & (values != 0)).sum()) / len(values)
    if share > limits.max_subnormal:
        raise ReplyError(Reason.SUBNORMAL, f"{share:.0%} of {name} is subnormal")


def _whole_number(numbers: Mapping[str, object], name: str, most: int) -> int:
    value = numbers[name]
    if not isinstance(value, int) or isinstance(value, bool):
        raise ReplyError(Reason.MALFORMED, f"{name} is {_shown(value)}, not a whole number")
    if not 1 <= value <= most:
        raise ReplyError(Reason.OUT_OF_RANGE, f"{name} is {_shown(value)} and must be from 1 to {most}")
    return value


def _loss(numbers: Mapping[str, object], limits: ReplyLimits) -> float:
    value = numbers["loss"]
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ReplyError(Reason.MALFORMED, f"loss is {_shown(value)}, not a number")
    if not is_number(value) or abs(value) > limits.max_entry:
        raise ReplyError(
            Reason.OUT_OF_RANGE, f"loss is {_shown(value)} and must be within {limits.max_entry:g}"
        )
    return float(value)


def _shown(value: object) -> str:
    """A value from a client, short and without control characters."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_shown, value[:4]))}{', …' if len(value) > 4 else ''})"
    if isinstance(value, int) and value.bit_length() > 64:
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, str | bytes | int | float | None):
        return ascii(value[:20] if isinstance(value, str | bytes) else value)
    return f"of type {type(value).__name__}"
