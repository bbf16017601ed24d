"""The public names of this package, as in `fairlead/__init__.pyi`. Importing the modules fills `METHODS`, in this order."""

from fairlead.presets.averaging import fedavg as fedavg, fedavgm as fedavgm, fedavg_compressed as fedavg_compressed
from fairlead.presets.averaging import fedprox as fedprox, fednova as fednova, fednova_vr as fednova_vr
from fairlead.presets.averaging import scaffold as scaffold, vrlsgd as vrlsgd, feddyn as feddyn, fedcm as fedcm
from fairlead.presets.averaging import fedawe as fedawe, fedadam as fedadam, fedyogi as fedyogi
from fairlead.presets.averaging import fedadagrad as fedadagrad, fedexp as fedexp, fedams as fedams
from fairlead.presets.participation import importance_sampling as importance_sampling
from fairlead.presets.participation import uniform_sampling as uniform_sampling, optimal_sampling as optimal_sampling
from fairlead.presets.participation import power_of_choice as power_of_choice
from fairlead.presets.participation import full_participation as full_participation, fedacs as fedacs
from fairlead.presets.participation import fedacs_estimated as fedacs_estimated
from fairlead.presets.participation import communication_aware_fedavg as communication_aware_fedavg
from fairlead.presets.participation import communication_aware_fednova as communication_aware_fednova
from fairlead.presets.participation import anonymous_fednova as anonymous_fednova, fedau as fedau, fedbuff as fedbuff
from fairlead.presets.remembered import fedvarp as fedvarp, fedvarp_stale as fedvarp_stale, mifa as mifa
from fairlead.presets.remembered import fedaware as fedaware, fedaware_published as fedaware_published
from fairlead.presets.remembered import fedaware_ridge as fedaware_ridge, fedaware_na as fedaware_na
from fairlead.presets.remembered import with_aware as with_aware
from fairlead.presets.robust import fedmgda_plus as fedmgda_plus, coordinate_median as coordinate_median
from fairlead.presets.robust import trimmed_mean as trimmed_mean, norm_bounded_mean as norm_bounded_mean, krum as krum
from fairlead.presets.robust import multi_krum as multi_krum, geometric_median as geometric_median
from fairlead.presets.personal import fedavg_finetuned as fedavg_finetuned, fedper as fedper, fedrep as fedrep
from fairlead.presets.personal import fedbn as fedbn, ditto as ditto, pfedme as pfedme, per_fedavg as per_fedavg
from fairlead.presets.personal import apfl as apfl
from fairlead.presets.table import METHODS as METHODS, ClientSide as ClientSide, Method as Method, method as method
from fairlead.presets.table import method_named as method_named, needed_arguments as needed_arguments

CONTENTS: dict[str, str]
