"""Sums of clients' vectors that a server learns without the vectors (Bonawitz et al. 2017).

Each pair of clients agrees on a mask that one adds and the other subtracts, and each client adds a mask of its own. The
masks of pairs cancel in the sum. Clients hold shares of each other's secrets (Shamir), so that a threshold of them can
remove the own masks of all that arrived, and the pair masks of those that dropped out, but never both of one client.

| stage | the server sends | a client returns |
|---|---|---|
| train | the question of the round | its facts and two public keys; the vectors stay in the node's memory |
| share_keys | keys of all clients | its secrets in shares, encrypted for each other client |
| mask | the shares for it, weights of the sums | Σ_b w_b,i v_b,i in fixed point, masked |
| unmask | the clients that arrived | shares that remove the masks left in the sum |

Key agreement is X25519, shares travel under AES-GCM, and masks are streams of AES-CTR under keys of 256 bits. Flower's
own `secaggplus_mod` expands masks from seeds of at most 28 bits, which a server can try one by one.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from secrets import token_bytes
from typing import Any

import numpy as np
import torch
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from flwr.common.secure_aggregation.crypto.shamir import combine_shares, create_shares
from numpy.typing import NDArray
from torch import Tensor

from fairlead.flower.messages import Question, RequestError, packed, withhold
from fairlead.records import Refusal
from fairlead.reply_checks import ReplyError, content_of

STAGES = ("share_keys", "mask", "unmask")
"""The stages after training, by the action of their messages."""
STEP = 2.0**-36
"""The step of fixed-point numbers: their sum wraps at 2²⁷."""
_RECORD, _VECTORS = "fairlead.secure", "fairlead.vectors"
_NONCE = bytes(12)
"""Constant, because every key encrypts one message."""
_Integers = NDArray[np.int64]
_Floats = NDArray[np.float64]
BlockWeights = Mapping[str, _Floats]
"""Weights (k, m) of the k sums of a block of numbers (update, running statistics, ...) over m clients."""


@dataclass(frozen=True)
class SumGroup:
    """The clients of a round's sums, with their public keys: all clients and the server derive the same digest."""

    run: str
    attempt: int
    round: int
    threshold: int
    """Clients whose shares remove a mask."""
    clients: tuple[int, ...]
    channel_keys: tuple[bytes, ...]
    mask_keys: tuple[bytes, ...]

    def to_records(self) -> RecordDict:
        return _records({n: list(v) if isinstance(v, tuple) else v for n, v in vars(self).items()})

    @staticmethod
    def from_records(content: RecordDict) -> "SumGroup":
        kinds = {"clients": int, "channel_keys": bytes, "mask_keys": bytes}
        lists: dict[str, Any] = {name: tuple(_list(content, name, kind)) for name, kind in kinds.items()}
        if len(set(map(len, lists.values()))) > 1:
            raise RequestError("malformed", "Clients and keys of a secure sum differ in number.")
        counts = {name: _field(content, name, int) for name in ("attempt", "round", "threshold")}
        return SumGroup(_field(content, "run", str), **counts, **lists)

    @property
    def context(self) -> bytes:
        """What keys are bound to, so that none of them serves another sum."""
        plain = {n: [k.hex() for k in v] if n.endswith("_keys") else v for n, v in vars(self).items()}
        return sha256(json.dumps(plain, sort_keys=True).encode()).digest()

    def masks_of(
        self, client: int, secret: bytes, others: Iterable[int], bound: bytes, size: int
    ) -> _Integers:
        """The sum of the masks that a client shares with others; `bound` are the weights that all of them saw."""
        total = np.zeros(size, dtype=np.int64)
        for other in others:
            key = _agreed(secret, self.mask_keys[self.clients.index(other)], b"mask", self.context + bound)
            total += _stream(key, size) if client > other else -_stream(key, size)
        return total


