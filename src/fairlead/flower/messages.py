"""The messages between server and clients on Flower, as records of arrays and of plain values.

| message | arrays | values |
|---|---|---|
| introduction | none | client, number of examples, digest of the model, version of fairlead |
| sums | none | in the request the preprocessing and a point, in the reply the client's `ClientSums` |
| question | params, buffers, `shared.<name>` | run, attempt, round, client, memory, solver, steps, batch, keys |
| answer | delta (unless encoded), buffers, `message.<name>` | client, round, number of steps and of examples, loss |
| stages of secure sums | see `secure_sums` | |
| evaluation | params, buffers | which part of the data |
| metrics | none | client, number of examples, loss and metrics |
| refusal | none | reason, sentence |

A question and an evaluation also hold the preprocessing that clients agreed on, if there is one.

Arrays travel as .npy without pickles. The reader knows their names, shapes and type, and checks every header against
them before it loads anything.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, TypeVar

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from numpy.typing import NDArray
from torch import Tensor

from fairlead import __version__
from fairlead.clients.preprocessing import Agreement, ClientSums, Preprocessing
from fairlead.errors import FairleadError
from fairlead.experiments.record_io import FactsT, decoded
from fairlead.local_solver import LocalSolver
from fairlead.parameters import FlatModule
from fairlead.plain_data import from_plain, to_plain
from fairlead.randomness import Key
from fairlead.records import Broadcast, Vectors, WorkOrder
from fairlead.reply_checks import (
    ClientReply,
    PackedArray,
    Reason,
    ReplyError,
    ReplyForm,
    ReplyLimits,
    content_of,
    numbers_in,
)
from fairlead.worlds.behavior import MessageSizes

_ARRAYS, _VALUES, _REFUSAL = "fairlead.arrays", "fairlead.values", "fairlead.refusal"
_SUMS, _AGREEMENT = "fairlead.sums", "fairlead.agreement"
_SHARED, _MESSAGE = "shared.", "message."
_COUNTS = ("attempt", "client", "base", "num_steps", "batch_size")
"""Fields of a question that are whole numbers."""


class RequestError(FairleadError):
    """A client refuses a request; `reason` is a short code for programs."""

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason


@dataclass(frozen=True)
class ModelForm(MessageSizes):
    """The model that server and clients must agree on."""

    digest: str
    """Hash of the names and sizes of all trained parameters, in order, and of the numbers of frozen ones."""

    @staticmethod
    def of(model: FlatModule, dtype: torch.dtype) -> "ModelForm":
        facts = json.dumps([list(model.layout.items()), str(dtype)]) + model.frozen_digest(dtype)
        digest = sha256(facts.encode()).hexdigest()[:16]
        return ModelForm(sum(model.sizes), len(model.initial_buffers()), dtype, digest)

    def model_shapes(self, params: str) -> dict[str, tuple[int, ...]]:
        """Shapes of the arrays of a model, with its parameters under the given name."""
        return {params: (self.num_parameters,), "buffers": (self.num_buffers,)}


@dataclass(frozen=True)
class Introduction:
    """The client at a node, and the model that it trains."""

    client: int
    num_examples: int
    digest: str
    version: str = __version__
    """Of fairlead at the node; messages may change with its major and minor number."""

    def to_records(self) -> RecordDict:
        return _records(vars(self))

    @staticmethod
    def from_records(content: RecordDict) -> "Introduction":
        values = _values(content)
        version = printable(str(values.get("version", "before 0.1")))
        if version.split(".")[:2] != __version__.split(".")[:2]:
            raise RequestError(
                "other version",
                f"it runs fairlead {version} and the server {__version__}: install the same major and minor version.",
            )
        size, digest = _value(values, "num_examples", int), _value(values, "digest", str)
        return Introduction(_value(values, "client", int), size, digest, version)


@dataclass(frozen=True, eq=False)
class Question:
    """A request for local work, to one client."""

    run: str
    """Identifies the run: clients keep one memory per run."""
    attempt: int
    """How often the server of this run has been started; questions of earlier attempts are out of date."""
    client: int
    base: int
    """The version of the client's memory to start from; 0 for an empty one."""
    num_steps: int
    batch_size: int
    batches: Key
    noise: Key
    order: Broadcast
    hides: bool = False
    """Whether the client keeps its vectors for a secure sum, and answers with public keys."""
    clip: float = 0.0
    """Length to which it then clips its update; 0 for none."""

    @property
    def version(self) -> int:
        """The version of the client's memory after this work."""
        return self.order.round + 1

    def to_records(self) -> RecordDict:
        order = self.order
        shared = {f"{_SHARED}{name}": vector for name, vector in order.shared.items()}
        return _records(
            {
                **{name: getattr(self, name) for name in ("run", *_COUNTS)},
                "round": order.round,
                "solver": json.dumps(to_plain(order.solver, LocalSolver)),
                "batches": self.batches.name,
                "noise": self.noise.name,
                "hides": self.hides,
                "clip": self.clip,
            },
            {"params": order.anchor, "buffers": order.buffers, **shared},
        )

    @staticmethod
    def from_records(content: RecordDict, form: ModelForm, device: torch.device) -> "Question":
        """The question in a message. All of it is checked: a client need not trust its server."""
        values = _values(content)
        solver = _solver(_value(values, "solver", str))
        shapes = {f"{_SHARED}{name}": shape for name, shape in form.shared_shapes(solver).items()}
        arrays = _arrays(content, {**form.model_shapes("params"), **shapes}, form.dtype, device)
        shared = {name.removeprefix(_SHARED): arrays[name] for name in shapes}
        clip = values.get("clip")
        if not isinstance(clip, float) or not 0 <= clip < math.inf:
            raise RequestError("malformed", "clip must be a number of at least 0.")
        return Question(
            run=_value(values, "run", str),
            **{name: _value(values, name, int) for name in _COUNTS},
            batches=Key(_value(values, "batches", bytes)),
            noise=Key(_value(values, "noise", bytes)),
            order=Broadcast(
                _value(values, "round", int), solver, arrays["params"], arrays["buffers"], shared
            ),
            hides=values.get("hides") is True,
            clip=clip,
        )


