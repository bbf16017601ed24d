"""Generated from the table in `__init__.py` by `python docs/front_door.py`."""

from fairlead.presets.averaging import fedavg as fedavg, fedavgm as fedavgm, fedavg_compressed as fedavg_compressed, fedprox as fedprox, fednova as fednova, fednova_vr as fednova_vr, scaffold as scaffold, vrlsgd as vrlsgd, feddyn as feddyn, fedcm as fedcm, fedawe as fedawe, fedadam as fedadam, fedyogi as fedyogi, fedadagrad as fedadagrad, fedexp as fedexp, fedams as fedams
from fairlead.presets.participation import importance_sampling as importance_sampling, uniform_sampling as uniform_sampling, optimal_sampling as optimal_sampling, power_of_choice as power_of_choice, full_participation as full_participation, fedacs as fedacs, fedacs_estimated as fedacs_estimated, communication_aware_fedavg as communication_aware_fedavg, communication_aware_fednova as communication_aware_fednova, anonymous_fednova as anonymous_fednova, fedau as fedau, fedbuff as fedbuff
from fairlead.presets.personal import fedavg_finetuned as fedavg_finetuned, fedper as fedper, fedrep as fedrep, fedbn as fedbn, ditto as ditto, pfedme as pfedme, per_fedavg as per_fedavg, apfl as apfl
from fairlead.presets.remembered import fedvarp as fedvarp, fedvarp_stale as fedvarp_stale, mifa as mifa, fedaware as fedaware, fedaware_published as fedaware_published, fedaware_ridge as fedaware_ridge, fedaware_na as fedaware_na, with_aware as with_aware
from fairlead.presets.robust import fedmgda_plus as fedmgda_plus, coordinate_median as coordinate_median, trimmed_mean as trimmed_mean, norm_bounded_mean as norm_bounded_mean, krum as krum, multi_krum as multi_krum, geometric_median as geometric_median
from fairlead.presets.table import METHODS as METHODS, ClientSide as ClientSide, Method as Method, method as method, method_named as method_named, needed_arguments as needed_arguments

CONTENTS: dict[str, str]