def refuse_exposure(weights: BlockWeights, most: float) -> None:
    """Refuse sums that show almost nothing but one client.

        leverage_i = (W⁺W)_ii

    Symbols: W (k, m) the weights of a block. It is 1 if combinations of the sums equal the client's own vector.
    """
    for name, rows in weights.items():
        leverage = np.diag(np.linalg.pinv(rows) @ rows)
        if leverage.max(initial=0.0) > most:
            raise RequestError(
                "exposed",
                f"The sums of {name} would show one of {rows.shape[1]} clients almost alone (leverage "
                f"{leverage.max():.4g}, at most {most:g}; ClientLimits.leverage).",
            )


def public_keys_in(content: RecordDict) -> tuple[bytes, bytes]:
    """The public keys in the answer of a client that hides its vectors."""
    keys = _field(content, "channel_key", bytes), _field(content, "mask_key", bytes)
    if any(len(key) != 32 for key in keys):
        raise RequestError("malformed", "A public key of the secure sum is not one.")
    return keys


def hide(content: RecordDict, question: Question, state: RecordDict) -> None:
    """Move vectors and loss of an answer into a client's state, and put new public keys into the answer instead."""
    vectors = withhold(content, question.clip)
    asked = json.dumps((question.run, question.attempt, question.order.round))
    channel, mask = token_bytes(32), token_bytes(32)
    state[_RECORD] = ConfigRecord(
        {"stage": "train", "question": asked, "channel_secret": channel, "mask_secret": mask}
    )
    state[_VECTORS] = ArrayRecord({name: Array(vector) for name, vector in vectors.items()})
    content[_RECORD] = ConfigRecord({"channel_key": _public(channel), "mask_key": _public(mask)})


def reply_in_stage(
    stage: str, content: RecordDict, client: int, state: RecordDict, *, leverage: float
) -> RecordDict:
    """The reply of a client in a stage after training. Its state serves one stage after the other, and once."""
    kept = state.config_records.pop(_RECORD, ConfigRecord())
    if kept.get("stage") != ("train", *STAGES)[STAGES.index(stage)]:
        state.array_records.pop(_VECTORS, None)
        raise RequestError("no such sum", f"This node is not at the stage {stage} of a secure sum.")
    if stage == "share_keys":
        reply = _share_keys(SumGroup.from_records(content), client, kept)
    elif stage == "mask":
        vectors = {name: array.numpy() for name, array in state.array_records.pop(_VECTORS).items()}
        reply = _mask(content, client, kept, vectors, leverage)
    else:
        return _unmask(content, client, kept, leverage)
    state[_RECORD] = ConfigRecord({**kept, "stage": stage})
    return reply


def _share_keys(group: SumGroup, client: int, kept: ConfigRecord) -> RecordDict:
    everyone = group.clients
    if json.dumps((group.run, group.attempt, group.round)) != kept["question"]:
        raise RequestError(
            "out of date", f"The secure sum of round {group.round + 1} is not this client's latest."
        )
    own = (_public(_bytes(kept["channel_secret"])), _public(_bytes(kept["mask_secret"])))
    place = everyone.index(client) if client in everyone else -1
    if len(set(everyone)) < len(everyone) or (group.channel_keys[place], group.mask_keys[place]) != own:
        raise RequestError("malformed", "The list of clients of the secure sum is not true to this client.")
    if not len(everyone) / 2 < group.threshold <= len(everyone):
        raise RequestError(
            "low threshold",
            f"The threshold of a secure sum must be more than half of its {len(everyone)} clients, "
            f"got {group.threshold}.",
        )
    own_seed = token_bytes(32)
    secrets = (own_seed, _bytes(kept["mask_secret"]))
    shares = (create_shares(secret, group.threshold, len(everyone)) for secret in secrets)
    sent = [b"".join(pair) for pair in zip(*shares, strict=True)]
    kept.update({"own_seed": own_seed, "own_share": sent[place]})
    kept.update(group.to_records().config_records[_RECORD])
    for index, other in enumerate(everyone):
        cipher = _channel(kept, group, other, (client, other))
        sent[index] = b"" if other == client else cipher.encrypt(_NONCE, sent[index], None)
    return _records({"shares": sent})


