"""Evaluation of a global model on a test set and on every client's own data."""

import math
from collections.abc import Iterable, Mapping
from functools import partial

import torch
from torch import Tensor

from fairlead.clients.data import ClientData
from fairlead.errors import EngineError, FairleadError
from fairlead.parameters import FlatModule
from fairlead.records import Evaluation
from fairlead.task import Task, refuse_unknown_classes

_EXAMPLES_AT_ONCE, _NUMBERS_AT_ONCE = 2048, 2**23
"""Bounds on a forward pass: large images in great number would fill any memory."""


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
    """Means over the test set, or Σ ω_i F_i over the training data where there is no test set.

    With `per_client` the figures of each client too: on its `held_out` examples if clients have some, else on its
    training data. `channels_last` is the layout of images in memory.
    """
    figures_on = partial(_figures, model, task, params, buffers, channels_last)
    figures = None if test is None else figures_on(test)
    by_client: dict[str, Tensor] = {}
    if per_client and held_out is not None:
        own = figures if figures is not None and held_out is test else figures_on(held_out)
        by_client = _client_means(held_out, own)
    elif per_client or figures is None:
        by_client = _client_means(train, figures_on(train))
    if figures is None:
        counts = train.sizes > 0
        overall = {name: float(weights[counts] @ means[counts]) for name, means in by_client.items()}
    else:
        overall = {name: float(values.mean()) for name, values in figures.items()}
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
    one = torch.ones(1, dtype=torch.float64)
    for client, params, buffers in models:
        inputs, targets = data.examples_of(client)
        if not len(inputs):
            continue
        own = ClientData(inputs, targets, torch.tensor([0, len(inputs)]))
        found = evaluate(
            model,
            task,
            params,
            buffers,
            train=own,
            test=None,
            weights=one,
            per_client=False,
            channels_last=channels_last,
        )
        for name, value in {"loss": found.loss, **found.metrics}.items():
            nobody = torch.full((data.num_clients,), math.nan, dtype=torch.float64)
            by_client.setdefault(name, nobody)[client] = value
    return personal_means(by_client)


def personal_means(by_client: Mapping[str, Tensor]) -> Evaluation:
    """Figures (N,) of clients' own models, and their means over the clients that have them."""
    return evaluation_of({name: float(values.nanmean()) for name, values in by_client.items()}, by_client)


def refuse_misjudged(model: FlatModule, task: Task, data: ClientData) -> None:
    """Refuse metrics that fail on two examples, and classes that the model has no output for, before a run starts."""
    params = model.initial_params()
    inputs, targets = data.inputs[:2].to(params.device, copy=True), data.targets[:2].to(params.device)
    model.module.eval()
    with torch.no_grad():
        outputs = model.call(params, model.initial_buffers(), inputs, None)
    refuse_unknown_classes(task.loss_function(), outputs, data.targets, data.whose)
    for name, metric in task.metric_functions().items():
        try:
            values = metric(outputs, targets)
        except FairleadError:
            raise
        except (RuntimeError, ValueError, IndexError, TypeError, AttributeError) as error:
            told = " ".join(str(error).split()).rstrip(".")
            raise EngineError(
                f"The metric {name} fails on outputs of shape {tuple(outputs.shape)} and targets of shape "
                f"{tuple(targets.shape)}: {told}. Choose other Task.metrics."
            ) from error
        if not isinstance(values, Tensor) or values.shape != (len(targets),):
            raise EngineError(f"Task.metrics must give one number per example, but {name} does not.")


def evaluation_of(overall: Mapping[str, float], by_client: Mapping[str, Tensor]) -> Evaluation:
    """Figures of all clients together and of each (N,), among them the loss, which is NaN if nobody reported it."""
    metrics, clients = dict(overall), {name: tuple(values.tolist()) for name, values in by_client.items()}
    return Evaluation(metrics.pop("loss", math.nan), metrics, clients.pop("loss", None), clients)


def _figures(
    model: FlatModule, task: Task, params: Tensor, buffers: Tensor, channels_last: bool, data: ClientData
) -> dict[str, Tensor]:
    """Loss and metrics of every example, float64 on the CPU."""
    functions = {"loss": task.loss_function(), **task.metric_functions()}
    parts: dict[str, list[Tensor]] = {name: [] for name in functions}
    model.module.eval()
    per_example = max(data.inputs.shape[1:].numel(), 1)
    chunk = min(_EXAMPLES_AT_ONCE, max(_NUMBERS_AT_ONCE // per_example, 1))
    with torch.no_grad():
        for inputs, targets in zip(
            torch.split(data.inputs, chunk), torch.split(data.targets, chunk), strict=True
        ):
            inputs, targets = inputs.to(params.device, copy=True), targets.to(params.device)
            # Copies, since a model may change its inputs or buffers in place.
            outputs = model.call(params, buffers.clone(), inputs, None, channels_last=channels_last)
            if not parts["loss"]:
                refuse_unknown_classes(functions["loss"], outputs, data.targets)
            for name, function in functions.items():
                parts[name].append(function(outputs, targets))
    # Only now, so that the host waits for a device once.
    return {name: torch.cat(values).to("cpu", torch.float64) for name, values in parts.items()}


def _client_means(data: ClientData, figures: dict[str, Tensor]) -> dict[str, Tensor]:
    """Mean of each figure over each client's examples, (N,); NaN for a client without any."""
    owner = torch.repeat_interleave(torch.arange(data.num_clients), data.sizes)
    return {
        name: torch.zeros(data.num_clients, dtype=torch.float64).index_add(0, owner, values) / data.sizes
        for name, values in figures.items()
    }
