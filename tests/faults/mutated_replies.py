"""Replies of clients, sound ones and ones with a fault of every kind that the wire or a liar can produce."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from io import BytesIO
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from fairlead.reply_checks import ClientReply, PackedArray, Reason, ReplyForm

ROUND, NUM_CLIENTS, ASKED, RECEIVED = 7, 20, (2, 3, 5, 11, 19), (3, 11)

Random = np.random.Generator
Faulty = tuple[ClientReply, set[Reason]]
"""A reply with one fault, and the reasons for which it may be refused."""


def reply_form(random: Random) -> ReplyForm:
    """A form of arrays with one, two or no axes, in single or double precision."""
    d = int(random.integers(2, 40))
    shapes: dict[str, tuple[int, ...]] = {"delta": (d,), "buffers": (int(random.integers(0, 4)),)}
    shapes |= {"control": (d,), "kernel": (2, d), "age": ()}
    dtype = (torch.float32, torch.float64)[int(random.integers(2))]
    return ReplyForm(ROUND, NUM_CLIENTS, ASKED, shapes, dtype)


def packed(values: np.ndarray[Any, Any], encoding: Literal["raw", "npy"]) -> PackedArray:
    """An array as an honest client sends it."""
    data = values.tobytes()
    if encoding == "npy":
        file = BytesIO()
        np.save(file, values, allow_pickle=False)
        data = file.getvalue()
    return PackedArray(values.dtype.name, values.shape, data, encoding)


def sound_reply(form: ReplyForm, random: Random) -> tuple[ClientReply, dict[str, np.ndarray[Any, Any]]]:
    """A reply that must be let in, and the numbers that it carries; some are zero, some huge, a few tiny."""
    dtype = str(form.dtype).removeprefix("torch.")
    sent = {}
    for name, shape in form.arrays.items():
        values = random.standard_normal(shape) * 10.0 ** random.integers(-6, 9)
        values = np.asarray(np.where(random.random(shape) < 0.2, 0.0, values)).astype(dtype)
        if values.size >= 20:
            values.flat[0] = np.finfo(dtype).tiny / 4
        sent[name] = values
    encoding: Literal["raw", "npy"] = "npy" if random.random() < 0.5 else "raw"
    reply = ClientReply(
        client=int(random.choice([client for client in ASKED if client not in RECEIVED])),
        round=ROUND,
        arrays={name: packed(values, encoding) for name, values in sent.items()},
        numbers={
            "num_steps": int(random.integers(1, 1000)),
            "num_examples": int(random.integers(1, 10**6)),
            "loss": float(random.normal()),
        },
    )
    return reply, sent


class _Case(NamedTuple):
    """A sound reply that is about to be spoilt."""

    reply: ClientReply
    sent: dict[str, np.ndarray[Any, Any]]
    form: ReplyForm
    random: Random

    def with_array(self, name: str, array: Any) -> ClientReply:
        return replace(self.reply, arrays={**self.reply.arrays, name: array})

    def with_number(self, name: str, value: object) -> ClientReply:
        return replace(self.reply, numbers={**self.reply.numbers, name: value})

    def pick(self, choices: list[Any]) -> Any:
        return choices[int(self.random.integers(len(choices)))]

    def some_array(self) -> str:
        """The name of an array with something in it."""
        return str(self.pick([name for name, values in self.sent.items() if values.size]))

    def encoding(self) -> Literal["raw", "npy"]:
        return self.reply.arrays["delta"].encoding


def _with_values(case: _Case, poison: Callable[[np.ndarray[Any, Any]], None]) -> ClientReply:
    name = case.some_array()
    values = case.sent[name].copy()
    poison(values.reshape(-1))
    return case.with_array(name, packed(values, case.encoding()))


def _entry(case: _Case, value: float) -> ClientReply:
    def poison(flat: np.ndarray[Any, Any]) -> None:
        flat[int(case.random.integers(len(flat)))] = value

    return _with_values(case, poison)


def wrong_shape(case: _Case) -> Faulty:
    name = case.some_array()
    values = case.sent[name]
    other = case.pick([(*values.shape, 2), (values.size + 1,), (0,), (3, values.size)])
    wrong = np.resize(values, other)
    return case.with_array(name, packed(wrong, case.encoding())), {Reason.WRONG_SHAPE}


def broadcastable_shape(case: _Case) -> Faulty:
    """Shapes that arithmetic with the right one would silently accept."""
    shape = case.sent["delta"].shape
    other = case.pick([(1,), (), (1, *shape), (*shape, 1), (1, 1, *shape)])
    values = np.resize(case.sent["delta"], other)
    return case.with_array("delta", packed(values, case.encoding())), {Reason.WRONG_SHAPE}


def wrong_dtype(case: _Case) -> Faulty:
    right = str(case.form.dtype).removeprefix("torch.")
    kinds = ["float16", "int32", "int64", "uint8", "bool", "complex64", "S4", "float32", "float64"]
    name = case.some_array()
    wrong = np.zeros(case.sent[name].shape, case.pick([kind for kind in kinds if kind != right]))
    return case.with_array(name, packed(wrong, case.encoding())), {Reason.WRONG_DTYPE}


def strange_dtype(case: _Case) -> Faulty:
    array = case.reply.arrays["delta"]
    dtype = case.pick(["object", "", "float32; rm", "float" * 1000, "\x1b[2J", 4, None, b"float32", ["f4"]])
    return case.with_array("delta", array._replace(dtype=dtype)), {Reason.WRONG_DTYPE}


def strange_shape(case: _Case) -> Faulty:
    array, d = case.reply.arrays["delta"], len(case.sent["delta"])
    shape = case.pick([None, d, [d], (float(d),), (str(d),), (np.int64(d),), (None,), "delta"])
    return case.with_array("delta", array._replace(shape=shape)), {Reason.MALFORMED}


def not_a_number(case: _Case) -> Faulty:
    return _entry(case, math.nan), {Reason.NOT_FINITE}


def infinite(case: _Case) -> Faulty:
    return _entry(case, case.pick([math.inf, -math.inf])), {Reason.NOT_FINITE}


def nan_among_huge(case: _Case) -> Faulty:
    def poison(flat: np.ndarray[Any, Any]) -> None:
        flat[:] = 1e30
        flat[-1] = math.nan

    return _with_values(case, poison), {Reason.NOT_FINITE}


def huge_entry(case: _Case) -> Faulty:
    value = 10.0 ** case.random.uniform(12.01, 38) * case.pick([-1, 1])
    return _entry(case, case.pick([value, 1e30, -1e30])), {Reason.TOO_LARGE}


def subnormal_flood(case: _Case) -> Faulty:
    tiny = float(np.finfo(case.sent["delta"].dtype).tiny)

    def poison(flat: np.ndarray[Any, Any]) -> None:
        count = max(math.floor(0.1 * len(flat)) + 1, int(case.random.integers(1, len(flat) + 1)))
        flat[:count] = tiny * case.random.uniform(0.001, 0.9, count) * case.pick([-1, 1])

    return _with_values(case, poison), {Reason.SUBNORMAL}


def lying_length(case: _Case) -> Faulty:
    name = case.some_array()
    data = case.reply.arrays[name].data
    cut = int(case.random.integers(0, len(data)))
    wrong = case.pick([data[:cut], data + b"\0", data * 2, b"", data + data[-4:]])
    return case.with_array(name, case.reply.arrays[name]._replace(data=wrong)), {Reason.LYING_HEADER}


def lying_size(case: _Case) -> Faulty:
    """A header that asks for terabytes, or for a negative number of bytes."""
    name = case.some_array()
    shape = case.pick([(2**40,), (-1,), (10**30,), (2**62, 2**62), (1,) * 65, (-(10**6000),)])
    return case.with_array(name, case.reply.arrays[name]._replace(shape=shape)), {Reason.WRONG_SHAPE}


_UNPARSABLE = (
    b"{[1]: 2}",
    b"{1: 1, 'a': 2}",
    b"{'descr': (",
    b"{'descr': (), 'fortran_order': False, 'shape': (2,)}",
    b"{'descr': '<f4', 'fortran_order': False, 'shape': (2L,), }",
)
"""Headers at which numpy's own parser raises TypeError, TokenError or IndexError, or warns."""