def _mask(
    content: RecordDict, client: int, kept: ConfigRecord, vectors: Mapping[str, _Floats], leverage: float
) -> RecordDict:
    group = SumGroup.from_records(RecordDict({_RECORD: kept}))
    present, text = _list(content, "clients", int), _field(content, "weights", str)
    received = _list(content, "shares", bytes)
    if not _are_members(present, group, client) or len(received) != len(present):
        raise RequestError("malformed", "The clients of the secure sum have changed.")
    weights = _weights_in(text, len(present), vectors)
    refuse_exposure(weights, leverage)
    shares = []
    for other, sealed in zip(present, received, strict=True):
        if other == client:
            shares.append(_bytes(kept["own_share"]))
            continue
        try:
            shares.append(_channel(kept, group, other, (other, client)).decrypt(_NONCE, sealed, None))
        except InvalidTag as error:
            raise RequestError("malformed", f"The shares from client {other} are not its own.") from error
    numbers = flat_sums(weights, vectors, present.index(client), len(present))
    others, secret = [other for other in present if other != client], _bytes(kept["mask_secret"])
    numbers += group.masks_of(client, secret, others, _bound(text, present), len(numbers))
    numbers += _stream(_derived(_bytes(kept["own_seed"]), b"own", group.context), len(numbers))
    kept.update({"present": present, "weights": text, "shares": shares})
    return RecordDict({_VECTORS: ArrayRecord({"masked": Array(numbers)})})


