"""How parameters move along a gradient, on clients and on the server."""

from fairlead.optimizers.adaptive import Adagrad as Adagrad
from fairlead.optimizers.adaptive import Adam as Adam
from fairlead.optimizers.adaptive import AMSGrad as AMSGrad
from fairlead.optimizers.adaptive import Yogi as Yogi
from fairlead.optimizers.base import Optimizer as Optimizer
from fairlead.optimizers.schedules import Constant as Constant
from fairlead.optimizers.schedules import Cosine as Cosine
from fairlead.optimizers.schedules import Exponential as Exponential
from fairlead.optimizers.schedules import InverseSquareRoot as InverseSquareRoot
from fairlead.optimizers.schedules import Milestones as Milestones
from fairlead.optimizers.schedules import Schedule as Schedule
from fairlead.optimizers.sgd import SGD as SGD
