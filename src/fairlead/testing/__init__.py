"""Contract checks for your own parts."""

from fairlead import front_door

CONTENTS, __all__, __dir__, __getattr__ = front_door(__name__, __file__)
