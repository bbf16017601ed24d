"""Who has which data."""

from fairlead.clients.data import ClientData as ClientData
from fairlead.clients.digits import Digits as Digits
from fairlead.clients.partition import IID as IID
from fairlead.clients.partition import DirichletByLabel as DirichletByLabel
from fairlead.clients.partition import Partitioner as Partitioner
from fairlead.clients.quadratics import Quadratics as Quadratics
from fairlead.clients.source import ClientSource as ClientSource
from fairlead.clients.source import FederatedData as FederatedData
