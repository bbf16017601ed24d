"""From updates to one direction."""

from fairlead.aggregators.base import Aggregator as Aggregator
from fairlead.aggregators.base import LinearAggregator as LinearAggregator
from fairlead.aggregators.fednova import FedNova as FedNova
from fairlead.aggregators.weighted_mean import WeightedMean as WeightedMean
