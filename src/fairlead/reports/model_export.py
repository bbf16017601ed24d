"""`export_model`: the model of a run as a file of its own, with a card that says where it comes from."""

import inspect
import warnings
from logging import ERROR, getLogger
from os import PathLike
from pathlib import Path
from shutil import copyfile
from typing import NamedTuple

import torch
from jinja2 import Environment, PackageLoader, StrictUndefined
from torch import nn

from fairlead.algorithm import Algorithm
from fairlead.checkpoint.store import save_module
from fairlead.clients.pool import names_of
from fairlead.clients.preprocessing import Agreement
from fairlead.clients.tables import TableFile
from fairlead.component import Component, worded
from fairlead.errors import DataError, FieldError, disk_errors, one_line, optional_package
from fairlead.experiments.experiment import Experiment
from fairlead.experiments.kept_models import KeptModel, ModelFacts, Which, kept_model
from fairlead.experiments.run_folder import RunFolder
from fairlead.experiments.study import FoundRun
from fairlead.models.base import Model
from fairlead.models.imported import ImportedModel, imported
from fairlead.optimizers.descent import SGD
from fairlead.results.comparison import summarize
from fairlead.results.runs import ReportedRun, read_run
from fairlead.results.sentences import objective_verdict
from fairlead.text import counted

FORMATS = (".safetensors", ".pt", ".onnx")
_MOST_ROWS = 200
"""Of a table of features in the card."""


class ExportedModel(NamedTuple):
    """The files of an exported model."""

    file: Path
    card: Path
    """Markdown: data, clients, method, objectives, metrics, parameters and versions."""
    rounds: int
    """Rounds after which the model was taken."""
    caveat: str = ""
    """A sentence if clients keep parameters, so that this is not the model that they use."""


def export_model(
    folder: str | PathLike[str],
    output: str | PathLike[str],
    which: Which = "last",
    *,
    module: nn.Module | None = None,
    input_shape: tuple[int, ...] | None = None,
) -> ExportedModel:
    """Write the last or the best model of a run to a file, and a model card in Markdown beside it.

    The ending of `output` chooses the format: `.safetensors` holds the parameters by name, `.pt` the same as a
    `state_dict` for `torch.load`, and `.onnx` the whole model, with a free batch size (needs the extra `onnx`).
    `module` is a module of the same form, if the folder has no recipe for it (`load_model`); `input_shape` is then
    the shape of one input, which ONNX needs.
    """
    file = Path(output)
    if file.suffix not in FORMATS:
        raise FieldError(f"The exported file must end in {', '.join(FORMATS)}, got {str(file)!r}.")
    model = kept_model(folder, which, module)
    card, store = file.with_name(f"{file.name}.md"), RunFolder(Path(folder))
    agreement, encoding = store.agreement(), file.with_name(f"{file.name}.preprocessing.json")
    text = _card(
        model, read_run(FoundRun(store)), file.stem, _table(model.experiment, agreement), encoding.name
    )
    with disk_errors(file, "written", FieldError):
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".safetensors":
            save_module(model.tensors, file, {"card": text})
        elif file.suffix == ".pt":
            torch.save(model.tensors, file)
        else:
            _export_onnx(model, file, input_shape)
        if agreement is not None:
            copyfile(store.agreement_file, encoding)
        card.write_text(text, encoding="utf-8")
    return ExportedModel(file, card, model.facts.rounds, model.caveat)


def _export_onnx(model: KeptModel, file: Path, input_shape: tuple[int, ...] | None) -> None:
    install = "pip install 'onnxscript>=0.5.4,<1'"
    optional_package("onnxscript", f"Export to ONNX needs the package onnxscript: {install}.")
    module, shape = model.module(), model.facts.shape
    if input_shape is None and shape is None:
        raise FieldError(
            "Export to ONNX needs the shape of one input, which the folder of this run does not hold: give "
            "input_shape, or --input-shape such as 1,28,28."
        )
    inputs = input_shape if shape is None else shape.inputs
    assert inputs is not None
    # Two examples: the exporter would take a single one for a constant.
    example = torch.zeros(2, *inputs, dtype=next(module.parameters()).dtype)
    if shape is not None and shape.tokens is not None:
        example = example.to(torch.int64)
    # It reports packages that are missing for operators of other models.
    getLogger("torch.onnx").setLevel(ERROR)
    try:
        with warnings.catch_warnings():
            # Of torch's own code.
            warnings.simplefilter("ignore")
            torch.onnx.export(
                module,
                (example,),
                file,
                input_names=["inputs"],
                output_names=["outputs"],
                dynamic_shapes=({0: torch.export.Dim("batch")},),
                dynamo=True,
                external_data=False,
                verbose=False,
            )
    except torch.onnx.OnnxExporterError as error:
        raise FieldError(f"torch cannot export this model to ONNX: {one_line(error)}.") from error


