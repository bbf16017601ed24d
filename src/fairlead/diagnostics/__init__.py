"""Diagnostics of runs and federations; names are imported when they are first used."""

from fairlead import front_door

CONTENTS = {
    "diagnostics.clients": "ClientOverview overview",
    "diagnostics.consensus": "ConsensusReport Drift consensus_test drift_price",
    "diagnostics.consistency": "ConsistencyReport predicted_consistency",
    "diagnostics.diagnosis": "Advice Diagnosis Finding",
    "diagnostics.diversity": (
        "ConsensusDynamics client_coherence consensus_dynamics cosine_matrix gradient_diversity "
        "local_update_diversity running_elud surrogate_diversity"
    ),
    "diagnostics.gradients": (
        "NearOptimum Stationarity client_gradients gradient_figures near_optimum objective_value stationarity"
    ),
    "diagnostics.measurement": "ConsistencyMonitor measured_consistency",
    "diagnostics.plots": "draw_diagnosis plot_overview",
    "theory.convergence": (
        "ConsistencyCondition ConvergenceFactors consistency_condition convergence_factors"
    ),
    "theory.prediction": "Surrogate implied_surrogate",
}
"""Public names by the module that defines them."""

__all__, __dir__, __getattr__ = front_door(__name__, CONTENTS)
