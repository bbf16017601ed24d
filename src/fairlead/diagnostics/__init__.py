"""What a run really did, for people."""

from fairlead.diagnostics.consistency import ConsistencyReport as ConsistencyReport
from fairlead.diagnostics.consistency import measured_consistency as measured_consistency