def _npy_with(header: bytes) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(8)


def lying_npy(case: _Case) -> Faulty:
    """A file whose own header contradicts the message, or is none."""
    d, right = len(case.sent["delta"]), case.sent["delta"]
    swapped = packed(right.astype(right.dtype.newbyteorder(">")), "npy").data
    header = packed(right, "npy").data.replace(b"(%d,)" % d, b"(%d,)" % (10**9 + d))
    integers = packed(right.view(f"int{8 * right.itemsize}"), "npy").data
    code = packed(right, "npy").data.replace(b"False", b"exit()")
    garbage = [
        b"PK\x03\x04" + bytes(100),
        b"\x93NUMPY",
        b"\x93NUMPY\x09\x00\xff\xff" + bytes(9),
        b"\x80\x04K.",
        *(_npy_with(header) for header in _UNPARSABLE),
    ]
    data = case.pick([swapped, header, integers, code, packed(right[1:], "npy").data, *garbage])
    lying = PackedArray(right.dtype.name, right.shape, data, "npy")
    return case.with_array("delta", lying), {Reason.LYING_HEADER}


def no_array(case: _Case) -> Faulty:
    array: Any = case.reply.arrays["delta"]
    thing = case.pick([None, 1.0, [1.0], array.data, array._replace(data=None), array._replace(data="text")])
    return case.with_array("delta", thing), {Reason.MALFORMED}


