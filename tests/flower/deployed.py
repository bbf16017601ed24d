"""The files in deploy/, read as data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def composed() -> dict[str, Any]:
    """The compose file, with its anchors resolved."""
    content = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    assert isinstance(content, dict)
    return content
