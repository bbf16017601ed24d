"""`RayCluster`: the Ray actors that train clients, and the address of their cluster."""

import logging
import os
import re
import socket
from dataclasses import dataclass
from importlib.util import find_spec

from fairlead.component import Component
from fairlead.errors import EngineError, FieldError, field_error, require_integer, require_number

_ADDRESS = re.compile(r"auto|(?P<host>[\w.-]+|\[[0-9a-fA-F:]+\]):(?P<port>\d{1,5})")
_SECONDS_TO_ANSWER = 5.0


@dataclass(frozen=True)
class RayCluster(Component):
    """Ray actors that train clients.

    Fields: how many `actors`; the `address` "host:port" of a running Ray cluster, or "auto" for the one that
    this machine belongs to, where None uses what this process is connected to already, else what the environment
    variable RAY_ADDRESS names, else starts Ray on this machine; `threads` that torch uses in each actor, for
    which it occupies as many CPUs; `gpus` that each actor occupies, a part of one if several share it.
    """

    actors: int
    address: str | None = None
    threads: int = 1
    gpus: float = 0.0

    def __post_init__(self) -> None:
        require_integer(self, "actors", at_least=1)
        require_integer(self, "threads", at_least=1)
        require_number(self, "gpus", at_least=0)
        if self.address is not None and not _ADDRESS.fullmatch(str(self.address)):
            raise field_error(self, "address", "None, 'auto' or 'host:port'", self.address)

    def connect(self) -> None:
        """Connect this process to the cluster, unless it is already."""
        if find_spec("ray") is None:
            raise FieldError("RayWorld needs Ray: install it with pip install 'ray>=2.55,<3'.")
        import ray

        if ray.is_initialized():
            current = ray.get_runtime_context().gcs_address
            if self.address not in (None, "auto", current):
                raise field_error(
                    self,
                    "address",
                    f"that of the cluster which this process is connected to, {current!r}",
                    self.address,
                )
            return
        address = self.address or os.environ.get("RAY_ADDRESS")
        if address is None:
            self._start_here()
            return
        self._require_answer(address)
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise self._unreachable(address, str(error).splitlines()[0]) from error

    def _start_here(self) -> None:
        import ray

        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            ray.init(
                address="local",
                num_cpus=self.actors * self.threads,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
        except Exception as error:
            # Ray raises a plain Exception if its start takes more than 30 s, as on a busy machine.
            raise EngineError(f"Ray cannot be started on this machine: {error}") from error

    def _require_answer(self, address: str) -> None:
        """Refuse an address without a listener: Ray itself would try for a minute."""
        place = _ADDRESS.fullmatch(address)
        if place is None or place["host"] is None:
            return
        try:
            socket.create_connection(
                (place["host"].strip("[]"), int(place["port"])), _SECONDS_TO_ANSWER
            ).close()
        except (OSError, OverflowError) as error:
            raise self._unreachable(address, str(error)) from error

    def _unreachable(self, address: str, reason: str) -> FieldError:
        reason = reason.rstrip(".")
        return FieldError(
            f"RayCluster.address must be where a Ray cluster can be reached, got {address!r}: {reason}."
        )
