"""Studies: many runs that belong together, side by side, and what they say over seeds."""

from fairlead.studies.frames import load_frame as load_frame
from fairlead.studies.runner import run_study as run_study
from fairlead.studies.study import PlannedRun as PlannedRun
from fairlead.studies.study import StudyFolder as StudyFolder
