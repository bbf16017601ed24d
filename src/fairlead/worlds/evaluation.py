"""Evaluation of a global model on a test set and on every client's own data."""

import math
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
from torch import Tensor

from fairlead.clients.data import ClientData
from fairlead.errors import DataError, EngineError, FairleadError
from fairlead.metrics.base import Metric
from fairlead.parameters import FlatModule
from fairlead.records import Evaluation
from fairlead.task import Accumulator, AnyMetric, Task, refuse_unknown_classes

_EXAMPLES_AT_ONCE, _NUMBERS_AT_ONCE = 2048, 2**23
"""Bounds on a forward pass: large images in great number would fill any memory."""
_TRIED = 32
"""Examples on which metrics are tried before training."""


@dataclass(frozen=True, eq=False)
class _WholeSet:
    """What is kept of all examples for a figure that is no mean of numbers per example."""

    kept: Tensor
    targets: Tensor
    metric: AnyMetric

    def over(self, rows: slice) -> float:
        """The figure of some examples; NaN where their targets do not define it."""
        kept, targets, metric = self.kept[rows], self.targets[rows], self.metric
        if isinstance(metric, Metric):
            return math.nan if metric.undefined(targets) else metric.value(kept)
        if isinstance(metric, Accumulator):
            # A copy, since an accumulator never forgets.
            metric = deepcopy(metric)
            metric.update(kept, targets)
            return float(metric.compute())
        return float(metric(kept, targets))


_Figure = Tensor | _WholeSet
"""One number per example, float64 on the CPU, whose mean is the figure, or a figure over the whole set."""


def evaluate(
    model: FlatModule,
    task: Task,
    params: Tensor,
    buffers: Tensor,
    *,
    train: ClientData,
    test: ClientData | None,
    held_out: ClientData | None = None,
    weights: Tensor,
    per_client: bool,
    channels_last: bool = False,
) -> Evaluation:
    """Figures of the test set, or Σ ω_i figure_i over the clients' training data where there is no test set.

    A client whose targets do not define a figure, as the AUC of a single class, has NaN, and no weight in the sum.

    With `per_client` the figures of each client too: on its `held_out` examples if clients have some, else on its
    training data. `channels_last` is the layout of images in memory.
    """
    figures_on = partial(_figures, model, task, task.named_metrics(), params, buffers, channels_last)
    figures = None if test is None else figures_on(test)
    by_client: dict[str, Tensor] = {}
    if per_client or figures is None:
        data = train if held_out is None else held_out
        own = figures if figures is not None and data is test else figures_on(data)
        by_client = {name: _of_clients(data, figure) for name, figure in own.items()}
    if figures is None:
        overall = {}
        for name, values in by_client.items():
            counts, share = data.sizes > 0, weights
            if isinstance(own[name], _WholeSet):
                counts = counts & ~values.isnan()
                share = weights / weights[counts].sum()
            overall[name] = float(share[counts] @ values[counts]) if bool(counts.any()) else math.nan
    else:
        overall = {
            name: float(figure.mean()) if isinstance(figure, Tensor) else figure.over(slice(None))
            for name, figure in figures.items()
        }
    return evaluation_of(overall, by_client if per_client else {})


def evaluate_each(
    model: FlatModule,
    task: Task,
    models: Iterable[tuple[int, Tensor, Tensor]],
    data: ClientData,
    *,
    channels_last: bool = False,
) -> Evaluation:
    """Figures of every client's own model on its own data, and their means, in which every client counts alike.

    `models` are client, parameters (d,) and running statistics (b,); clients without a model or examples have NaN.
    """
    by_client: dict[str, Tensor] = {}
    for client, params, buffers in models:
        inputs, targets = data.examples_of(client)
        if not len(inputs):
            continue
        own = ClientData(inputs, targets, torch.tensor([0, len(inputs)]))
        found = figures_of_one(model, task, params, buffers, own, channels_last=channels_last)
        for name, value in found.items():
            nobody = torch.full((data.num_clients,), math.nan, dtype=torch.float64)
            by_client.setdefault(name, nobody)[client] = value
    return personal_means(by_client)


def figures_of_one(
    model: FlatModule,
    task: Task,
    params: Tensor,
    buffers: Tensor,
    data: ClientData,
    *,
    channels_last: bool = False,
) -> dict[str, float]:
    """Loss and metrics on the data of a single client."""
    figures = _figures(model, task, task.named_metrics(), params, buffers, channels_last, data)
    return {name: float(_of_clients(data, figure)) for name, figure in figures.items()}


def personal_means(by_client: Mapping[str, Tensor]) -> Evaluation:
    """Figures (N,) of clients' own models, and their means over the clients that have them."""
    return evaluation_of({name: float(values.nanmean()) for name, values in by_client.items()}, by_client)