def missing_key(case: _Case) -> Faulty:
    arrays, numbers = dict(case.reply.arrays), dict(case.reply.numbers)
    either: dict[str, Any] = case.pick([arrays, numbers])
    del either[case.pick(list(either))]
    return replace(case.reply, arrays=arrays, numbers=numbers), {Reason.MISSING}


def extra_key(case: _Case) -> Faulty:
    name = case.pick(["bias", "", "delta ", "Delta", "__class__", "x" * 10_000, "\x1b[31m", "../delta"])
    if case.random.random() < 0.5:
        return case.with_number(name, 1), {Reason.EXTRA}
    return case.with_array(name, case.reply.arrays["delta"]), {Reason.EXTRA}


def nameless(case: _Case) -> Faulty:
    wrong: Any = case.pick([None, [1, 2], "delta", {1: 2}, {None: 3}])
    either = case.pick(["arrays", "numbers"])
    return replace(case.reply, **{either: wrong}), {Reason.MALFORMED}


def wrong_round(case: _Case) -> Faulty:
    other = case.pick([ROUND - 1, ROUND + 1, 0, -1, -(2**63), 2**64, 10**5000])
    return replace(case.reply, round=other), {Reason.WRONG_ROUND}


def strange_round(case: _Case) -> Faulty:
    other = case.pick([str(ROUND), float(ROUND), None, True, math.nan, [ROUND], np.int64(ROUND)])
    return replace(case.reply, round=other), {Reason.MALFORMED}


def unknown_client(case: _Case) -> Faulty:
    other = case.pick([-1, NUM_CLIENTS, 10**9, -(2**63), 10**5000, -(10**5000)])
    return replace(case.reply, client=other), {Reason.UNKNOWN_CLIENT}


def strange_client(case: _Case) -> Faulty:
    other = case.pick(["2", 2.0, None, True, False, math.nan, (2,), b"2", np.int64(2)])
    return replace(case.reply, client=other), {Reason.MALFORMED}


def not_asked(case: _Case) -> Faulty:
    others = [client for client in range(NUM_CLIENTS) if client not in ASKED]
    return replace(case.reply, client=case.pick(others)), {Reason.NOT_ASKED}


def duplicate(case: _Case) -> Faulty:
    return replace(case.reply, client=case.pick(list(RECEIVED))), {Reason.DUPLICATE}


def number_out_of_range(case: _Case) -> Faulty:
    name = case.pick(["num_steps", "num_examples"])
    value = case.pick([0, -1, -(2**63), 10**9 + 1, 2**63, 10**400, 10**5000])
    return case.with_number(name, value), {Reason.OUT_OF_RANGE}


def strange_number(case: _Case) -> Faulty:
    name = case.pick(["num_steps", "num_examples"])
    value = case.pick([math.nan, math.inf, 2.0, 2.5, True, None, "3", [3], 1e300, np.float64(3), 3j])
    return case.with_number(name, value), {Reason.MALFORMED}


def bad_loss(case: _Case) -> Faulty:
    values = [math.nan, math.inf, -math.inf, 1e30, -1e30, 10**400]
    return case.with_number("loss", case.pick(values)), {Reason.OUT_OF_RANGE}


def strange_loss(case: _Case) -> Faulty:
    return case.with_number("loss", case.pick([None, True, "0.5", [0.5], 1j])), {Reason.MALFORMED}


MUTATIONS: tuple[Callable[[_Case], Faulty], ...] = (
    wrong_shape,
    broadcastable_shape,
    wrong_dtype,
    strange_dtype,
    strange_shape,
    not_a_number,
    infinite,
    nan_among_huge,
    huge_entry,
    subnormal_flood,
    lying_length,
    lying_size,
    lying_npy,
    no_array,
    missing_key,
    extra_key,
    nameless,
    wrong_round,
    strange_round,
    unknown_client,
    strange_client,
    not_asked,
    duplicate,
    number_out_of_range,
    strange_number,
    bad_loss,
    strange_loss,
)


class MutatedReply(NamedTuple):
    """A reply that must be refused."""

    mutation: str
    reply: ClientReply
    form: ReplyForm
    reasons: set[Reason]


def mutated_replies(count: int, seed: int) -> Iterator[MutatedReply]:
    """Sound replies, each spoilt by one mutation; all take turns, the details are drawn."""
    random = np.random.default_rng(seed)
    for index in range(count):
        form = reply_form(random)
        reply, sent = sound_reply(form, random)
        mutation = MUTATIONS[index % len(MUTATIONS)]
        spoilt, reasons = mutation(_Case(reply, sent, form, random))
        yield MutatedReply(mutation.__name__, spoilt, form, reasons)
