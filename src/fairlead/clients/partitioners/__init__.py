"""Ways to deal a pooled data set to clients."""

from fairlead.clients.partitioners.base import Partitioner as Partitioner
from fairlead.clients.partitioners.dirichlet import DirichletPartitioner as DirichletPartitioner
from fairlead.clients.partitioners.dirichlet import DirichletSizePartitioner as DirichletSizePartitioner
from fairlead.clients.partitioners.dirichlet import InnerDirichletPartitioner as InnerDirichletPartitioner
from fairlead.clients.partitioners.label_blocks import LabelBlocksPartitioner as LabelBlocksPartitioner
from fairlead.clients.partitioners.labels import PathologicalPartitioner as PathologicalPartitioner
from fairlead.clients.partitioners.labels import ShardPartitioner as ShardPartitioner
from fairlead.clients.partitioners.natural import NaturalIdPartitioner as NaturalIdPartitioner
from fairlead.clients.partitioners.natural import ReshuffledPartitioner as ReshuffledPartitioner
from fairlead.clients.partitioners.sizes import IidPartitioner as IidPartitioner
from fairlead.clients.partitioners.sizes import LogNormalPartitioner as LogNormalPartitioner
from fairlead.clients.partitioners.sizes import PowerLawPartitioner as PowerLawPartitioner
from fairlead.clients.partitioners.sizes import SizePartitioner as SizePartitioner
