"""Real federations on Flower: the algorithm of a simulation, unchanged, on real clients.

Needs the extra `flower`; no other room of fairlead imports it.
"""

from fairlead.flower.client import ClientLimits as ClientLimits
from fairlead.flower.client import client_of as client_of
from fairlead.flower.client import make_client_app as make_client_app
from fairlead.flower.requests import RoundRules as RoundRules
from fairlead.flower.server import make_server_app as make_server_app
from fairlead.flower.strategy import FlowerStrategy as FlowerStrategy
from fairlead.flower.world import FlowerWorld as FlowerWorld
