"""Terms that clients add to their local gradient."""

from fairlead.corrections.base import Aftermath as Aftermath
from fairlead.corrections.base import Correction as Correction
from fairlead.corrections.base import LocalOutcome as LocalOutcome
from fairlead.corrections.base import StatelessCorrection as StatelessCorrection
from fairlead.corrections.control_variates import ControlVariates as ControlVariates
from fairlead.corrections.proximal import Proximal as Proximal