def _unmask(content: RecordDict, client: int, kept: ConfigRecord, leverage: float) -> RecordDict:
    group = SumGroup.from_records(RecordDict({_RECORD: kept}))
    record = RecordDict({_RECORD: kept})
    present, shares = _list(record, "present", int), _list(record, "shares", bytes)
    arrived = _list(content, "clients", int)
    if not set(arrived) <= set(present) or not _are_members(arrived, group, client):
        raise RequestError("malformed", "The clients of the secure sum have changed.")
    places = [present.index(other) for other in arrived]
    weights = _weights_in(_field(record, "weights", str), len(present))
    refuse_exposure({name: rows[:, places] for name, rows in weights.items()}, leverage)
    # Half of each pair: the share of the own mask for clients that arrived, that of the pair masks for the others.
    halves = [(share[: len(share) // 2], share[len(share) // 2 :]) for share in shares]
    return _records({"shares": [h[other not in arrived] for other, h in zip(present, halves, strict=True)]})


def _bound(text: str, present: Sequence[int]) -> bytes:
    """The weights and clients that masks of pairs are bound to."""
    return sha256(text.encode()).digest() + json.dumps(present).encode()


def _are_members(clients: Sequence[int], group: SumGroup, own: int) -> bool:
    """Whether a list names enough members of the group, this client among them, each once."""
    distinct = set(clients)
    enough = len(distinct) == len(clients) >= max(group.threshold, 2)
    return enough and own in distinct and distinct <= set(group.clients)


def flat_sums(weights: BlockWeights, vectors: Mapping[str, _Floats], place: int, count: int) -> _Integers:
    """What one of `count` clients adds to all sums, in fixed point and one after the other."""
    parts = [np.outer(rows[:, place], vectors[name]).ravel() for name, rows in weights.items()]
    numbers = np.concatenate([np.zeros(0), *parts])
    most = 2.0**62 * STEP / count
    if not bool((np.abs(numbers) <= most).all()):
        raise RequestError(
            "too large", f"Numbers in a secure sum of {count} clients must be within ±{most:g}."
        )
    return np.rint(numbers / STEP).astype(np.int64)


@dataclass
class SecureSum:
    """The server's half: the sums over the clients that stayed to the end, and refusals of the others."""

    group: SumGroup
    lengths: Mapping[str, int]
    """Numbers in each block."""
    refused: list[Refusal] = field(default_factory=list)
    clients: list[int] = field(default_factory=list)
    """Those in the sums, ascending; none if too few stayed."""
    weights: BlockWeights = field(default_factory=dict)
    """Of the clients in the sums."""
    sums: dict[str, _Floats] = field(default_factory=dict)
    """(k, n) by block."""
    masked_bytes: int = 0
    """Size of all masked vectors received."""

    def run(
        self,
        exchange: Callable[[str, Mapping[int, RecordDict], Callable[[int, RecordDict], None]], list[Refusal]],
        weights_of: Callable[[Sequence[int]], BlockWeights],
    ) -> None:
        """Go through the stages; `exchange` sends requests and hands each good reply to a function."""
        group = self.group

        def shares_of(contents: Mapping[int, RecordDict], stage: str, count: int) -> dict[int, list[bytes]]:
            found: dict[int, list[bytes]] = {}

            def keep(client: int, reply: RecordDict) -> None:
                found[client] = _list(reply, "shares", bytes)
                if len(found[client]) != count:
                    del found[client]
                    raise RequestError(
                        "malformed", "It must send one share for each client of the secure sum."
                    )

            refused = exchange(stage, contents, keep)
            # A client is in the sum once its vector has arrived, whether or not it helps to unmask.
            self.refused += refused if stage == "share_keys" else []
            return dict(sorted(found.items()))

        if not self._has_enough(group.clients, "train"):
            return
        sealed = shares_of(dict.fromkeys(group.clients, group.to_records()), "share_keys", len(group.clients))
        present = list(sealed)
        if not self._has_enough(present, "share_keys"):
            return
        weights = weights_of(present)
        text = json.dumps({name: rows.tolist() for name, rows in weights.items()})
        sizes = [len(rows) * self.lengths[name] for name, rows in weights.items()]
        size, arrived = sum(sizes), list[int]()
        total = np.zeros(size, dtype=np.int64)

        def add(client: int, reply: RecordDict) -> None:
            np.add(total, _masked_in(reply, size), out=total)
            self.masked_bytes += total.nbytes
            arrived.append(client)

        requests = {}
        for client in present:
            place = group.clients.index(client)
            received = [sealed[other][place] for other in present]
            requests[client] = _records({"clients": present, "weights": text, "shares": received})
        self.refused += exchange("mask", requests, add)
        arrived.sort()
        if not self._has_enough(arrived, "mask"):
            return
        asked = dict.fromkeys(arrived, _records({"clients": arrived}))
        shares = shares_of(asked, "unmask", len(present))
        if not self._has_enough(list(shares), "unmask", arrived):
            return
        used = list(shares.values())[: group.threshold]
        for place, client in enumerate(present):
            try:
                secret = combine_shares([each[place] for each in used])
            except ValueError:
                self.void("The shares that remove the masks of the secure sum are damaged.", arrived)
                return
            if client in arrived:
                total -= _stream(_derived(secret, b"own", group.context), size)
            else:
                # A client that dropped out is missing from the sum, in which others have its masks.
                total += group.masks_of(client, secret, arrived, _bound(text, present), size)
        places = [present.index(client) for client in arrived]
        self.clients, self.weights = arrived, {name: rows[:, places] for name, rows in weights.items()}
        for (name, rows), numbers in zip(
            weights.items(), np.split(total, np.cumsum(sizes)[:-1]), strict=True
        ):
            self.sums[name] = numbers.reshape(len(rows), -1).astype(np.float64) * STEP

    def rows(self, name: str, like: Tensor) -> Tensor:
        """Stand-ins (m, n) for the rows of a block, with the same sums: their projection on the span of the weights."""
        rows = np.linalg.pinv(self.weights[name]) @ self.sums[name]
        return torch.from_numpy(rows).to(like)

    def _has_enough(self, clients: Sequence[int], stage: str, lost: Sequence[int] | None = None) -> bool:
        needed, everyone = max(self.group.threshold, 2), len(self.group.clients)
        if len(clients) < needed:
            sentence = f"{len(clients)} of {everyone} clients finished the stage {stage} of the secure sum"
            sentence = f"Round {self.group.round + 1} is void: {sentence}, and {needed} are needed."
            self.void(sentence, clients if lost is None else lost)
        return len(clients) >= needed

    def void(self, sentence: str, clients: Sequence[int] | None = None) -> None:
        """Refuse the updates of clients, by default of those in the sums, because these cannot be used."""
        lost = self.clients if clients is None else clients
        self.refused += [Refusal(client, "no secure sum", sentence) for client in lost]
        self.clients = []


def spanning(weights: Mapping[str, Tensor]) -> BlockWeights:
    """An orthonormal basis of the weights of each block: from its sums follow the sums with all of them."""
    found = {}
    for name, rows in weights.items():
        _, sizes, basis = np.linalg.svd(rows.numpy(), full_matrices=False)
        found[name] = basis[sizes > 1e-9 * max(sizes.max(initial=0.0), 1e-300)]
    return found


def follow_from(known: BlockWeights, needed: Mapping[str, Tensor]) -> bool:
    """Whether the sums with the needed weights follow from those with the known ones."""
    return all(
        np.allclose(rows @ np.linalg.pinv(known[name]) @ known[name], rows, rtol=1e-6, atol=1e-9)
        for name, rows in ((name, rows.numpy()) for name, rows in needed.items())
    )


def _masked_in(reply: RecordDict, size: int) -> _Integers:
    array = reply.array_records.get(_VECTORS, ArrayRecord()).get("masked")
    if array is None:
        raise RequestError("missing part", "It sent no masked vector.")
    try:
        return np.frombuffer(content_of("masked", packed(array), (size,), torch.int64), dtype="<i8")
    except ReplyError as fault:
        raise RequestError(fault.reason, f"Its masked vector cannot be used: {fault}.") from fault


def _weights_in(text: str, count: int, vectors: Mapping[str, Any] | None = None) -> BlockWeights:
    """The weights in a request, for `count` clients and blocks that exist."""
    try:
        found = {name: np.array(rows, dtype=np.float64) for name, rows in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise RequestError("malformed", "The weights of the secure sum cannot be read.") from error
    for name, rows in found.items():
        known = vectors is None or name in vectors
        if not known or rows.ndim != 2 or rows.shape[1] != count or not np.isfinite(rows).all():
            raise RequestError(
                "malformed", "The weights of the secure sum must be one number for each client."
            )
    return found


def _records(values: Mapping[str, Any]) -> RecordDict:
    return RecordDict({_RECORD: ConfigRecord(dict(values))})


def _field(content: RecordDict, name: str, kind: type) -> Any:
    value = content.config_records.get(_RECORD, ConfigRecord()).get(name)
    if type(value) is not kind:
        raise RequestError("malformed", f"{name} of a secure sum must be {kind.__name__}.")
    return value


def _list(content: RecordDict, name: str, kind: type) -> list[Any]:
    values = _field(content, name, list)
    if any(type(value) is not kind for value in values):
        raise RequestError("malformed", f"{name} of a secure sum must be a list of {kind.__name__}.")
    return list(values)


def _bytes(value: object) -> bytes:
    assert isinstance(value, bytes)
    return value


def _public(secret: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def _agreed(secret: bytes, public: bytes, purpose: bytes, context: bytes) -> bytes:
    """The key that two clients share, for a purpose in a context."""
    try:
        shared = X25519PrivateKey.from_private_bytes(secret).exchange(
            X25519PublicKey.from_public_bytes(public)
        )
    except ValueError as error:
        raise RequestError("malformed", "A public key of the secure sum is not one.") from error
    return _derived(shared, purpose, context)


def _derived(secret: bytes, purpose: bytes, context: bytes) -> bytes:
    return HKDF(SHA256(), 32, salt=None, info=purpose + context).derive(secret)


def _channel(kept: ConfigRecord, group: SumGroup, other: int, route: tuple[int, int]) -> AESGCM:
    """The cipher for the one message from a client to another."""
    public, purpose = group.channel_keys[group.clients.index(other)], b"%d to %d" % route
    return AESGCM(_agreed(_bytes(kept["channel_secret"]), public, purpose, group.context))


def _stream(key: bytes, size: int) -> _Integers:
    """Pseudo-random integers of 64 bits: the stream of AES-256 in counter mode."""
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    return np.frombuffer(stream.update(bytes(8 * size)), dtype="<i8")
