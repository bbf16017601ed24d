"""What the algorithm faces: unequal work and unequal links."""

from fairlead.conditions.link import BernoulliLink as BernoulliLink
from fairlead.conditions.link import LinkModel as LinkModel
from fairlead.conditions.link import PerfectLink as PerfectLink
from fairlead.conditions.link import ScriptedLink as ScriptedLink
from fairlead.conditions.link import UniformBernoulliLink as UniformBernoulliLink
from fairlead.conditions.work import EqualWork as EqualWork
from fairlead.conditions.work import FixedEpochs as FixedEpochs
from fairlead.conditions.work import FixedSteps as FixedSteps
from fairlead.conditions.work import RandomEpochs as RandomEpochs
from fairlead.conditions.work import RandomSteps as RandomSteps
from fairlead.conditions.work import ScriptedWork as ScriptedWork
from fairlead.conditions.work import Workload as Workload
from fairlead.conditions.work import WorkModel as WorkModel
