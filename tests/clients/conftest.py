"""Where real data are, and which tests need what is not on every machine."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import settings

SHARED_DATA = Path(__file__).parents[3] / "shared" / "data"
"""Real data sets, next to the repository; none of them is part of it."""

settings.register_profile("thorough", deadline=None, max_examples=5000)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "shared_data: reads the real data sets next to the repository")
    config.addinivalue_line("markers", "needs_package(name): needs a package that fairlead does not")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what this machine cannot run, and say so: every loader has tests that run anywhere."""
    kept: list[pytest.Item] = []
    missing: dict[str, list[pytest.Item]] = {}
    for item in items:
        reasons = _missing(item)
        kept += [] if reasons else [item]
        for reason in reasons[:1]:
            missing.setdefault(reason, []).append(item)
    if not missing:
        return
    items[:] = kept
    config.hook.pytest_deselected(items=[item for left_out in missing.values() for item in left_out])
    if os.environ.get("PYTEST_XDIST_WORKER", "gw0") == "gw0":
        for reason, left_out in missing.items():
            print(f"\n{len(left_out)} tests left out: {reason}", file=sys.__stderr__)


def _missing(item: pytest.Item) -> list[str]:
    packages = [str(marker.args[0]) for marker in item.iter_markers("needs_package")]
    reasons = [f"{name} is not installed" for name in packages if find_spec(name) is None]
    if item.get_closest_marker("shared_data") and not SHARED_DATA.is_dir():
        reasons.append("there is no folder shared/data next to the repository")
    return reasons


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data sets."""
    return SHARED_DATA
