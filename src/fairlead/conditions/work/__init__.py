"""How much local work each client does in each round."""

from fairlead.conditions.work.base import Workload as Workload
from fairlead.conditions.work.base import WorkModel as WorkModel
from fairlead.conditions.work.batch_sizes import FixedBatchSizes as FixedBatchSizes
from fairlead.conditions.work.budget import TimeBudget as TimeBudget
from fairlead.conditions.work.drawn import NormalSteps as NormalSteps
from fairlead.conditions.work.drawn import RandomEpochs as RandomEpochs
from fairlead.conditions.work.drawn import RandomEpochsAndBatches as RandomEpochsAndBatches
from fairlead.conditions.work.drawn import RandomSteps as RandomSteps
from fairlead.conditions.work.drawn import TwoGroupEpochs as TwoGroupEpochs
from fairlead.conditions.work.drawn import TwoGroupSteps as TwoGroupSteps
from fairlead.conditions.work.fixed import EqualWork as EqualWork
from fairlead.conditions.work.fixed import FixedEpochs as FixedEpochs
from fairlead.conditions.work.fixed import FixedSteps as FixedSteps
from fairlead.conditions.work.fixed import LadderEpochs as LadderEpochs
from fairlead.conditions.work.fixed import LadderSteps as LadderSteps
from fairlead.conditions.work.fixed import ScriptedWork as ScriptedWork
from fairlead.conditions.work.trace import TraceWork as TraceWork
