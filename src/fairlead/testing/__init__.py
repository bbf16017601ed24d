"""Contract checks for your own parts."""

from fairlead import front_door

CONTENTS = {
    "testing.client_checks": "check_correction check_optimizer check_schedule",
    "testing.contracts": "CHECKS CONTRACTS check_part",
    "testing.run_checks": "check_algorithm check_limit check_preset example_of_preset",
    "testing.server_checks": "check_aggregator check_sampler check_transform",
    "testing.world_checks": "check_devices check_link check_partitioner check_work check_world",
}
"""Public names by the module that defines them, imported when they are first used."""

__all__, __dir__, __getattr__ = front_door(__name__, CONTENTS)
