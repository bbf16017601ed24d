"""`RayCluster`: the Ray actors that train clients, and the address of their cluster."""

import re
from dataclasses import dataclass

from fairlead.component import Component, NotNegative, PositiveCount
from fairlead.errors import field_error

ADDRESS = re.compile(r"auto|(?P<host>[\w.-]+|\[[0-9a-fA-F:]+\]):(?P<port>\d{1,5})")


@dataclass(frozen=True)
class RayCluster(Component):
    """Ray actors that train clients.

    Fields: how many `actors`; the `address` "host:port" of a running Ray cluster, or "auto" for the one that
    this machine belongs to, where None uses what this process is connected to already, else what the environment
    variable RAY_ADDRESS names, else starts Ray on this machine; `threads` that torch uses in each actor, for
    which it occupies as many CPUs; `gpus` that each actor occupies, a part of one if several share it.
    """

    actors: PositiveCount
    address: str | None = None
    threads: PositiveCount = 1
    gpus: NotNegative = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.address is not None and not ADDRESS.fullmatch(str(self.address)):
            raise field_error(self, "address", "None, 'auto' or 'host:port'", self.address)
