"""What server and clients say to each other on Flower, as records of arrays and of plain values.

| message | arrays | values |
|---|---|---|
| introduction | none | client, number of examples, form of the model |
| question | params, buffers, `shared.<name>` | who, which round, from which memory, solver, steps, batch, keys |
| answer | delta, buffers, `message.<name>` | client, round, number of steps and of examples, loss |
| examination | params, buffers | which part of the data |
| marks | none | client, number of examples, loss and metrics |
| refusal | none | reason, sentence |

Arrays travel as .npy without pickles. Whoever reads them knows what they must look like, so a header is compared
with the one expected and never believed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from torch import Tensor

from fairlead.errors import FairleadError
from fairlead.local_solver import LocalSolver
from fairlead.parameters import FlatModule
from fairlead.plain_data import from_plain, to_plain
from fairlead.randomness import Key
from fairlead.records import Broadcast, Vectors
from fairlead.reply_checks import ClientReply, PackedArray, ReplyError, content_of, numbers_in
from fairlead.worlds.message_sizes import MessageSizes

_ARRAYS, _VALUES, _REFUSAL = "fairlead.arrays", "fairlead.values", "fairlead.refusal"
_SHARED, _MESSAGE = "shared.", "message."
_WHOLE = ("attempt", "client", "base", "num_steps", "batch_size")
"""Whole numbers of a question."""


class RequestError(FairleadError):
    """A client will not do what it is asked; `reason` is a short code for programs."""

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason


@dataclass(frozen=True)
class ModelForm(MessageSizes):
    """The model that server and clients must agree on."""

    digest: str
    """Of the names and sizes of all parameters, in order."""

    @staticmethod
    def of(model: FlatModule, dtype: torch.dtype) -> ModelForm:
        digest = sha256(json.dumps([list(model.layout.items()), str(dtype)]).encode()).hexdigest()[:16]
        return ModelForm(sum(model.sizes), len(model.initial_buffers()), dtype, digest)

    def model_shapes(self, params: str) -> dict[str, tuple[int, ...]]:
        """Shapes of the arrays of a model, whose parameters travel under the given name."""
        return {params: (self.num_parameters,), "buffers": (self.num_buffers,)}


@dataclass(frozen=True)
class Introduction:
    """Who a node is."""

    client: int
    num_examples: int
    digest: str

    def to_records(self) -> RecordDict:
        return _records(vars(self))

    @staticmethod
    def from_records(content: RecordDict) -> Introduction:
        values = _values(content)
        return Introduction(_whole(values, "client"), _whole(values, "num_examples"), _text(values, "digest"))


@dataclass(frozen=True, eq=False)
class Question:
    """The local work that one client is asked to do."""

    run: str
    """Names the run, so that clients keep the memories of different runs apart."""
    attempt: int
    """How often the server of this run has been started: what an earlier one asked is out of date."""
    client: int
    base: int
    """Which memory to start from: 0 for none, else what the server last learnt that the client keeps."""
    num_steps: int
    batch_size: int
    batches: Key
    noise: Key
    order: Broadcast

    @property
    def version(self) -> int:
        """The name of the memory that this work leaves behind."""
        return self.order.round + 1

    def on(self, device: torch.device) -> Question:
        """The same with its vectors on a device."""
        order = self.order
        moved = replace(
            order,
            anchor=order.anchor.to(device),
            buffers=order.buffers.to(device),
            shared={name: vector.to(device) for name, vector in order.shared.items()},
        )
        return replace(self, order=moved)

    def to_records(self) -> RecordDict:
        order = self.order
        vectors = {f"{_SHARED}{name}": vector for name, vector in order.shared.items()}
        return _records(
            {
                **{name: getattr(self, name) for name in ("run", *_WHOLE)},
                "round": order.round,
                "solver": json.dumps(to_plain(order.solver, LocalSolver)),
                "batches": self.batches.name,
                "noise": self.noise.name,
            },
            {"params": order.anchor, "buffers": order.buffers, **vectors},
        )

    @staticmethod
    def from_records(content: RecordDict, form: ModelForm) -> Question:
        """The question in a message, all of which is checked: a client owes its server no trust."""
        values = _values(content)
        solver = _solver(_text(values, "solver"))
        shapes = form.shared_shapes(solver)
        extra = {f"{_SHARED}{name}": shape for name, shape in shapes.items()}
        arrays = _opened(content, {**form.model_shapes("params"), **extra}, form.dtype)
        shared = {name: arrays[f"{_SHARED}{name}"] for name in shapes}
        round = _whole(values, "round")
        return Question(
            run=_text(values, "run"),
            **{name: _whole(values, name) for name in _WHOLE},
            batches=_key(values, "batches"),
            noise=_key(values, "noise"),
            order=Broadcast(round, solver, arrays["params"], arrays["buffers"], shared),
        )


@dataclass(frozen=True, eq=False)
class Answer:
    """What a client has done."""

    client: int
    round: int
    num_steps: int
    num_examples: int
    loss: float
    delta: Tensor
    buffers: Tensor
    messages: Vectors

    def to_records(self) -> RecordDict:
        plain = ("client", "round", "num_steps", "num_examples", "loss")
        extra = {f"{_MESSAGE}{name}": vector for name, vector in self.messages.items()}
        arrays = {"delta": self.delta, "buffers": self.buffers, **extra}
        return _records({name: getattr(self, name) for name in plain}, arrays)


def answer_shapes(form: ModelForm, solver: LocalSolver) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the arrays in an answer."""
    uploads = form.upload_lengths(solver)
    return {**form.model_shapes("delta"), **{f"{_MESSAGE}{name}": (n,) for name, n in uploads.items()}}


