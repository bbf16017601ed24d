"""Who has which data."""

from fairlead.clients.data import ClientData as ClientData
from fairlead.clients.digits import Digits as Digits
from fairlead.clients.partitioners import DirichletPartitioner as DirichletPartitioner
from fairlead.clients.partitioners import DirichletSizePartitioner as DirichletSizePartitioner
from fairlead.clients.partitioners import IidPartitioner as IidPartitioner
from fairlead.clients.partitioners import InnerDirichletPartitioner as InnerDirichletPartitioner
from fairlead.clients.partitioners import LogNormalPartitioner as LogNormalPartitioner
from fairlead.clients.partitioners import NaturalIdPartitioner as NaturalIdPartitioner
from fairlead.clients.partitioners import Partitioner as Partitioner
from fairlead.clients.partitioners import PathologicalPartitioner as PathologicalPartitioner
from fairlead.clients.partitioners import PowerLawPartitioner as PowerLawPartitioner
from fairlead.clients.partitioners import ReshuffledPartitioner as ReshuffledPartitioner
from fairlead.clients.partitioners import ShardPartitioner as ShardPartitioner
from fairlead.clients.partitioners import SizePartitioner as SizePartitioner
from fairlead.clients.pooled import Pool as Pool
from fairlead.clients.pooled import PooledSource as PooledSource
from fairlead.clients.quadratics import Quadratics as Quadratics
from fairlead.clients.source import ClientSource as ClientSource
from fairlead.clients.source import FederatedData as FederatedData
