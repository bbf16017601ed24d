"""The public names of this package, as in `fairlead/__init__.pyi`."""

from fairlead.testing.client_checks import check_correction as check_correction, check_optimizer as check_optimizer
from fairlead.testing.client_checks import check_schedule as check_schedule
from fairlead.testing.contracts import CHECKS as CHECKS, CONTRACTS as CONTRACTS, check_part as check_part
from fairlead.testing.run_checks import check_algorithm as check_algorithm, check_limit as check_limit
from fairlead.testing.run_checks import check_preset as check_preset, example_of_preset as example_of_preset
from fairlead.testing.server_checks import check_aggregator as check_aggregator, check_sampler as check_sampler
from fairlead.testing.server_checks import check_transform as check_transform
from fairlead.testing.world_checks import check_devices as check_devices, check_link as check_link
from fairlead.testing.world_checks import check_partitioner as check_partitioner, check_work as check_work
from fairlead.testing.world_checks import check_world as check_world

CONTENTS: dict[str, str]
