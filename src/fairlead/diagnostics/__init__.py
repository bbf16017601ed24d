"""Diagnostics of runs and federations; names are imported when they are first used."""

from fairlead import front_door

CONTENTS, __all__, __dir__, __getattr__ = front_door(__name__, __file__)
