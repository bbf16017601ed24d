"""What a run really did, for people."""

from fairlead.diagnostics.client_overview import ClientOverview as ClientOverview
from fairlead.diagnostics.client_overview import overview as overview
from fairlead.diagnostics.client_overview import plot_overview as plot_overview
from fairlead.diagnostics.consistency import ConsistencyReport as ConsistencyReport
from fairlead.diagnostics.consistency import measured_consistency as measured_consistency
