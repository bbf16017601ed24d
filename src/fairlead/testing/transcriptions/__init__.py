"""Short loop transcriptions of every method, in NumPy and float64, for the library to be compared with.

Each takes a `Script` (quadratic clients, and who is drawn, works and gets through) and the arguments of the
preset of the same name, and returns the model after every round, (rounds, d). They share no code with the
library and are written from the papers' pseudo-code: for reading, and for tests of other implementations.

>>> import numpy as np
>>> script = Script(
...     hessians=np.ones((2, 1, 1)), linear=np.array([[0.0], [4.0]]), weights=np.array([0.5, 0.5]),
...     start=np.zeros(1), cohorts=[(0, 1), (0, 1)], steps=[(1, 1), (1, 1)], arrivals=[(0, 1), (1,)],
... )
>>> fedavg(script, lr=0.5).tolist()
[[1.0], [2.5]]
"""

from collections.abc import Callable

from fairlead.testing.transcriptions.averaging import (
    anonymous_fedavg,
    anonymous_fednova,
    communication_aware_fedavg,
    communication_aware_fednova,
    fedadagrad,
    fedadam,
    fedams,
    fedavg,
    fedavgm,
    fednova,
    fedprox,
    fedyogi,
    optimal_sampling,
)
from fairlead.testing.transcriptions.client_side import fedawe, fedcm, feddyn, fednova_vr, scaffold, vrlsgd
from fairlead.testing.transcriptions.memory import (
    aware_projection,
    coordinate_median,
    fedau,
    fedaware,
    fedaware_na,
    fedaware_published,
    fedaware_ridge,
    fedmgda_plus,
    fedvarp,
    fedvarp_stale,
    mifa,
    norm_bounded_mean,
    trimmed_mean,
)
from fairlead.testing.transcriptions.script import (
    Array,
    Round,
    Script,
    Solver,
    effective_steps,
    local_work,
    smallest_in_hull,
)

__all__ = [
    "TRANSCRIPTIONS",
    "Array",
    "Round",
    "Script",
    "Solver",
    "aware_projection",
    "effective_steps",
    "fedavg",
    "local_work",
    "smallest_in_hull",
]

TRANSCRIPTIONS: dict[str, Callable[..., Array]] = {
    "anonymous_fednova": anonymous_fednova,
    "communication_aware_fedavg": communication_aware_fedavg,
    "communication_aware_fednova": communication_aware_fednova,
    "coordinate_median": coordinate_median,
    "fedacs": anonymous_fedavg,
    "fedacs_estimated": anonymous_fedavg,
    "fedadagrad": fedadagrad,
    "fedadam": fedadam,
    "fedams": fedams,
    "fedau": fedau,
    "fedavg": fedavg,
    "fedavgm": fedavgm,
    "fedaware": fedaware,
    "fedaware_na": fedaware_na,
    "fedaware_published": fedaware_published,
    "fedaware_ridge": fedaware_ridge,
    "fedawe": fedawe,
    "fedcm": fedcm,
    "feddyn": feddyn,
    "fedmgda_plus": fedmgda_plus,
    "fednova": fednova,
    "fednova_vr": fednova_vr,
    "fedprox": fedprox,
    "fedvarp": fedvarp,
    "fedvarp_stale": fedvarp_stale,
    "fedyogi": fedyogi,
    "full_participation": anonymous_fedavg,
    "importance_sampling": anonymous_fedavg,
    "mifa": mifa,
    "norm_bounded_mean": norm_bounded_mean,
    "optimal_sampling": optimal_sampling,
    "scaffold": scaffold,
    "trimmed_mean": trimmed_mean,
    "uniform_sampling": anonymous_fedavg,
    "vrlsgd": vrlsgd,
}
"""Transcription of each preset in `fairlead.presets`."""
