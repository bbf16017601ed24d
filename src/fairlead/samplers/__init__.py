"""Who is asked to work."""

from fairlead.samplers.base import MemorylessSampler as MemorylessSampler
from fairlead.samplers.base import Sampler as Sampler
from fairlead.samplers.fedacs import FedACS as FedACS
from fairlead.samplers.fedacs import FedACSEstimated as FedACSEstimated
from fairlead.samplers.full import FullParticipation as FullParticipation
from fairlead.samplers.full_first_round import FullFirstRound as FullFirstRound
from fairlead.samplers.optimal import OptimalSampling as OptimalSampling
from fairlead.samplers.poisson import PoissonSampling as PoissonSampling
from fairlead.samplers.scripted import ScriptedSampler as ScriptedSampler
from fairlead.samplers.uniform import UniformWithoutReplacement as UniformWithoutReplacement
from fairlead.samplers.weighted import WeightedWithReplacement as WeightedWithReplacement
