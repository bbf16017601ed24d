"""The gallery of published results: each by name, with the claim it tests and a verdict computed from what was run.

>>> from pathlib import Path
>>> outcome = reproduction_named("wang2021_figure_4").reproduce(Request(out=Path("runs")))
>>> outcome.verdict
'holds'
"""

from fairlead.reproductions.gallery import OMITTED as OMITTED
from fairlead.reproductions.gallery import REPRODUCTIONS as REPRODUCTIONS
from fairlead.reproductions.gallery import reproduction_named as reproduction_named
from fairlead.reproductions.reproduction import Outcome as Outcome
from fairlead.reproductions.reproduction import Reproduction as Reproduction
from fairlead.reproductions.reproduction import Request as Request
