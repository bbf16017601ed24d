"""The public names of this package, as in `fairlead/__init__.pyi`."""

from fairlead.diagnostics.clients import ClientOverview as ClientOverview, overview as overview
from fairlead.diagnostics.consensus import ConsensusReport as ConsensusReport, Drift as Drift
from fairlead.diagnostics.consensus import consensus_test as consensus_test, drift_price as drift_price
from fairlead.diagnostics.consistency import ConsistencyReport as ConsistencyReport
from fairlead.diagnostics.consistency import predicted_consistency as predicted_consistency
from fairlead.diagnostics.diagnosis import Advice as Advice, Diagnosis as Diagnosis, Finding as Finding
from fairlead.diagnostics.diversity import ConsensusDynamics as ConsensusDynamics
from fairlead.diagnostics.diversity import client_coherence as client_coherence
from fairlead.diagnostics.diversity import consensus_dynamics as consensus_dynamics, cosine_matrix as cosine_matrix
from fairlead.diagnostics.diversity import gradient_diversity as gradient_diversity
from fairlead.diagnostics.diversity import local_update_diversity as local_update_diversity
from fairlead.diagnostics.diversity import running_elud as running_elud, surrogate_diversity as surrogate_diversity
from fairlead.diagnostics.gradients import NearOptimum as NearOptimum, Stationarity as Stationarity
from fairlead.diagnostics.gradients import client_gradients as client_gradients, gradient_figures as gradient_figures
from fairlead.diagnostics.gradients import near_optimum as near_optimum, objective_value as objective_value
from fairlead.diagnostics.gradients import stationarity as stationarity
from fairlead.diagnostics.measurement import ConsistencyMonitor as ConsistencyMonitor
from fairlead.diagnostics.measurement import measured_consistency as measured_consistency
from fairlead.diagnostics.plots import draw_diagnosis as draw_diagnosis, plot_overview as plot_overview
from fairlead.theory.convergence import ConsistencyCondition as ConsistencyCondition
from fairlead.theory.convergence import ConvergenceFactors as ConvergenceFactors
from fairlead.theory.convergence import consistency_condition as consistency_condition
from fairlead.theory.convergence import convergence_factors as convergence_factors
from fairlead.theory.prediction import Surrogate as Surrogate, implied_surrogate as implied_surrogate

CONTENTS: dict[str, str]
