"""Terms that clients add to their local gradient."""

from fairlead.corrections.base import Aftermath as Aftermath
from fairlead.corrections.base import Correction as Correction
from fairlead.corrections.base import LocalOutcome as LocalOutcome
from fairlead.corrections.base import StatelessCorrection as StatelessCorrection
from fairlead.corrections.client_momentum import ClientMomentum as ClientMomentum
from fairlead.corrections.control_variates import ControlVariates as ControlVariates
from fairlead.corrections.dynamic_regularizer import DynamicRegularizer as DynamicRegularizer
from fairlead.corrections.proximal import Proximal as Proximal
from fairlead.corrections.stale_start import StaleStart as StaleStart
from fairlead.corrections.vrlsgd import VRLSGD as VRLSGD
