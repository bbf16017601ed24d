"""The limit of a method, from its parts alone: mean coefficients, contributions, predicted weights, calibration."""
