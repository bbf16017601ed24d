"""`Preprocessing`: scale, classes and vocabulary that clients agree on before round 1, from sums alone."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairlead.clients.columns import whole_classes
from fairlead.clients.data import ArrayLike, ClientData, as_tensor, first_non_finite
from fairlead.component import Component, PositiveCount, WholeRange
from fairlead.errors import DataError, FieldError, field_error, short
from fairlead.text import label

_UNION = "union"
_PADDING, _OTHER = 0, 1
_MOST_CLASSES = 10_000
_LONGEST_NAME = 100


@dataclass(frozen=True)
class ClientSums:
    """What leaves a client: sums over its training examples."""

    num_examples: int
    total: tuple[float, ...] = ()
    """Σ (x − c) of each number of an input, around the point c that was asked for; 0 at first."""
    squares: tuple[float, ...] = ()
    """Σ (x − c)²."""
    labels: tuple[str, ...] = ()
    """Classes of the client; empty if the classes are listed, because counts then stand in their order."""
    label_counts: tuple[int, ...] = ()
    token_counts: tuple[int, ...] = ()
    """How often each token id occurs."""


@dataclass(frozen=True)
class Agreement:
    """Scale of features, classes and vocabulary of a federation, by which every client encodes its examples.

    A run keeps it as `preprocessing.json`; `fl.load_agreement` reads it, and `apply` encodes new examples.
    """

    num_examples: int = 0
    mean: tuple[float, ...] = ()
    """Of each number of an input, flattened; empty without standardization."""
    scale: tuple[float, ...] = ()
    """Standard deviations; 1 for the features that are `constant`."""
    constant: tuple[int, ...] = ()
    """Features with the same value in all examples."""
    classes: tuple[str, ...] = ()
    """Names of the classes 0, 1, 2, ...; empty if targets stay as they are."""
    class_counts: tuple[int, ...] = ()
    tokens: tuple[int, ...] = ()
    """Token ids that become 2, 3, ...; all others but the padding 0 become 1."""
    token_ids: int = 0
    """Ids of the tokenizer are below this; 0 if inputs stay as they are."""

    def __post_init__(self) -> None:
        numbers = np.array([*self.mean, *self.scale])
        fits = len(self.mean) == len(self.scale) and bool(np.isfinite(numbers).all())
        if not fits or any(value <= 0 for value in self.scale):
            raise DataError("Agreement.mean and scale must be as many finite numbers, with scales above 0.")
        if len(set(self.classes)) < len(self.classes) or len(set(self.tokens)) < len(self.tokens):
            raise DataError("Agreement.classes and tokens must name each only once.")
        if any(not 0 < token < self.token_ids for token in self.tokens):
            raise DataError(f"Agreement.tokens must be above 0 and below {self.token_ids}.")

    def apply(
        self, inputs: ArrayLike, targets: ArrayLike, names: tuple[str, ...] | None = None
    ) -> tuple[ArrayLike, ArrayLike]:
        """Inputs and targets as the model takes them; `names` are those of classes that are numbered already."""
        if self.mean:
            values = as_tensor(inputs, "The inputs")
            form = _form_of(values, len(self.mean))
            mean, scale = (
                torch.tensor(each, dtype=torch.float64).reshape(form) for each in (self.mean, self.scale)
            )
            kept = values.dtype if values.is_floating_point() else torch.float32
            inputs = ((values.double() - mean) / scale).to(kept)
        if self.token_ids:
            places = torch.full((self.token_ids,), _OTHER)
            places[_PADDING] = _PADDING
            places[list(self.tokens)] = torch.arange(2, 2 + len(self.tokens))
            inputs = places[_token_ids(inputs, self.token_ids)]
        if self.classes:
            known = {name: place for place, name in enumerate(self.classes)}
            found, rows = _labels(targets, names)
            _refuse_unknown(found, np.bincount(rows, minlength=len(found)), known)
            targets = torch.tensor([known[name] for name in found], dtype=torch.int64)[torch.from_numpy(rows)]
        return inputs, targets

    def applied(self, data: ClientData, names: tuple[str, ...] | None = None) -> ClientData:
        """The same for all clients of a simulation, with the names of their classes."""
        inputs, targets = self.apply(data.inputs, data.targets, names)
        named = self.classes if names or self.classes != tuple(map(str, range(len(self.classes)))) else None
        return replace(data, inputs=inputs, targets=targets, class_names=named or data.class_names)

    def told(self) -> dict[str, Any]:
        """The parts that clients need."""
        fields = asdict(replace(self, num_examples=0, class_counts=(), constant=()))
        return {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}


@dataclass(frozen=True)
class Preprocessing(Component):
    """Clients agree on scale, classes and vocabulary before round 1, from sums over their training examples.

        n = Σ_i n_i,   μ = Σ_i Σ_x x/n,   σ² = Σ_i Σ_x (x − μ)²/n

    Symbols: n_i the examples of client i, x one number of an input. `standardize` replaces x by (x − μ)/σ. Clients
    send Σ x first, and then the sums of x − μ and (x − μ)² around the mean of all, because the difference of two large
    sums of squares would lose its digits.

    `classes` numbers the targets, which are names or whole numbers: "union" in the sorted order of all that occur, a
    list in its own order. A client whose data have another class is refused. `vocabulary` keeps as many of the most
    frequent token ids, of equally frequent ones the smallest: padding stays 0, they become 2, 3, ... in this order, and
    all others 1. Ids are below `token_ids`, for `HashedWords` one more than its buckets.

    Only sums of `ClientSums` leave a client. With listed classes they are vectors of fixed length, which secure
    aggregation can add.

    >>> import fairlead as fl
    >>> data = fl.ClientData.from_lists([[[1.0], [2.0]], [[6.0]]], [[7, 9], [7]])
    >>> agreed = fl.Preprocessing(standardize=True).agree_over(data)
    >>> agreed.mean, round(agreed.scale[0], 3), round(agreed.applied(data).inputs[2].item(), 3)
    ((3.0,), 2.16, 1.389)
    """

    standardize: bool = False
    classes: Literal["union"] | tuple[str, ...] | None = None
    vocabulary: PositiveCount | None = None
    token_ids: Annotated[int, WholeRange(2, 2**24)] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        listed = self.classes
        if listed not in (None, _UNION) and not (
            isinstance(listed, tuple)
            and len(set(listed)) == len(listed) > 0
            and all(isinstance(name, str) for name in listed)
        ):
            raise field_error(self, "classes", f"{_UNION!r} or a list of different names", listed)
        if (self.vocabulary is None) != (self.token_ids is None):
            raise FieldError(
                "Preprocessing needs both vocabulary, the ids to keep, and token_ids, one more than the largest id "
                f"of the tokenizer, got {self.vocabulary} and {self.token_ids}."
            )
        if self.standardize and self.vocabulary is not None:
            raise FieldError(
                "Preprocessing.standardize needs numbers, but vocabulary is for inputs that are token ids."
            )
        if not (self.standardize or self.classes or self.vocabulary):
            raise FieldError("Preprocessing must have standardize = true, classes or vocabulary.")

    @property
    def listed(self) -> tuple[str, ...]:
        """The classes that the spec lists."""
        return self.classes if isinstance(self.classes, tuple) else ()

    def sums(
        self,
        inputs: ArrayLike,
        targets: ArrayLike,
        center: tuple[float, ...] = (),
        names: tuple[str, ...] | None = None,
    ) -> ClientSums:
        """The sums of one client around a point; classes and tokens are counted if no point is given."""
        sums = ClientSums(len(inputs))
        if self.standardize:
            values = as_tensor(inputs, "The inputs")
            if (row := first_non_finite(values)) is not None:
                raise DataError(f"Inputs must be finite, got NaN or infinity in row {row}.")
            numbers = values.reshape(len(values), values.shape[1:].numel()).numpy().astype(np.float64)
            if center:
                _form_of(values, len(center))
                numbers -= np.array(center)
            with np.errstate(over="ignore", invalid="ignore"):
                total, squares = numbers.sum(0), np.square(numbers).sum(0)
            if not np.isfinite([total, squares]).all():
                raise DataError("Inputs must be small enough for the sum of their squares: scale them first.")
            sums = replace(sums, total=tuple(total.tolist()), squares=tuple(squares.tolist()))
        if center:
            return sums
        if self.classes is not None:
            found, rows = _labels(targets, names)
            counts = np.bincount(rows, minlength=len(found))
            if self.listed:
                _refuse_unknown(found, counts, self.listed)
                by_name = dict(zip(found, counts.tolist(), strict=True))
                sums = replace(sums, label_counts=tuple(by_name.get(name, 0) for name in self.listed))
            else:
                sums = replace(sums, labels=found, label_counts=tuple(counts.tolist()))
        if self.token_ids is not None:
            ids = _token_ids(inputs, self.token_ids).flatten()
            sums = replace(sums, token_counts=tuple(torch.bincount(ids, minlength=self.token_ids).tolist()))
        return sums

    def agree(self, ask: Callable[[tuple[float, ...]], Mapping[int, ClientSums]]) -> Agreement:
        """The agreement of the clients whose sums around a point `ask` returns, in the order of their ids."""
        first = ask(())
        num_examples = sum(self._checked(client, sums, first) for client, sums in first.items())
        if num_examples == 0:
            raise DataError("Preprocessing needs an example, and no client has any.")
        agreed = Agreement(num_examples)
        if self.standardize:
            start = _added(first, "total") / num_examples
            second = ask(tuple(start.tolist()))
            if any(
                self._checked(client, sums, first) != first[client].num_examples
                for client, sums in second.items()
            ):
                raise DataError("A client has another number of examples than a moment ago.")
            rest = _added(second, "total") / num_examples
            mean, variance = start + rest, _added(second, "squares") / num_examples - np.square(rest)
            # Rounding leaves a little variance in a constant feature, at most that of the sum of n equal numbers.
            noise = np.square(num_examples * np.finfo(np.float64).eps * mean)
            varies = variance > noise
            scale = np.where(varies, np.sqrt(np.maximum(variance, 0)), 1.0)
            agreed = replace(
                agreed,
                mean=tuple(mean.tolist()),
                scale=tuple(scale.tolist()),
                constant=tuple(np.flatnonzero(~varies).tolist()),
            )
        if self.classes is not None:
            counts: dict[str, int] = dict.fromkeys(self.listed, 0)
            for sums in first.values():
                for name, count in zip(self.listed or sums.labels, sums.label_counts, strict=True):
                    counts[name] = counts.get(name, 0) + count
            classes = self.listed or _in_order(counts)
            agreed = replace(
                agreed, classes=classes, class_counts=tuple(counts.get(name, 0) for name in classes)
            )
        if self.vocabulary is not None and self.token_ids is not None:
            tokens = _added(first, "token_counts").astype(np.int64)
            tokens[_PADDING] = 0
            frequent = np.argsort(-tokens, kind="stable")[: self.vocabulary]
            kept = tuple(frequent[tokens[frequent] > 0].tolist())
            agreed = replace(agreed, tokens=kept, token_ids=self.token_ids)
        return agreed

    def agree_over(self, data: ClientData) -> Agreement:
        """The agreement of the clients of a simulation, with the bits of a real federation."""

        def ask(center: tuple[float, ...]) -> dict[int, ClientSums]:
            found = {}
            for client in range(data.num_clients):
                try:
                    found[client] = self.sums(*data.examples_of(client), center, data.class_names)
                except DataError as error:
                    raise DataError(f"{label(client, data.names)}: {error}") from error
            return found

        return self.agree(ask)

    def _checked(self, client: int, sums: ClientSums, all_sums: Mapping[int, ClientSums]) -> int:
        """The examples of a client whose sums are possible, and of the same form as those of the first client."""
        like, counts = next(iter(all_sums.values())), sums.label_counts
        numbers = np.array([*sums.total, *sums.squares])
        names = self.listed or sums.labels
        asked = sums is all_sums.get(client)
        total, squares, n = np.array(sums.total), np.array(sums.squares), max(sums.num_examples, 0)
        fits = (
            sums.num_examples >= 0
            and len(sums.total) == len(sums.squares) == (len(like.total) if self.standardize else 0)
            and bool(np.isfinite(numbers).all())
            and all(value >= 0 for value in (*sums.squares, *counts, *sums.token_counts))
            # (Σx)² ≤ nΣx², and without examples all sums are 0. Roots, because squares may overflow; those of
            # numbers below 1e-150 may vanish.
            and bool((np.abs(total) <= np.sqrt(n) * np.sqrt(np.abs(squares)) * (1 + 1e-6) + n * 1e-150).all())
            and (sums.num_examples > 0 or not any((*squares, *sums.token_counts)))
            and len(counts) == (len(names) if asked else 0)
            and len(set(names)) == len(names) <= _MOST_CLASSES
            and all(name.isprintable() and len(name) <= _LONGEST_NAME for name in sums.labels)
            and sum(counts) == (sums.num_examples if asked and self.classes else 0)
            and len(sums.token_counts) == (self.token_ids or 0) * asked
        )
        if not fits:
            raise DataError(
                f"Client {client} sent sums that cannot be those of {sums.num_examples} examples in the form of the "
                "first client's."
            )
        return sums.num_examples


def are_names(targets: ArrayLike) -> bool:
    """Whether targets are texts, which classes may be called by."""
    return not isinstance(targets, Tensor) and np.asarray(targets).dtype.kind in "UO"


def _added(by_client: Mapping[int, ClientSums], name: str) -> NDArray[np.float64]:
    """The sum over clients, one after the other, so that the order of arrival changes no bit."""
    rows = np.array([getattr(sums, name) for sums in by_client.values()], dtype=np.float64)
    total: NDArray[np.float64] = rows.sum(axis=0)
    return total


def _form_of(inputs: Tensor, length: int) -> torch.Size:
    form = inputs.shape[1:]
    if form.numel() != length:
        raise DataError(
            f"Inputs must have {length} numbers each, as those of other clients, got {form.numel()}."
        )
    return form


def _token_ids(inputs: ArrayLike, bound: int) -> Tensor:
    ids = as_tensor(inputs, "The inputs")
    if ids.is_floating_point():
        raise DataError("Preprocessing.vocabulary needs inputs that are token ids, got real numbers.")
    if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < bound:
        raise DataError(
            f"Inputs must be token ids from 0 to {bound - 1} (preprocessing.token_ids), got {int(ids.min())} to "
            f"{int(ids.max())}."
        )
    return ids.to(torch.int64)


def _labels(targets: ArrayLike, names: tuple[str, ...] | None) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """The classes that occur, by name, and which of them each example has."""
    values = targets.cpu().numpy() if isinstance(targets, Tensor) else np.asarray(targets)
    if values.size == 0:
        return (), np.zeros(0, dtype=np.int64)
    if values.ndim != 1 or values.dtype.kind not in "biuUO":
        raise DataError(
            "Preprocessing.classes needs one name or whole number per example, got targets of type "
            f"{values.dtype} and shape {values.shape}."
        )
    if values.dtype.kind in "UO":
        # NumPy would turn NaN and None among names into the names "nan" and "None".
        for row, name in enumerate(targets):
            if not isinstance(name, str):
                raise DataError(f"A class among names must be a name too, got {short(name)} in row {row}.")
        values = values.astype(str)
    found, rows = np.unique(values, return_inverse=True)
    called = [str(each) if names is None else names[each] for each in found.tolist()]
    for name in called:
        if not name.strip() or len(name) > _LONGEST_NAME or not name.isprintable():
            raise DataError(
                f"A class must have a name of 1 to {_LONGEST_NAME} printable letters, got {short(name)}."
            )
    return tuple(called), rows.astype(np.int64)


def _refuse_unknown(
    found: tuple[str, ...], counts: NDArray[Any], known: tuple[str, ...] | Mapping[str, int]
) -> None:
    for name, count in zip(found, counts.tolist(), strict=True):
        if name not in known:
            raise DataError(
                f"{count} examples have the class {name!r}, which is not among the agreed ones ({short([*known])}): "
                "leave them out, or list the class in preprocessing.classes."
            )


def _in_order(names: Mapping[str, int]) -> tuple[str, ...]:
    """Names in the order that a table gives them: whole numbers as they are unless they are codes, others sorted."""
    if not all(name.isascii() and name.isdigit() and str(int(name)) == name for name in names):
        return tuple(sorted(names))
    numbers = torch.tensor(sorted(map(int, names)))
    return whole_classes(numbers).names or tuple(map(str, range(int(numbers.max()) + 1)))
