"""Every published setting by name: how many clients, who has what, who does how much, what gets through.

A `Setting` is what an experiment needs beside data, model and method.

>>> setting = hybrid_plus()
>>> setting.work
RandomEpochsAndBatches(low=2, high=5, min_batch_size=10)
>>> setting.client_side()
{'lr': 0.01, 'batch_size': 64, 'cohort_size': 10, 'epochs': 3}

In a spec, `setting = "hybrid_plus"` fills in whatever the spec leaves open; a table `[setting]` with `name` gives
arguments too.
"""

from fairlead.settings.base import SETTINGS as SETTINGS
from fairlead.settings.base import PublishedSetting as PublishedSetting
from fairlead.settings.base import Setting as Setting
from fairlead.settings.consensus import consensus_cifar100 as consensus_cifar100
from fairlead.settings.consensus import consensus_femnist as consensus_femnist
from fairlead.settings.consensus import consensus_stackoverflow as consensus_stackoverflow
from fairlead.settings.fedacs import fedacs_dynamic as fedacs_dynamic
from fairlead.settings.fedacs import fedacs_dynamic_one_class as fedacs_dynamic_one_class
from fairlead.settings.fedacs import fedacs_quadratics_dynamic as fedacs_quadratics_dynamic
from fairlead.settings.fedacs import fedacs_quadratics_equal as fedacs_quadratics_equal
from fairlead.settings.fedacs import fedacs_quadratics_static as fedacs_quadratics_static
from fairlead.settings.fedacs import fedacs_quadratics_unequal as fedacs_quadratics_unequal
from fairlead.settings.fedacs import fedacs_quadratics_varying as fedacs_quadratics_varying
from fairlead.settings.fedacs import fedacs_static as fedacs_static
from fairlead.settings.fedacs import fedacs_static_one_class as fedacs_static_one_class
from fairlead.settings.fedaware import fedaware_agnews as fedaware_agnews
from fairlead.settings.fedaware import fedaware_cifar10 as fedaware_cifar10
from fairlead.settings.fedaware import fedaware_cifar100 as fedaware_cifar100
from fairlead.settings.fedaware import hybrid as hybrid
from fairlead.settings.fedaware import hybrid_plus as hybrid_plus
from fairlead.settings.fedaware import label_blocks as label_blocks
from fairlead.settings.fedaware import statistical_only as statistical_only
from fairlead.settings.fednova import fednova_equal_epochs as fednova_equal_epochs
from fairlead.settings.fednova import fednova_quadratics_equal as fednova_quadratics_equal
from fairlead.settings.fednova import fednova_quadratics_fixed as fednova_quadratics_fixed
from fairlead.settings.fednova import fednova_quadratics_random as fednova_quadratics_random
from fairlead.settings.fednova import fednova_random_epochs as fednova_random_epochs
from fairlead.settings.fednova import fednova_synthetic as fednova_synthetic
from fairlead.settings.fednova import fednova_synthetic_partial as fednova_synthetic_partial
from fairlead.settings.fednova import fednova_synthetic_random as fednova_synthetic_random
