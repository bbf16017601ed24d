"""Whose updates reach the server."""

from fairlead.conditions.link.base import IndependentLink as IndependentLink
from fairlead.conditions.link.base import LinkModel as LinkModel
from fairlead.conditions.link.bernoulli import BernoulliLink as BernoulliLink
from fairlead.conditions.link.bernoulli import DriftingLink as DriftingLink
from fairlead.conditions.link.bernoulli import SinusoidalLink as SinusoidalLink
from fairlead.conditions.link.bernoulli import TwoGroupLink as TwoGroupLink
from fairlead.conditions.link.bernoulli import UniformBernoulliLink as UniformBernoulliLink
from fairlead.conditions.link.fixed import PerfectLink as PerfectLink
from fairlead.conditions.link.fixed import ScriptedLink as ScriptedLink
from fairlead.conditions.link.markov import MarkovLink as MarkovLink
from fairlead.conditions.link.timed import CombinedLink as CombinedLink
from fairlead.conditions.link.timed import DeadlineLink as DeadlineLink
from fairlead.conditions.link.timed import FirstArrivals as FirstArrivals
from fairlead.conditions.link.timed import OutageLink as OutageLink
from fairlead.conditions.link.timed import TimedLink as TimedLink
from fairlead.conditions.link.trace import TraceLink as TraceLink
