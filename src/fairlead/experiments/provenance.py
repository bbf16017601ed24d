"""Where a run's numbers come from: versions, machine, engine and times."""

import os
import platform
import subprocess
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version

import numpy
import torch
from torch import Tensor

from fairlead import __version__
from fairlead.federation import Federation
from fairlead.numerics.native import has_numba
from fairlead.records import PathRun
from fairlead.text import ClientNames, names_from


@dataclass(frozen=True)
class Provenance:
    """One start of a run: a run that was resumed has several."""

    fairlead: str
    python: str
    torch: str
    numpy: str
    platform: str
    device: str
    """With its model where it has one, such as "cuda:0 (NVIDIA H200)"."""
    engine: str
    """With its back end and lanes."""
    engine_reason: str
    seed: int
    git_commit: str | None
    """Of the working directory, with "-dirty" if files differ from it."""
    first_round: int
    started: str
    """UTC, ISO 8601, like `ended`."""
    ended: str | None = None
    next_round: int | None = None
    """The round from which another start resumes."""
    outcome: str = "running"
    """"running", "finished", "interrupted" or "failed: " with the error."""
    threads: int | None = None
    """Of torch on the CPU: results repeat to the bit only with the same number. None in older folders."""
    numba: str | None = None
    """Its version, where it is installed: loops that it compiles add up in another order."""
    paths: tuple[PathRun, ...] = ()
    """How local work was really computed: up to the last checkpoint if the process was killed."""

    @property
    def duration(self) -> float:
        """Seconds that it lasted; 0 if it was cut off."""
        if self.ended is None:
            return 0.0
        return (datetime.fromisoformat(self.ended) - datetime.fromisoformat(self.started)).total_seconds()


def failure_in(outcome: str) -> str | None:
    """The error in the outcome of a run; None if there is none.

    >>> failure_in("failed: It burst.")
    'It burst.'
    """
    kind, _, error = outcome.partition(": ")
    return error if kind == "failed" else None


def machine(device: str) -> str:
    """The hardware of a run: the name of its device, or the number of cores."""
    return f"{os.cpu_count()} CPU cores, {platform.machine()}" if device == "cpu" else device


def provenance_of(federation: Federation) -> Provenance:
    """The facts of a start, before its first round."""
    workings = federation.world.workings
    device = workings.device
    return Provenance(
        fairlead=__version__,
        python=platform.python_version(),
        torch=str(torch.__version__),
        numpy=numpy.__version__,
        platform=platform.platform(),
        device=f"{device} ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else str(device),
        threads=torch.get_num_threads(),
        numba=version("numba") if has_numba() else None,
        engine=workings.engine,
        engine_reason=workings.reason,
        seed=federation.seed,
        git_commit=git_commit(),
        first_round=federation.state.round,
        started=now(),
    )


def continued(start: Provenance, federation: Federation) -> Provenance:
    """The facts of a start with the paths that have run so far."""
    return replace(start, paths=federation.world.workings.paths)


def ended(start: Provenance, federation: Federation, outcome: str) -> Provenance:
    """The facts of a start that has just ended."""
    so_far = continued(start, federation)
    return replace(so_far, ended=now(), next_round=federation.state.round, outcome=outcome)


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def git_commit() -> str | None:
    """The commit checked out in the working directory, or None outside a repository."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip() or None


@dataclass(frozen=True)
class ClientFacts:
    """The clients of a run."""

    weights: tuple[float, ...]
    """ω."""
    names: tuple[str, ...] | None
    """None if the data have no names."""
    held_out: bool | None
    """Whether figures per client are of their own test data, not of training data; None if unknown."""

    @property
    def omega(self) -> Tensor:
        """The weights as a vector, (N,)."""
        return torch.tensor(self.weights, dtype=torch.float64)

    @property
    def client_names(self) -> ClientNames | None:
        """The names as data have them."""
        return None if self.names is None else names_from(numpy.asarray(self.names, dtype=object))

    @property
    def real(self) -> bool:
        """Whether the clients were real: only simulations know the data of clients."""
        return self.held_out is None


def client_facts(federation: Federation) -> ClientFacts:
    """The clients of a federation."""
    simulation, population = federation.world.simulation, federation.world.population
    held_out = None if simulation is None else simulation.held_out is not None
    names = None if population.names is None else tuple(map(str, population.names))
    return ClientFacts(tuple(population.weights.tolist()), names, held_out)