def refuse_misjudged(
    model: FlatModule, task: Task, metrics: Mapping[str, AnyMetric], data: ClientData, *, is_test: bool
) -> None:
    """Refuse classes without an output, metrics that fail on some examples, and those without a value on a test set."""
    params, buffers = model.initial_params(), model.initial_buffers()
    rows = torch.linspace(0, len(data.inputs) - 1, min(len(data.inputs), _TRIED)).long()
    inputs, targets = (part[rows.to(part.device)] for part in (data.inputs, data.targets))
    some = ClientData.from_lists([inputs], [targets])
    model.module.eval()
    with torch.no_grad():
        outputs = model.call(params, buffers.clone(), inputs.to(params.device, copy=True), None)
    refuse_unknown_classes(task.loss_function(), outputs, data.targets, data.whose)
    for name, metric in metrics.items():
        try:
            figure = _figures(model, task, {name: metric}, params, buffers, False, some)[name]
            if isinstance(figure, _WholeSet):
                figure.over(slice(None))
        except FairleadError:
            raise
        except (RuntimeError, ValueError, IndexError, TypeError, AttributeError) as error:
            told = " ".join(str(error).split()).rstrip(".")
            raise EngineError(
                f"Task.metrics: {name!r} fails on outputs of shape {tuple(outputs.shape)} and targets of shape "
                f"{tuple(targets.shape)}: {told}. It must give one number per example, (batch,), or one number for all."
            ) from error
        reason = metric.undefined(data.targets.cpu()) if is_test and isinstance(metric, Metric) else None
        if reason is not None:
            raise DataError(f"Task.metrics: {name!r} has no value on the test set, because {reason}.")


def evaluation_of(overall: Mapping[str, float], by_client: Mapping[str, Tensor]) -> Evaluation:
    """Figures of all clients together and of each (N,), among them the loss, which is NaN if nobody reported it."""
    metrics, clients = dict(overall), {name: tuple(values.tolist()) for name, values in by_client.items()}
    return Evaluation(metrics.pop("loss", math.nan), metrics, clients.pop("loss", None), clients)


def _figures(
    model: FlatModule,
    task: Task,
    metrics: Mapping[str, AnyMetric],
    params: Tensor,
    buffers: Tensor,
    channels_last: bool,
    data: ClientData,
) -> dict[str, _Figure]:
    """Loss and metrics of all examples."""
    loss, device = task.loss_function(), next(model.module.parameters()).device
    params, buffers = params.to(device), buffers.to(device)
    functions: dict[str, AnyMetric] = {"loss": loss, **metrics}
    parts: dict[str, list[Tensor]] = {name: [] for name in functions}
    whole: dict[str, bool] = {}
    model.module.eval()
    size = max(data.inputs.shape[1:].numel(), 1)
    chunk = min(_EXAMPLES_AT_ONCE, max(_NUMBERS_AT_ONCE // size, 1))
    with torch.no_grad():
        for inputs, targets in zip(
            torch.split(data.inputs, chunk), torch.split(data.targets, chunk), strict=True
        ):
            inputs, targets = inputs.to(device, copy=True), targets.to(device)
            # Copies, since a model may change its inputs or buffers in place.
            outputs = model.call(params, buffers.clone(), inputs, None, channels_last=channels_last)
            if not parts["loss"]:
                refuse_unknown_classes(loss, outputs, data.targets)
            for name, function in functions.items():
                if isinstance(function, Metric):
                    kept = function.keep(outputs, targets)
                elif isinstance(function, Accumulator) or whole.get(name):
                    kept = outputs.cpu()
                else:
                    found = function(outputs, targets)
                    whole[name] = not (isinstance(found, Tensor) and found.shape == (len(targets),))
                    kept = outputs.cpu() if whole[name] else cast("Tensor", found)
                parts[name].append(kept)
    targets = data.targets.cpu()
    # Only now, so that the host waits for a device once.
    return {
        name: _WholeSet(torch.cat(parts[name]).cpu(), targets, function)
        if whole.get(name, True)
        else torch.cat(parts[name]).cpu().to(torch.float64)
        for name, function in functions.items()
    }


def _of_clients(data: ClientData, figure: _Figure) -> Tensor:
    """A figure of each client's examples, (N,); NaN for a client without any, or whose targets do not define it."""
    if isinstance(figure, _WholeSet):
        sizes = data.sizes.tolist()
        own = [figure.over(data.rows_of(client)) if size else math.nan for client, size in enumerate(sizes)]
        return torch.tensor(own, dtype=torch.float64)
    owner = torch.repeat_interleave(torch.arange(data.num_clients), data.sizes)
    return torch.zeros(data.num_clients, dtype=torch.float64).index_add(0, owner, figure) / data.sizes
