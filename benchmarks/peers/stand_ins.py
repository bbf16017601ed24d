"""Empty packages in place of those that peers import but that a round never calls."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

NEVER_CALLED = (
    # pfl: privacy accounting, and the statistics under it.
    *("dp_accounting", "prv_accountant", "scipy"),
    # FedLab: readers of data sets and of image files, and the choice among several GPUs.
    *("PIL", "torchvision", "pandas", "sklearn", "pynvml", "tqdm", "munch"),
)


class _Nothing:
    """Whatever a module is asked for while peers are imported; good for nothing, but a class to derive from."""


class _StandIn(ModuleType):
    __path__: list[str] = []

    def __getattr__(self, name: str) -> type[_Nothing]:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Nothing


class _Finder(MetaPathFinder, Loader):
    def __init__(self) -> None:
        self.used: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package = fullname.partition(".")[0]
        # A part that a real package lacks is missing for everyone: peers ask for some in vain.
        if package not in NEVER_CALLED or (package != fullname and package not in self.used):
            return None
        self.used.add(package)
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


@contextmanager
def stand_ins() -> Iterator[set[str]]:
    """While peers are imported, missing packages of the list are empty ones; gives the names of those used.

    Asked last, after all real finders. Forgotten afterwards, so that no library takes them for the real ones.
    """
    finder = _Finder()
    sys.meta_path.append(finder)
    try:
        yield finder.used
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name, module in sys.modules.items() if isinstance(module, _StandIn)]:
            del sys.modules[name]
