"""Experiments as values: specs, runs kept in folders, comparisons and the catalogue of parts."""

from fairlead.experiments.comparison import ComparedMethod as ComparedMethod
from fairlead.experiments.comparison import compare as compare
from fairlead.experiments.diagnosing import diagnose as diagnose
from fairlead.experiments.experiment import Experiment as Experiment
from fairlead.experiments.run_folder import RunFolder as RunFolder
from fairlead.experiments.run_folder import load_records as load_records
from fairlead.experiments.runner import Run as Run
from fairlead.experiments.runner import run_experiment as run_experiment
from fairlead.experiments.spec import from_toml as from_toml
from fairlead.experiments.spec import load_experiment as load_experiment
from fairlead.experiments.spec import to_toml as to_toml
from fairlead.experiments.summary import RunSummary as RunSummary
