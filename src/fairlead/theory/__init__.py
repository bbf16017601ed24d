"""What a method converges to, from its parts alone: participation, contributions, predicted weights, calibration."""
