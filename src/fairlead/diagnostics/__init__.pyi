"""Generated from the table in `__init__.py` by `python docs/front_door.py`."""

from fairlead.diagnostics.clients import ClientOverview as ClientOverview, overview as overview
from fairlead.diagnostics.consensus import ConsensusReport as ConsensusReport, Drift as Drift, consensus_test as consensus_test, drift_price as drift_price
from fairlead.diagnostics.consistency import ConsistencyReport as ConsistencyReport, predicted_consistency as predicted_consistency
from fairlead.diagnostics.diagnosis import Advice as Advice, Diagnosis as Diagnosis, Finding as Finding
from fairlead.diagnostics.diversity import ConsensusDynamics as ConsensusDynamics, client_coherence as client_coherence, consensus_dynamics as consensus_dynamics, cosine_matrix as cosine_matrix, gradient_diversity as gradient_diversity, local_update_diversity as local_update_diversity, running_elud as running_elud, surrogate_diversity as surrogate_diversity
from fairlead.diagnostics.gradients import NearOptimum as NearOptimum, Stationarity as Stationarity, client_gradients as client_gradients, gradient_figures as gradient_figures, near_optimum as near_optimum, objective_value as objective_value, stationarity as stationarity
from fairlead.diagnostics.measurement import ConsistencyMonitor as ConsistencyMonitor, measured_consistency as measured_consistency
from fairlead.diagnostics.plots import draw_diagnosis as draw_diagnosis, plot_overview as plot_overview
from fairlead.theory.convergence import ConsistencyCondition as ConsistencyCondition, ConvergenceFactors as ConvergenceFactors, consistency_condition as consistency_condition, convergence_factors as convergence_factors
from fairlead.theory.prediction import Surrogate as Surrogate, implied_surrogate as implied_surrogate

CONTENTS: dict[str, str]