def answer(delta: Tensor | None, buffers: Tensor, messages: Vectors, **values: float) -> RecordDict:
    """The result of a client's local work; `values` are client, round, num_steps, num_examples and loss.

    Without `delta`, the messages stand for the update.
    """
    uploads = {f"{_MESSAGE}{name}": vector for name, vector in messages.items()}
    sent = {} if delta is None else {"delta": delta}
    return _records(values, {**sent, "buffers": buffers, **uploads})


def answer_form(form: ModelForm, order: WorkOrder, num_clients: int, limits: ReplyLimits) -> ReplyForm:
    """The form of the answers to an order."""
    encoder, dim = order.solver.encoder, form.num_parameters
    uploads = {f"{_MESSAGE}{name}": part for name, part in form.uploads(order.solver).items()}
    shapes = {**form.model_shapes("delta"), **{name: tuple(part.shape) for name, part in uploads.items()}}
    if encoder is not None:
        shapes.pop("delta")

    def decode(arrays: dict[str, Tensor]) -> dict[str, Tensor]:
        assert encoder is not None
        message = uploads_in(arrays)
        if (fault := encoder.fault(message, dim)) is not None:
            raise ReplyError(Reason.OUT_OF_RANGE, fault)
        return {**arrays, "delta": encoder.decoded(message, dim)}

    return ReplyForm(
        round=order.round,
        num_clients=num_clients,
        asked=frozenset(order.cohort.clients.tolist()),
        arrays=shapes,
        dtype=form.dtype,
        limits=limits,
        dtypes={name: part.dtype for name, part in uploads.items()},
        decode=None if encoder is None else decode,
    )


def withhold(content: RecordDict, clip: float) -> dict[str, NDArray[np.float64]]:
    """Take all arrays and the loss out of an answer; `clip` bounds the length of the update, and 0 leaves it."""
    values, arrays = _values(content), content.array_records.pop(_ARRAYS)
    vectors = {name: array.numpy().astype(np.float64) for name, array in arrays.items()}
    vectors["loss"], values["loss"] = np.array([values["loss"]], dtype=np.float64), 0.0
    if clip:
        vectors["delta"] *= clip / max(float(np.linalg.norm(vectors["delta"])), clip)
    return vectors


def uploads_in(arrays: Vectors) -> dict[str, Tensor]:
    """The extra uploads among the arrays of an answer, by the names that corrections use."""
    return {n.removeprefix(_MESSAGE): v for n, v in arrays.items() if n.startswith(_MESSAGE)}


def unchecked_reply(content: RecordDict) -> ClientReply:
    """An answer as received, for `reply_checks.validate_reply` to check before anything is loaded."""
    values = dict(content.config_records.get(_VALUES, ConfigRecord()))
    record = content.array_records.get(_ARRAYS, ArrayRecord())
    return ClientReply(
        client=values.pop("client", None),
        round=values.pop("round", None),
        arrays={name: packed(array) for name, array in record.items()},
        numbers=values,
    )


def packed(array: Array) -> PackedArray:
    """An array as Flower carries it, unchecked."""
    return PackedArray(array.dtype, tuple(array.shape), array.data, "npy")


def evaluation_request(params: Tensor, buffers: Tensor, *, on_training_data: bool) -> RecordDict:
    """Asks a client to evaluate a model on its own data."""
    return _records({"on_training_data": on_training_data}, {"params": params, "buffers": buffers})


def asks_for_own_model(content: RecordDict) -> bool:
    """Whether an evaluation is that of the client's own model: such a request is a `Question`."""
    return "solver" in _values(content)


def read_evaluation_request(
    content: RecordDict, form: ModelForm, device: torch.device
) -> tuple[Tensor, Tensor, bool]:
    """Parameters, running statistics and whether to evaluate on the training data."""
    arrays = _arrays(content, form.model_shapes("params"), form.dtype, device)
    return arrays["params"], arrays["buffers"], bool(_values(content).get("on_training_data", False))


