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

CONTENTS = {
    "presets.averaging": (
        "fedavg fedavgm fedavg_compressed fedprox fednova fednova_vr scaffold vrlsgd feddyn fedcm fedawe fedadam "
        "fedyogi fedadagrad fedexp fedams"
    ),
    "presets.participation": (
        "importance_sampling uniform_sampling optimal_sampling power_of_choice full_participation fedacs "
        "fedacs_estimated communication_aware_fedavg communication_aware_fednova anonymous_fednova fedau fedbuff"
    ),
    "presets.remembered": (
        "fedvarp fedvarp_stale mifa fedaware fedaware_published fedaware_ridge fedaware_na with_aware"
    ),
    "presets.robust": (
        "fedmgda_plus coordinate_median trimmed_mean norm_bounded_mean krum multi_krum geometric_median"
    ),
    "presets.personal": "fedavg_finetuned fedper fedrep fedbn ditto pfedme per_fedavg apfl",
    "presets.table": "METHODS ClientSide Method method method_named needed_arguments",
}
"""Public names by module. Importing the modules fills `METHODS`, in this order."""

for _module in CONTENTS:
    import_module(f"fairlead.{_module}")

__all__, __dir__, __getattr__ = front_door(__name__, CONTENTS)
