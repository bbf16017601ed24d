"""`Algorithm`: both halves of a federated method in one value."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fairlead.aggregators.base import Aggregator, normalized
from fairlead.aggregators.weighted import WeightedMean
from fairlead.client_table import PartState
from fairlead.component import Component
from fairlead.corrections.personal import OwnParameters
from fairlead.errors import ClashError
from fairlead.local_solver import LocalSolver
from fairlead.optimizers.base import Optimizer
from fairlead.optimizers.descent import SGD
from fairlead.privacy import ClientPrivacy, refuse_single_updates
from fairlead.records import ClientUpdates, Conditions, NeededSums
from fairlead.samplers.base import Sampler
from fairlead.samplers.fixed import FullParticipation
from fairlead.transforms.base import DirectionTransform


@dataclass(frozen=True)
class Algorithm(Component):
    """sampler × local solver × aggregator × direction transforms × server optimizer.

    What clients do and what the server does live together, so that one value describes a method
    completely. Pairs that contradict each other are refused here, before any work is done.

    `calibrate` multiplies the learning rate of the "clients" or of the "server" in every round by the factor with which
    the expected step is as long as that of importance sampling (`calibration`, Weng 2025 I.2). The
    server's leaves local training as it is; a larger one on the clients may diverge where their data differ.

    `privacy` protects clients from everybody who sees the models; `secure_aggregation` hides updates from
    the server, which sees only sums (on Flower; a simulation hides nothing), and refuses parts that need more.

    >>> from fairlead import FedNova
    >>> Algorithm(LocalSolver(SGD(lr=0.1), epochs=2), aggregator=FedNova()).server
    SGD(lr=1.0, schedule=Constant(), weight_decay=0.0, momentum=0.0, nesterov=False, dampening=0.0)
    """

    solver: LocalSolver
    sampler: Sampler = FullParticipation()
    aggregator: Aggregator = WeightedMean()
    transforms: tuple[DirectionTransform, ...] = ()
    server: Optimizer = SGD(lr=1.0)
    calibrate: Literal["clients", "server"] | None = None
    privacy: ClientPrivacy | None = None
    secure_aggregation: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        _refuse_single_halves(self.solver, self.aggregator)
        _refuse_without_descent(self.aggregator, self.transforms)
        _refuse_moved_mean(self)
        _refuse_second_division(self.sampler.long_run, self.aggregator)
        _refuse_open_broadcasts(self)
        _refuse_idle_body(self.solver)
        if self.sampler.buffering is not None:
            _refuse_asynchronous(self)
        if len(self.server.cycle) > 1:
            raise ClashError(
                f"{type(self.server).__name__} is an optimizer for clients: use another Algorithm.server."
            )
        if self.calibrate == "clients" and self.solver.corrections:
            raise ClashError(
                'Algorithm.calibrate="clients" changes the learning rate, on which the work of clients with '
                'corrections depends: write calibrate="server".'
            )
        if self.secure_aggregation:
            refuse_single_updates(self.sampler, self.aggregator, *self.transforms, *self.solver.corrections)
            if self.sampler.buffering is not None:
                raise ClashError(
                    "Algorithm.secure_aggregation adds up the updates of one round, and "
                    f"{type(self.sampler).__name__} lets clients work on while the server steps: remove one of the two."
                )
        if self.privacy is not None:
            self.privacy.refuse_parts(self.sampler, self.aggregator, self.transforms, self.solver.corrections)
        instead = ", or an aggregator and sampler that do not normalize"
        self.solver.refuse_nonlinear((self.sampler, self.aggregator), instead)


def _refuse_asynchronous(algorithm: Algorithm) -> None:
    """Raise if a part needs rounds that wait for their clients."""
    solver, found = algorithm.solver, list[tuple[object, str]]()
    for correction in solver.corrections:
        if correction.memory_extent or correction.shared_names:
            found.append((correction, "keeps vectors that belong to the model of one round"))
    if solver.personal is not None:
        found.append((solver.personal, "trains clients' own models with the model of one round"))
    if algorithm.aggregator.needs_whole_rounds:
        found.append((algorithm.aggregator, "takes updates that have not arrived yet for lost"))
    for part, why in found:
        raise ClashError(
            f"{type(part).__name__} {why}, and {type(algorithm.sampler).__name__} lets clients work on while the "
            "server steps: remove one of the two."
        )
    if algorithm.calibrate == "clients":
        raise ClashError(
            'Algorithm.calibrate="clients" changes the learning rate of clients that are still at work in asynchronous '
            'rounds: write calibrate="server".'
        )


def needed_sums(algorithm: Algorithm, aggregator: PartState, conditions: Conditions) -> NeededSums:
    """The sums that determine a round of an algorithm of sums; `aggregator` is the state of its aggregator."""
    privacy = algorithm.privacy

    def weights(updates: ClientUpdates) -> dict[str, Tensor]:
        shares = normalized(updates.importance)[None]
        direct = updates.importance[None]
        if privacy is None:
            direct = algorithm.aggregator.sum_weights(updates, aggregator, conditions)
        own = conditions.weights[updates.clients]
        further = [correction.sum_weights(updates, own) for correction in algorithm.solver.corrections]
        return {
            "delta": torch.cat([direct, *further]),
            "buffers": shares,
            "messages": own[None],
            "loss": shares,
        }

    return NeededSums(weights, None if privacy is None else privacy.clip)


def _refuse_idle_body(solver: LocalSolver) -> None:
    """Raise if updates would be empty because clients train their own parameters alone."""
    if any(isinstance(c, OwnParameters) and c.train == "own" for c in solver.corrections):
        raise ClashError(
            "OwnParameters(train='own') in LocalSolver.corrections leaves nothing to upload: use it in "
            "LocalSolver.personal, with train='shared' in LocalSolver.corrections."
        )


def _refuse_open_broadcasts(algorithm: Algorithm) -> None:
    """Raise if hostile clients could bypass a robust aggregator."""
    server = type(algorithm.aggregator).__name__
    for correction in algorithm.solver.corrections:
        if algorithm.aggregator.robust and correction.shared_names:
            raise ClashError(
                f"{type(correction).__name__} broadcasts a plain sum of uploads, which one hostile client can move at "
                f"will, so {server} would protect nothing: remove the correction."
            )


def _refuse_without_descent(aggregator: Aggregator, transforms: tuple[DirectionTransform, ...]) -> None:
    """Raise if a transform needs a descent step and the aggregator proposes none."""
    for transform in transforms:
        if transform.needs_descent and not aggregator.proposes_descent:
            part, server = type(transform).__name__, type(aggregator).__name__
            raise ClashError(
                f"{part} changes the step of a method that descends from the current model, and {server} "
                f"does not: its step also compensates earlier moves of the clients. Remove {part}, or use another "
                "aggregator."
            )


def _refuse_moved_mean(algorithm: Algorithm) -> None:
    """Raise if clients start from different models and the new model would not be the mean of theirs."""
    plain = (WeightedMean(), (), SGD(lr=1.0), None)
    if (algorithm.aggregator, algorithm.transforms, algorithm.server, algorithm.calibrate) == plain:
        return
    for correction in algorithm.solver.corrections:
        if correction.starts_elsewhere:
            raise ClashError(
                f"{type(correction).__name__} lets clients start from different models, so only the mean of arrivals "
                "is a model again: write aggregator=WeightedMean(), server=SGD(1.0), no transforms and no calibrate."
            )


def _refuse_second_division(sampler: Sampler, aggregator: Aggregator) -> None:
    """Raise if work or links would be divided out by the draws and again by the server."""
    if sampler.balances_work and aggregator.divides_by is not None:
        draws, server, by = type(sampler).__name__, type(aggregator).__name__, aggregator.divides_by
        raise ClashError(
            f"{draws} draws clients by work and arrival rates, and {server} would divide by the {by} again: write "
            "aggregator=WeightedMean(over='asked'), or sampler=WeightedWithReplacement(...)."
        )


def _refuse_single_halves(solver: LocalSolver, aggregator: Aggregator) -> None:
    """Raise if a correction or an aggregator is one half of a method and the other half is missing."""
    server = type(aggregator).__name__
    for correction in solver.corrections:
        if correction.needs_aggregator not in (None, server):
            raise ClashError(
                f"{type(correction).__name__} is the clients' half of a method whose server must aggregate "
                f"with {correction.needs_aggregator}, got {server}: write "
                f"aggregator={correction.needs_aggregator}(), or remove the correction."
            )
    present = [type(correction).__name__ for correction in solver.corrections]
    if aggregator.needs_correction is not None and aggregator.needs_correction not in present:
        raise ClashError(
            f"{server} is the server's half of a method whose clients must use "
            f"{aggregator.needs_correction}, got corrections {present}: add {aggregator.needs_correction} to "
            "LocalSolver.corrections, or aggregate with WeightedMean."
        )