def uploads_in(arrays: Vectors) -> dict[str, Tensor]:
    """The extra uploads among the arrays of an answer, by the names that corrections give them."""
    return {n.removeprefix(_MESSAGE): v for n, v in arrays.items() if n.startswith(_MESSAGE)}


def unopened(content: RecordDict) -> ClientReply:
    """An answer as it came, for `reply_checks.validate_reply` to judge before anything is loaded."""
    values = dict(content.config_records.get(_VALUES, ConfigRecord()))
    record = content.array_records.get(_ARRAYS, ArrayRecord())
    return ClientReply(
        client=values.pop("client", None),
        round=values.pop("round", None),
        arrays={name: packed(array) for name, array in record.items()},
        numbers=values,
    )


def packed(array: Array) -> PackedArray:
    """An array as Flower carries it, of which nothing is believed."""
    return PackedArray(array.dtype, tuple(array.shape), array.data, "npy")


def examination(params: Tensor, buffers: Tensor, *, on_training_data: bool) -> RecordDict:
    """Asks a client how good a model is on its own data."""
    return _records({"on_training_data": on_training_data}, {"params": params, "buffers": buffers})


def open_examination(content: RecordDict, form: ModelForm) -> tuple[Tensor, Tensor, bool]:
    """Parameters, running statistics and whether the training data are meant."""
    arrays = _opened(content, form.model_shapes("params"), form.dtype)
    return arrays["params"], arrays["buffers"], bool(_values(content).get("on_training_data", False))


def marks(client: int, num_examples: int, figures: Mapping[str, float]) -> RecordDict:
    """How good a model is on a client's data: `loss` and metrics."""
    return _records({"client": client, "num_examples": num_examples, **figures})


def open_marks(content: RecordDict) -> tuple[int, dict[str, float]]:
    """The client and its figures."""
    values = _values(content)
    # Names reach terminals and files: short, and without control characters.
    figures = {n: v for n, v in values.items() if isinstance(v, float) and n.isprintable() and len(n) <= 100}
    return _whole(values, "client"), figures


def refusal(reason: str, sentence: str) -> RecordDict:
    """A client's no."""
    return RecordDict({_REFUSAL: ConfigRecord({"reason": reason, "sentence": sentence})})


def refusal_in(content: RecordDict) -> tuple[str, str] | None:
    """Reason and sentence of a client that said no; None where it did not."""
    record = content.config_records.get(_REFUSAL)
    if record is None:
        return None
    # Clients' words reach terminals and files: short, and without control characters.
    reason, sentence = (ascii(str(record.get(name, "")))[1:-1][:200] for name in ("reason", "sentence"))
    return reason, sentence


def _records(values: Mapping[str, Any], arrays: Mapping[str, Tensor] | None = None) -> RecordDict:
    content = RecordDict({_VALUES: ConfigRecord(dict(values))})
    if arrays is not None:
        content[_ARRAYS] = ArrayRecord({name: Array(v.detach().cpu().numpy()) for name, v in arrays.items()})
    return content


def _values(content: RecordDict) -> ConfigRecord:
    record = content.config_records.get(_VALUES)
    if record is None:
        raise RequestError("malformed", "The message is not one of fairlead's.")
    return record


def _opened(
    content: RecordDict, shapes: Mapping[str, tuple[int, ...]], dtype: torch.dtype
) -> dict[str, Tensor]:
    """The arrays of a message that must have exactly these names, shapes and type."""
    record = content.array_records.get(_ARRAYS, ArrayRecord())
    if set(record) != set(shapes):
        raise RequestError("malformed", f"The message must hold the arrays {sorted(shapes)}.")
    return {name: _unpacked(name, record[name], shape, dtype) for name, shape in shapes.items()}


def _unpacked(name: str, array: Array, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    try:
        values = numbers_in(content_of(name, packed(array), shape, dtype), dtype).reshape(shape)
    except ReplyError as fault:
        raise RequestError(fault.reason, f"The message cannot be used: {fault}.") from fault
    if not bool(torch.isfinite(values).all()):
        raise RequestError("not finite", f"The array {name} holds NaN or infinity.")
    return values


def _solver(text: str) -> LocalSolver:
    try:
        return from_plain(LocalSolver, json.loads(text), "solver")
    except (FairleadError, ValueError, RecursionError) as error:
        raise RequestError("unknown solver", f"The solver cannot be used here: {error}") from error


def _whole(values: ConfigRecord, name: str) -> int:
    value = values.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise RequestError("malformed", f"{name} must be a whole number of at least 0.")
    return value


def _text(values: ConfigRecord, name: str) -> str:
    value = values.get(name)
    if not isinstance(value, str):
        raise RequestError("malformed", f"{name} must be text.")
    return value


def _key(values: ConfigRecord, name: str) -> Key:
    value = values.get(name)
    if not isinstance(value, bytes) or len(value) != 16:
        raise RequestError("malformed", f"{name} must be a key of 16 bytes.")
    return Key(value)
