"""`ClientData`: the examples of all clients, with a range of rows per client."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, Protocol, Self, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairlead.clients.partitioners import shuffled_within
from fairlead.component import WholeList
from fairlead.errors import LARGEST, DataError, FieldError, field_error, is_number
from fairlead.randomness import Key
from fairlead.text import ClientNames, called, counted, given_names, label

ArrayLike = Any
"""A tensor, a NumPy array, or nested lists of numbers."""


def is_moderate(value: object) -> bool:
    """Whether a value is a number between −`LARGEST` and `LARGEST`."""
    return isinstance(value, int | float) and is_number(value) and abs(value) <= LARGEST


@runtime_checkable
class Image(Protocol):
    """Pillow images, as in torchvision's folders and Hugging Face's image columns."""

    mode: str
    size: tuple[int, int]


def as_tensor(values: ArrayLike, name: str) -> Tensor:
    """Numbers as a tensor on the CPU: bytes and floats keep their type, other integers become int64."""
    if isinstance(values, Tensor):
        tensor = values.detach().cpu()
        if tensor.is_complex():
            raise DataError(f"{name} must be real numbers, got values of type {tensor.dtype}.")
        keeps = tensor.is_floating_point() or tensor.dtype == torch.uint8
        tensor = tensor if keeps else tensor.to(torch.int64)
    else:
        tensor = torch.from_numpy(_numbers(values, name))
    if tensor.ndim == 0:
        raise DataError(f"{name} must have one row per example, got a single number.")
    return tensor


def first_non_finite(values: Tensor) -> int | None:
    """The first row with NaN or infinity, if there is one."""
    if not values.is_floating_point() or bool(torch.isfinite(values).all()):
        return None
    return int((~torch.isfinite(values.reshape(len(values), -1))).any(1).nonzero()[0])


InputShape = Annotated[tuple[int, ...], WholeList(1)]
"""The lengths of the axes of one input."""


def shaped(owner: object, shape: tuple[int, ...] | None, inputs: Tensor, whose: str) -> Tensor:
    """Inputs in `owner.shape`, where it is given; `whose` they are is for the error."""
    if shape is None:
        return inputs
    size = inputs.shape[1:].numel()
    if size != math.prod(shape):
        raise field_error(owner, "shape", f"one of {size} numbers as each input of {whose}", shape)
    return inputs.reshape(len(inputs), *shape)


def stacked(values: Iterable[Any], count: int, name: str) -> Tensor:
    """Examples that come one by one; images become bytes (channels, height, width)."""
    rows: Tensor | None = None
    for place, value in enumerate(values):
        example = _example(value, f"{name}, example {place}")
        if rows is None:
            rows = torch.empty((count, *example.shape), dtype=example.dtype)
        if example.shape != rows.shape[1:]:
            raise DataError(
                f"{name}, example {place} must have shape {tuple(rows.shape[1:])} as those before it, got "
                f"{tuple(example.shape)}."
            )
        if example.dtype != rows.dtype:
            rows = rows.to(torch.promote_types(rows.dtype, example.dtype))
        rows[place] = example
    if rows is None:
        raise DataError(f"{name} has no example.")
    return rows


def _example(value: Any, name: str) -> Tensor:
    if isinstance(value, Tensor):
        return value.detach().cpu()
    array = _numbers(value, name)
    if isinstance(value, Image):
        array = array[None] if array.ndim == 2 else np.ascontiguousarray(np.moveaxis(array, -1, 0))
    if array.dtype == np.float64 and not isinstance(value, np.ndarray):
        # Python has no other floats; data in the precision of a float64 come as arrays.
        array = array.astype(np.float32)
    return torch.from_numpy(array)


def _numbers(values: Any, name: str) -> NDArray[Any]:
    """A copy as an array of a type that torch supports."""
    try:
        array = np.array(values, order="C")
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} must be numbers in rows of equal length: {error}.") from error
    if array.dtype.kind not in "biuf":
        kind = "text" if array.dtype.kind in "US" else f"values of type {array.dtype}"
        raise DataError(f"{name} must be numbers, got {kind}.")
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        return array.astype(np.float64)
    if array.dtype.kind == "f" or array.dtype == np.uint8:
        return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
    return array.astype(np.int64)


@dataclass(frozen=True, eq=False, repr=False)
class ClientData:
    """Examples of all clients, contiguous by client.

    Client i owns rows `offsets[i]` to `offsets[i + 1]` of `inputs` and `targets`; a million clients are
    three tensors and at most one array of names, not a million objects. A client may own no row. Files,
    tables and data sets that are not sorted by client become this through a `Pool` or a `ClientSource`.

    >>> data = ClientData.from_lists([torch.zeros(3, 2), torch.ones(1, 2)], [torch.zeros(3), torch.ones(1)])
    >>> data.sizes.tolist()
    [3, 1]
    """

    inputs: Tensor
    """(examples, ...)"""
    targets: Tensor
    """(examples, ...)"""
    offsets: Tensor
    """(N + 1,) int64, from 0 to the number of examples."""
    names: ClientNames | None = None
    """(N,) names of the clients, if the data have them: one array of text."""
    num_dropped: int = 0
    """Rows of the source that were dropped because a value was missing."""
    features: tuple[str, ...] = ()
    """Columns of the inputs, if they come from a table."""
    class_names: tuple[str, ...] | None = None
    """Names of the classes 0, 1, 2, ..., if the data do not number them."""

    def __post_init__(self) -> None:
        if len(self.inputs) != len(self.targets):
            raise FieldError(
                f"ClientData.targets must have one row per input, got {len(self.targets)} targets for "
                f"{len(self.inputs)} inputs."
            )
        offsets = self.offsets
        if len(offsets) < 2 or offsets[0] != 0 or offsets[-1] != len(self.inputs):
            raise FieldError(
                "ClientData.offsets must run from 0 to the number of examples "
                f"({len(self.inputs)}) with one entry more than there are clients."
            )
        if bool((offsets.diff() < 0).any()):
            raise FieldError("ClientData.offsets must not decrease.")
        if self.names is not None and self.names.shape != (self.num_clients,):
            raise FieldError(
                f"ClientData.names must be one name for each of {self.num_clients} clients, got an array of shape "
                f"{self.names.shape}."
            )
        for kind, values in (("inputs", self.inputs), ("targets", self.targets)):
            row = first_non_finite(values)
            if row is not None:
                raise FieldError(
                    f"ClientData.{kind} must be finite, got NaN or infinity in row {row}, of "
                    f"{self.whose(row)}."
                )

    @classmethod
    def from_lists(
        cls, inputs: Sequence[ArrayLike], targets: Sequence[ArrayLike], names: Sequence[str] | None = None
    ) -> Self:
        """One tensor or array per client, and the names of the clients."""
        if len(inputs) != len(targets) or not inputs:
            raise FieldError(
                f"ClientData.from_lists needs as many targets as inputs, and some, got {len(inputs)} "
                f"clients' inputs and {len(targets)} clients' targets."
            )
        known = given_names(names, len(inputs))
        whose = [f"Client {called(client, known)}" for client in range(len(inputs))]
        own_inputs = [as_tensor(part, f"{who}'s inputs") for who, part in zip(whose, inputs, strict=True)]
        own_targets = [as_tensor(part, f"{who}'s targets") for who, part in zip(whose, targets, strict=True)]
        for who, ours, theirs in zip(whose, own_inputs, own_targets, strict=True):
            if len(ours) != len(theirs):
                raise FieldError(f"{who} has {len(ours)} inputs but {len(theirs)} targets.")
            for kind, part, first in (("inputs", ours, own_inputs[0]), ("targets", theirs, own_targets[0])):
                if part.shape[1:] != first.shape[1:]:
                    raise FieldError(
                        f"{who} must have {kind} of shape {tuple(first.shape[1:])} as {label(0, known)}, "
                        f"got {tuple(part.shape[1:])}."
                    )
        sizes = torch.tensor([len(part) for part in own_inputs])
        return cls(torch.cat(own_inputs), torch.cat(own_targets), offsets_of(sizes), known)

    @classmethod
    def from_owners(
        cls,
        inputs: ArrayLike,
        targets: ArrayLike,
        owner: ArrayLike,
        num_clients: int,
        names: Sequence[str] | None = None,
    ) -> Self:
        """Examples in any order, with the client number of each, and the names of the clients."""
        inputs, targets = as_tensor(inputs, "The inputs"), as_tensor(targets, "The targets")
        owner = as_tensor(owner, "The owners")
        if len(owner) != len(inputs) or len(owner) != len(targets):
            raise FieldError(
                f"ClientData.from_owners needs one owner and one target per example, got {len(inputs)} "
                f"inputs, {len(targets)} targets and {len(owner)} owners."
            )
        outside = owner[(owner < 0) | (owner >= num_clients)]
        if owner.is_floating_point() or owner.ndim != 1 or len(outside):
            got = outside[0].item() if len(outside) else f"{owner.dtype} of shape {tuple(owner.shape)}"
            raise FieldError(
                f"ClientData.from_owners needs owners that are whole numbers from 0 to {num_clients - 1}, "
                f"got {got}."
            )
        order = torch.argsort(owner, stable=True)
        sizes = torch.bincount(owner, minlength=num_clients)
        known = given_names(names, num_clients)
        return cls(inputs[order], targets[order], offsets_of(sizes), known)

    def __repr__(self) -> str:
        examples = f"{len(self.inputs)} examples of shape {tuple(self.inputs.shape[1:])}"
        return f"ClientData({counted(self.num_clients, 'client')}, {examples})"

    @property
    def num_clients(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def sizes(self) -> Tensor:
        """(N,) examples of each client."""
        return self.offsets.diff()

    def rows_of(self, client: int) -> slice:
        """Rows of one client."""
        return slice(int(self.offsets[client]), int(self.offsets[client + 1]))

    def examples_of(self, client: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets of one client."""
        rows = self.rows_of(client)
        return self.inputs[rows], self.targets[rows]

    def hold_out(self, share: float, key: Key | None = None) -> tuple[Self, Self]:
        """Training and held-out data of the same clients; the key draws the examples.

        A client of n ≥ 2 examples holds out max(1, round(share·n)) of them, but never its last; a client of one
        example keeps it.

        >>> train, held_out = ClientData.from_lists([[[1.0]] * 10, [[2.0]]], [[0] * 10, [1]]).hold_out(0.2)
        >>> train.sizes.tolist(), held_out.sizes.tolist()
        ([8, 1], [2, 0])
        """
        if not is_number(share) or not 0 < share < 1:
            raise FieldError(f"ClientData.hold_out needs a share above 0 and below 1, got {share!r}.")
        counts = (
            (share * self.sizes.double()).round().long().clamp(min=1).minimum((self.sizes - 1).clamp(min=0))
        )
        if not bool(counts.any()):
            raise DataError("To hold out examples, some client must have at least two, got none.")
        owner = torch.repeat_interleave(torch.arange(self.num_clients), self.sizes)
        order = shuffled_within(owner.numpy(), (key or Key.from_seed(0)).generator())
        held_out = torch.zeros(len(owner), dtype=torch.bool)
        held_out[torch.from_numpy(order)] = torch.arange(len(owner)) - self.offsets[owner] < counts[owner]
        return (
            self._selected(~held_out, offsets_of(self.sizes - counts)),
            self._selected(held_out, offsets_of(counts)),
        )

    def blank(self, rows: int, device: torch.device) -> "ClientData":
        """Zeros in the form of these examples, on a device, so many of a single client."""
        inputs, targets = (
            part.new_zeros((rows, *part.shape[1:]), device=device) for part in (self.inputs, self.targets)
        )
        return ClientData(inputs, targets, torch.tensor([0, rows]))

    def _selected(self, rows: Tensor, offsets: Tensor) -> Self:
        return replace(self, inputs=self.inputs[rows], targets=self.targets[rows], offsets=offsets)

    def whose(self, row: int) -> str:
        """The label of the client that owns a row."""
        return label(int(torch.searchsorted(self.offsets, row, right=True)) - 1, self.names)

    def to(self, device: torch.device, dtype: torch.dtype) -> Self:
        """The same data on a device, floating-point values in the given type, refused if they do not fit it."""
        inputs, targets = _moved(self.inputs, device, dtype), _moved(self.targets, device, dtype)
        for kind, given, moved in (("inputs", self.inputs, inputs), ("targets", self.targets, targets)):
            row = None if moved.dtype == given.dtype else first_non_finite(moved)
            if row is not None:
                name, largest = str(dtype).removeprefix("torch."), torch.finfo(dtype).max
                raise FieldError(
                    f"The {kind} of {self.whose(row)} must fit dtype {name}, which ends at {largest:.2g}, got a larger "
                    f"number in row {row}: scale the data, or use dtype float64."
                )
        return replace(self, inputs=inputs, targets=targets)


def offsets_of(sizes: Tensor) -> Tensor:
    """Where the rows of each client begin, and where the last one's end."""
    return torch.cat([torch.zeros(1, dtype=torch.int64), sizes.cumsum(0)])


def _moved(values: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    return values.to(device, dtype) if values.is_floating_point() else values.to(device)
