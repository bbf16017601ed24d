"""Contract checks for your own parts, closed forms to compare with, and transcriptions of every method."""

from fairlead.testing.client_checks import check_correction as check_correction
from fairlead.testing.client_checks import check_optimizer as check_optimizer
from fairlead.testing.client_checks import check_schedule as check_schedule
from fairlead.testing.contracts import CHECKS as CHECKS
from fairlead.testing.contracts import CONTRACTS as CONTRACTS
from fairlead.testing.contracts import check_part as check_part
from fairlead.testing.examples import examples as examples
from fairlead.testing.run_checks import check_algorithm as check_algorithm
from fairlead.testing.run_checks import check_limit as check_limit
from fairlead.testing.run_checks import check_preset as check_preset
from fairlead.testing.run_checks import example_of_preset as example_of_preset
from fairlead.testing.server_checks import check_aggregator as check_aggregator
from fairlead.testing.server_checks import check_sampler as check_sampler
from fairlead.testing.server_checks import check_transform as check_transform
from fairlead.testing.world_checks import check_devices as check_devices
from fairlead.testing.world_checks import check_link as check_link
from fairlead.testing.world_checks import check_partitioner as check_partitioner
from fairlead.testing.world_checks import check_work as check_work
from fairlead.testing.world_checks import check_world as check_world
