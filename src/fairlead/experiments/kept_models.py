"""The models that the folder of a run keeps: the last one, and the best by a metric."""

import warnings
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from fairlead.checkpoint.store import has_checkpoint, newest_tensors, read_module, save_module
from fairlead.clients.source import RealClients
from fairlead.errors import CheckpointError, FieldError, RunFolderError, disk_errors
from fairlead.experiments.experiment import Experiment
from fairlead.experiments.record_io import decoded
from fairlead.experiments.study import run_at
from fairlead.federation import Federation
from fairlead.models.base import ExampleShape, Model
from fairlead.parameters import FlatModule
from fairlead.randomness import Key

Which = Literal["last", "best"]


@dataclass(frozen=True)
class ModelFacts:
    """The facts beside the parameters of a kept model."""

    rounds: int
    """Rounds after which it was taken."""
    metric: str | None = None
    """The metric by which it is the best; None for the last model."""
    value: float | None = None
    shape: ExampleShape | None = None
    """The shape of its data; None with real clients, whose data the server does not see."""
    frozen: str = ""
    """Hash of the frozen parameters, which the file of a model with a recipe leaves out; else empty."""


@dataclass(frozen=True, eq=False)
class KeptModel:
    """A model of a run: its tensors by the names of parameters and buffers."""

    experiment: Experiment
    tensors: dict[str, Tensor]
    facts: ModelFacts
    form: nn.Module | None = None
    """A module of the same form; None to build one from the experiment."""

    @property
    def caveat(self) -> str:
        """A sentence if clients keep parameters, so that this is not the model that they use; else empty."""
        own = self.experiment.algorithm.solver.own_parameters
        if not own:
            return ""
        kept = "all parameters" if "*" in own else f"parameters of their own ({', '.join(own)})"
        return f"Clients keep {kept}; this is not the model that a client uses."

    def module(self) -> nn.Module:
        """The model in evaluation mode."""
        module = self.form
        if module is None:
            if self.facts.shape is None:
                raise _unbuildable()
            module = _built(self.experiment, self.facts.shape).module
        own = {name: tuple(value.shape) for name, value in module.state_dict().items()}
        theirs = {name: tuple(value.shape) for name, value in self.tensors.items()}
        if differing := sorted(dict(own.items() ^ theirs.items())):
            raise CheckpointError(
                f"The model of the run has other parameters than this {type(module).__name__}: "
                f"{', '.join(differing[:5])}{' and more' if len(differing) > 5 else ''}."
            )
        floating = [value.dtype for value in self.tensors.values() if value.is_floating_point()]
        module.to(floating[0]).load_state_dict(self.tensors)
        return module.eval()


def keep_model(
    file: Path, federation: Federation, metric: str | None = None, value: float | None = None
) -> None:
    """Write the global model of a federation, so that a crash leaves the old file or the new one."""
    simulation, module = federation.world.simulation, federation.model()
    facts, tensors = ModelFacts(federation.state.round, metric, value), module.state_dict()
    if simulation is not None:
        facts = replace(facts, shape=simulation.shape)
        if isinstance(simulation.task.model, Model):
            # Of hundreds of runs each would keep the same large model.
            facts = replace(facts, frozen=simulation.objective.model.frozen_digest(simulation.dtype))
            for name, parameter in module.named_parameters(remove_duplicate=False):
                if not parameter.requires_grad:
                    del tensors[name]
    with disk_errors(file, "written"):
        save_module(tensors, file, asdict(facts))


def kept_model(
    folder: str | PathLike[str], which: Which = "last", form: nn.Module | None = None
) -> KeptModel:
    """The last or the best model of the run in a folder; `form` is a module like it, if the folder has no recipe.

    The last model of an unfinished run is that of its newest checkpoint.
    """
    if which not in ("last", "best"):
        raise FieldError(f"load_model.which must be 'last' or 'best', got {which!r}.")
    store = run_at(folder)
    experiment = store.experiment()
    file = store.model_file if which == "last" else store.best_file
    if file.exists():
        tensors, content = read_module(file)
        try:
            facts = decoded(ModelFacts, content)
        except (TypeError, ValueError) as error:
            raise CheckpointError(f"{file} is damaged: {error}.") from error
        return KeptModel(experiment, _with_frozen(tensors, facts, experiment, form), facts, form)
    if which == "best":
        cause = "it has no evaluation yet" if experiment.keep_best else "its spec has no keep_best"
        raise RunFolderError(f"The run in {store.path} keeps no best model: {cause}.")
    if not has_checkpoint(store.checkpoint):
        raise RunFolderError(f"The run in {store.path} keeps no model: it has no checkpoint.")
    rounds, state = newest_tensors(store.checkpoint)
    shape = None
    if form is not None:
        flat = FlatModule(form)
    elif isinstance(experiment.clients, RealClients):
        raise _unbuildable()
    else:
        simulation = experiment.build().world.simulation
        assert simulation is not None
        flat, shape = simulation.objective.model, simulation.shape
    module = flat.to(torch.device("cpu"), state["params"].dtype).filled(state["params"], state["buffers"])
    return KeptModel(experiment, module.state_dict(), ModelFacts(rounds, shape=shape), form)


def load_model(
    folder: str | PathLike[str], which: Which = "last", *, module: nn.Module | None = None
) -> nn.Module:
    """The model of a run as a `torch.nn.Module` in evaluation mode, from the folder of the run.

    `which` is "last", for an unfinished run the model of its newest checkpoint, or "best" for a run with `keep_best`.
    The model is built from the spec of the run. If the folder has no recipe for it, as after a run of real clients,
    give a `module` of the same form: it receives the parameters. A warning says if clients keep parameters of their
    own, because none of them uses this model.
    """
    model = kept_model(folder, which, module)
    if model.caveat:
        warnings.warn(model.caveat, stacklevel=2)
    return model.module()


def _built(experiment: Experiment, shape: ExampleShape) -> FlatModule:
    return experiment.learning_task.build(shape, Key.from_seed(0))


def _with_frozen(
    tensors: dict[str, Tensor], facts: ModelFacts, experiment: Experiment, form: nn.Module | None
) -> dict[str, Tensor]:
    """All tensors of a model whose file leaves out frozen parameters, from its recipe or a module like it."""
    if not facts.frozen or facts.shape is None:
        return tensors
    flat = _built(experiment, facts.shape) if form is None else FlatModule(form)
    dtype = next(value.dtype for value in tensors.values() if value.is_floating_point())
    if flat.frozen_digest(dtype) != facts.frozen:
        raise CheckpointError(
            "The frozen parameters of the model are not those of the run: its folder or function has changed since."
        )
    own = flat.to(torch.device("cpu"), dtype).module.state_dict()
    return {name: tensors.get(name, value) for name, value in own.items()}


def _unbuildable() -> FieldError:
    return FieldError(
        "The folder of this run does not say how to build its model: give a module of the same form, as in "
        "load_model(folder, module=build_model()) or --model MODULE:FUNCTION."
    )
