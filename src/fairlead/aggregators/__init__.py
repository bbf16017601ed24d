"""From updates to one direction."""

from fairlead.aggregators.base import Aggregator as Aggregator
from fairlead.aggregators.base import LinearAggregator as LinearAggregator
from fairlead.aggregators.communication_aware import CommunicationAware as CommunicationAware
from fairlead.aggregators.coordinate_median import CoordinateMedian as CoordinateMedian
from fairlead.aggregators.fedau import FedAU as FedAU
from fairlead.aggregators.fedaware import FedAWARE as FedAWARE
from fairlead.aggregators.fedaware import RememberedMean as RememberedMean
from fairlead.aggregators.feddyn import FedDyn as FedDyn
from fairlead.aggregators.fedmgda import FedMGDA as FedMGDA
from fairlead.aggregators.fednova import FedNova as FedNova
from fairlead.aggregators.fedvarp import FedVARP as FedVARP
from fairlead.aggregators.fedvarp import StaleFedVARP as StaleFedVARP
from fairlead.aggregators.mifa import MIFA as MIFA
from fairlead.aggregators.norm_bounded_mean import NormBoundedMean as NormBoundedMean
from fairlead.aggregators.trimmed_mean import TrimmedMean as TrimmedMean
from fairlead.aggregators.weighted_mean import WeightedMean as WeightedMean
from fairlead.update_memory import UpdateMemory as UpdateMemory