def metrics_reply(client: int, num_examples: int, metrics: Mapping[str, float]) -> RecordDict:
    """The loss and metrics of a model on a client's data."""
    return _records({"client": client, "num_examples": num_examples, **metrics})


def read_metrics(content: RecordDict) -> tuple[int, dict[str, float]]:
    """The client, and its loss and metrics."""
    values = _values(content)
    # Names reach terminals and files: short, and without control characters.
    metrics = {n: v for n, v in values.items() if isinstance(v, float) and n.isprintable() and len(n) <= 100}
    return _value(values, "client", int), metrics


def sums_request(wanted: Preprocessing, center: tuple[float, ...]) -> RecordDict:
    """Asks a client for the sums that a preprocessing needs, around a point."""
    plain = json.dumps(to_plain(wanted, Preprocessing))
    return RecordDict({_SUMS: ConfigRecord({"preprocessing": plain, "center": list(center)})})


def read_sums_request(content: RecordDict) -> tuple[Preprocessing, tuple[float, ...]] | None:
    """The preprocessing and the point of a request for sums; None for any other message."""
    record = content.config_records.get(_SUMS)
    if record is None:
        return None
    try:
        wanted = from_plain(Preprocessing, json.loads(_value(record, "preprocessing", str)), "preprocessing")
    except (ValueError, RecursionError) as error:
        raise RequestError("malformed", "preprocessing must be JSON.") from error
    return wanted, _decoded(Agreement, {"mean": record.get("center"), "scale": record.get("center")}).mean


def sums_reply(client: int, sums: ClientSums) -> RecordDict:
    """The sums of a client's training examples."""
    values = {name: list(value) if isinstance(value, tuple) else value for name, value in vars(sums).items()}
    return _records({"client": client, **values})


def read_sums(content: RecordDict) -> tuple[int, ClientSums]:
    """The client, and its sums."""
    values = _values(content)
    return _value(values, "client", int), _decoded(ClientSums, dict(values))


def attach_agreement(content: RecordDict, agreement: Agreement) -> None:
    """Tell a client with a request how examples are preprocessed."""
    content[_AGREEMENT] = ConfigRecord(agreement.told())


def agreement_in(content: RecordDict) -> Agreement | None:
    """The preprocessing that a request tells; None if examples stay as they are."""
    record = content.config_records.get(_AGREEMENT)
    return None if record is None else _decoded(Agreement, dict(record))


def _decoded(declared: type[FactsT], values: dict[str, Any]) -> FactsT:
    try:
        return decoded(declared, values)
    except (TypeError, ValueError) as error:
        raise RequestError("malformed", f"{declared.__name__} cannot be used: {error}") from error


def refusal(reason: str, sentence: str) -> RecordDict:
    """The reply of a client that refuses a request."""
    return RecordDict({_REFUSAL: ConfigRecord({"reason": reason, "sentence": sentence})})


def refusal_in(content: RecordDict) -> tuple[str, str] | None:
    """Reason and sentence of a client that refused; None for any other reply."""
    record = content.config_records.get(_REFUSAL)
    if record is None:
        return None
    reason, sentence = (printable(str(record.get(name, ""))) for name in ("reason", "sentence"))
    return reason, sentence


def printable(text: str) -> str:
    """Text of clients as it may reach terminals and files: short, and without control characters."""
    return ascii(text)[1:-1][:200]


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


def _arrays(
    content: RecordDict, shapes: Mapping[str, tuple[int, ...]], dtype: torch.dtype, device: torch.device
) -> dict[str, Tensor]:
    """The arrays of a message, on a device; they must have exactly these names, shapes and type."""
    record = content.array_records.get(_ARRAYS, ArrayRecord())
    if set(record) != set(shapes):
        raise RequestError("malformed", f"The message must hold the arrays {sorted(shapes)}.")
    arrays = {}
    for name, shape in shapes.items():
        try:
            values = numbers_in(content_of(name, packed(record[name]), shape, dtype), dtype)
        except ReplyError as fault:
            raise RequestError(fault.reason, f"The message cannot be used: {fault}.") from fault
        if not bool(torch.isfinite(values).all()):
            raise RequestError("not finite", f"The array {name} holds NaN or infinity.")
        arrays[name] = values.reshape(shape).to(device)
    return arrays


def _solver(text: str) -> LocalSolver:
    try:
        return from_plain(LocalSolver, json.loads(text), "solver")
    except (FairleadError, ValueError, RecursionError) as error:
        raise RequestError("unknown solver", f"The solver cannot be used here: {error}") from error


_FORMS = {int: "a whole number of at least 0", str: "text", bytes: "a key of 16 bytes"}
_Value = TypeVar("_Value", int, str, bytes)


def _value(values: ConfigRecord, name: str, kind: type[_Value]) -> _Value:
    value = values.get(name)
    if (
        type(value) is not kind
        or (isinstance(value, int) and value < 0)
        or (isinstance(value, bytes) and len(value) != 16)
    ):
        raise RequestError("malformed", f"{name} must be {_FORMS[kind]}.")
    return value
