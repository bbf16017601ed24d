"""Short loop transcriptions of every method, in NumPy and float64, for the library to be compared with.

Each takes a `Script` (quadratic clients, and who is drawn, works and gets through) and the arguments of the
preset of the same name, and returns the model after every round, (rounds, d). They share no code with the
library, and are written from the papers' pseudo-code.

>>> import numpy as np
>>> script = Script(
...     hessians=np.ones((2, 1, 1)), linear=np.array([[0.0], [4.0]]), weights=np.array([0.5, 0.5]),
...     start=np.zeros(1), cohorts=[(0, 1), (0, 1)], steps=[(1, 1), (1, 1)], arrivals=[(0, 1), (1,)],
... )
>>> fedavg(script, lr=0.5).tolist()
[[1.0], [2.5]]
"""

from collections.abc import Callable

from fairlead.presets import METHODS
from transcriptions import averaging, buffered, memory, personal
from transcriptions.averaging import anonymous_fedavg, fedavg
from transcriptions.memory import aware_projection
from transcriptions.script import Array, Script, smallest_in_hull

__all__ = ["TRANSCRIPTIONS", "Array", "Script", "aware_projection", "fedavg", "smallest_in_hull"]

TRANSCRIPTIONS: dict[str, Callable[..., Array]] = (
    {
        name: transcription
        for module in (averaging, buffered, memory, personal)
        for name, transcription in vars(module).items()
        if name in METHODS
    }
    | dict.fromkeys(
        ("fedacs", "fedacs_estimated", "full_participation", "importance_sampling", "uniform_sampling"),
        anonymous_fedavg,
    )
    | {"power_of_choice": fedavg}
)
"""Transcription of each preset in `fairlead.presets`; those that differ only in their sampler share one."""