def _card(model: KeptModel, run: ReportedRun, title: str, table: "_TableFacts | None", encoding: str) -> str:
    experiment = model.experiment
    (summary,) = summarize([run])
    (method,) = summary.methods
    (figures,) = method.runs
    optimized = "Unknown."
    if figures.consistency is not None:
        optimized = objective_verdict("The run", figures.consistency, figures.by_chance or 0.0)
    recipe = experiment.learning_task.model if model.form is None and experiment.has_task else model.form
    made = Environment(
        loader=PackageLoader("fairlead", "reports"), trim_blocks=True, undefined=StrictUndefined
    )
    made.filters["worded"] = worded
    return made.get_template("model_card.md.jinja").render(
        title=title,
        facts=model.facts,
        caveat=model.caveat,
        rounds=counted(model.facts.rounds, "round"),
        run=run,
        experiment=experiment,
        recipe=type(recipe).__name__ if isinstance(recipe, nn.Module) else recipe,
        parts=_parts(experiment.algorithm),
        optimized=optimized,
        metrics=_metrics(model.facts, run),
        tensors=model.tensors,
        size=sum(value.numel() for value in model.tensors.values()),
        source=_source(recipe),
        table=table,
        encoding=encoding,
    )


def _parts(algorithm: Algorithm) -> tuple[Component, ...]:
    """The parts of a method, without those that do nothing."""
    server = () if algorithm.server == SGD(lr=1.0) else (algorithm.server,)
    return (algorithm.sampler, algorithm.solver, algorithm.aggregator, *algorithm.transforms, *server)


def _metrics(facts: ModelFacts, run: ReportedRun) -> dict[str, str]:
    """The figures of this very model."""
    record = run.records[facts.rounds - 1] if 0 < facts.rounds <= len(run.records) else None
    evaluation = None if record is None else record.evaluation
    found = {} if evaluation is None else {"loss": evaluation.loss, **evaluation.metrics}
    if facts.metric is None and run.objective is not None:
        found["objective Σ ω_i F_i over the training data"] = run.objective
    return {name: f"{value:.6g}" for name, value in found.items()}


class _TableFacts(NamedTuple):
    """The meaning of inputs and outputs, for data from a table."""

    features: list[tuple[str, str, str]]
    """Name, mean and scale of each; the last two are empty unless features are standardized."""
    classes: tuple[str, ...]
    problem: str = ""
    """Why the table cannot be read now."""
    is_scaled: bool = False
    agreement: Agreement | None = None
    """The facts that clients agreed on, for which the table is not needed."""


def _table(experiment: Experiment, agreement: Agreement | None) -> _TableFacts | None:
    clients = experiment.clients
    if agreement is not None:
        given = names_of(clients.features) if isinstance(clients, TableFile) else ()
        scaling = list(zip(agreement.mean, agreement.scale, strict=True))
        names = given if len(given) == len(scaling) else [f"number {place}" for place in range(len(scaling))]
        rows = [(name, f"{m:.9g}", f"{s:.9g}") for name, (m, s) in zip(names, scaling, strict=True)]
        # Of images, with thousands of numbers, the file beside the card has all.
        rows = rows if len(rows) <= _MOST_ROWS else []
        return _TableFacts(rows, agreement.classes, is_scaled=bool(scaling), agreement=agreement)
    if not isinstance(clients, TableFile) or clients.tokens is not None:
        return None
    try:
        data, scale = experiment.load().train, clients.scale()
    except DataError as error:
        return _TableFacts([], (), str(error))
    numbers = [] if scale is None else [(f"{m:.9g}", f"{s:.9g}") for m, s in zip(*scale, strict=True)]
    # Flags of missing values come last and are not scaled.
    numbers += [("", "") if scale is None else ("0", "1")] * (len(data.features) - len(numbers))
    features = [(name, *pair) for name, pair in zip(data.features, numbers, strict=True)]
    return _TableFacts(features, data.class_names or (), is_scaled=scale is not None)


def _source(recipe: Model | nn.Module | None) -> str:
    """The Python source of a model that is not fairlead's or torch's own; empty where there is none."""
    made = imported(recipe.path, "ImportedModel.path") if isinstance(recipe, ImportedModel) else type(recipe)
    if recipe is None or made.__module__.split(".")[0] in ("fairlead", "torch"):
        return ""
    try:
        return inspect.getsource(inspect.getmodule(made) or made).strip()
    except (OSError, TypeError):
        # Code that was typed into an interpreter has no file.
        return ""
