"""Every published method as a combination of parts: read `averaging` first.

| module | methods |
|---|---|
| `averaging` | FedAvg, corrections of local steps, optimizers on the server |
| `participation` | sampling, lost updates, asynchronous rounds |
| `remembered` | memories of the last updates: FedVARP, MIFA, FedAWARE |
| `robust` | limits on the pull of a single client |
| `personal` | a model for each client |
| `table` | the arguments that all share, and `METHODS`, the table of them by name |

>>> from fairlead import presets
>>> presets.fedprox(mu=0.1, lr=0.05, epochs=2, cohort_size=10).solver.corrections
(Proximal(mu=0.1),)
"""

from importlib import import_module

from fairlead import front_door

CONTENTS, __all__, __dir__, __getattr__ = front_door(__name__, __file__)

for _module in CONTENTS:
    import_module(f"fairlead.{_module}")
