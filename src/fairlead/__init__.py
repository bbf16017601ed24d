"""Federated optimization when clients differ.

Names are imported when they are first used: `import fairlead` alone does not load torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairlead import diagnostics as diagnostics
    from fairlead import errors as errors
    from fairlead import presets as presets
    from fairlead import settings as settings
    from fairlead import testing as testing
    from fairlead.aggregators.base import Aggregator as Aggregator
    from fairlead.aggregators.base import LinearAggregator as LinearAggregator
    from fairlead.aggregators.fedau import FedAU as FedAU
    from fairlead.aggregators.fedaware import FedAWARE as FedAWARE
    from fairlead.aggregators.fedaware import RememberedMean as RememberedMean
    from fairlead.aggregators.feddyn import FedDyn as FedDyn
    from fairlead.aggregators.fedmgda import FedMGDA as FedMGDA
    from fairlead.aggregators.last_updates import MIFA as MIFA
    from fairlead.aggregators.last_updates import FedVARP as FedVARP
    from fairlead.aggregators.last_updates import StaleFedVARP as StaleFedVARP
    from fairlead.aggregators.linear import CommunicationAware as CommunicationAware
    from fairlead.aggregators.linear import FedNova as FedNova
    from fairlead.aggregators.linear import WeightedMean as WeightedMean
    from fairlead.aggregators.robust import CoordinateMedian as CoordinateMedian
    from fairlead.aggregators.robust import NormBoundedMean as NormBoundedMean
    from fairlead.aggregators.robust import TrimmedMean as TrimmedMean
    from fairlead.algorithm import Algorithm as Algorithm
    from fairlead.client_table import ClientTable as ClientTable
    from fairlead.clients.arrays import NpzArrays as NpzArrays
    from fairlead.clients.data import ClientData as ClientData
    from fairlead.clients.feature_skew import FeatureSkew as FeatureSkew
    from fairlead.clients.feature_skew import GaussianNoise as GaussianNoise
    from fairlead.clients.feature_skew import Rotation as Rotation
    from fairlead.clients.images import CifarFolder as CifarFolder
    from fairlead.clients.images import Digits as Digits
    from fairlead.clients.images import FashionMnistFolder as FashionMnistFolder
    from fairlead.clients.images import MnistFolder as MnistFolder
    from fairlead.clients.leaf import LeafFolder as LeafFolder
    from fairlead.clients.partitioners.base import Partitioner as Partitioner
    from fairlead.clients.partitioners.labels import DirichletPartitioner as DirichletPartitioner
    from fairlead.clients.partitioners.labels import InnerDirichletPartitioner as InnerDirichletPartitioner
    from fairlead.clients.partitioners.labels import LabelBlocksPartitioner as LabelBlocksPartitioner
    from fairlead.clients.partitioners.labels import PathologicalPartitioner as PathologicalPartitioner
    from fairlead.clients.partitioners.labels import ShardPartitioner as ShardPartitioner
    from fairlead.clients.partitioners.sizes import DirichletSizePartitioner as DirichletSizePartitioner
    from fairlead.clients.partitioners.sizes import IidPartitioner as IidPartitioner
    from fairlead.clients.partitioners.sizes import LogNormalPartitioner as LogNormalPartitioner
    from fairlead.clients.partitioners.sizes import NaturalIdPartitioner as NaturalIdPartitioner
    from fairlead.clients.partitioners.sizes import PowerLawPartitioner as PowerLawPartitioner
    from fairlead.clients.partitioners.sizes import ReshuffledPartitioner as ReshuffledPartitioner
    from fairlead.clients.partitioners.sizes import SizePartitioner as SizePartitioner
    from fairlead.clients.pool import Pool as Pool
    from fairlead.clients.pooled import Excerpt as Excerpt
    from fairlead.clients.pooled import PooledSource as PooledSource
    from fairlead.clients.quadratics import Quadratics as Quadratics
    from fairlead.clients.source import ClientSource as ClientSource
    from fairlead.clients.source import FederatedData as FederatedData
    from fairlead.clients.source import RealClients as RealClients
    from fairlead.clients.synthetic import SyntheticLogistic as SyntheticLogistic
    from fairlead.clients.synthetic import SyntheticRegression as SyntheticRegression
    from fairlead.clients.tables import CsvTable as CsvTable
    from fairlead.clients.tables import CsvText as CsvText
    from fairlead.clients.tables import HuggingFaceData as HuggingFaceData
    from fairlead.clients.tables import ParquetTable as ParquetTable
    from fairlead.clients.tokenizers import ByteTokens as ByteTokens
    from fairlead.clients.tokenizers import HashedWords as HashedWords
    from fairlead.clients.tokenizers import Tokenizer as Tokenizer
    from fairlead.conditions.devices import DeviceModel as DeviceModel
    from fairlead.conditions.devices import DeviceProfile as DeviceProfile
    from fairlead.conditions.devices import FixedDevices as FixedDevices
    from fairlead.conditions.devices import LogNormalDevices as LogNormalDevices
    from fairlead.conditions.devices import TwoGroupDevices as TwoGroupDevices
    from fairlead.conditions.devices import elapsed as elapsed
    from fairlead.conditions.devices import time_to as time_to
    from fairlead.conditions.links import BernoulliLink as BernoulliLink
    from fairlead.conditions.links import DriftingLink as DriftingLink
    from fairlead.conditions.links import LinkModel as LinkModel
    from fairlead.conditions.links import MarkovLink as MarkovLink
    from fairlead.conditions.links import PerfectLink as PerfectLink
    from fairlead.conditions.links import ScriptedLink as ScriptedLink
    from fairlead.conditions.links import SinusoidalLink as SinusoidalLink
    from fairlead.conditions.links import TraceLink as TraceLink
    from fairlead.conditions.links import TwoGroupLink as TwoGroupLink
    from fairlead.conditions.links import UniformBernoulliLink as UniformBernoulliLink
    from fairlead.conditions.timed import CombinedLink as CombinedLink
    from fairlead.conditions.timed import DeadlineLink as DeadlineLink
    from fairlead.conditions.timed import FirstArrivals as FirstArrivals
    from fairlead.conditions.timed import FixedBatchSizes as FixedBatchSizes
    from fairlead.conditions.timed import OutageLink as OutageLink
    from fairlead.conditions.timed import TimeBudget as TimeBudget
    from fairlead.conditions.traces import TraceEntry as TraceEntry
    from fairlead.conditions.traces import read_trace as read_trace
    from fairlead.conditions.traces import trace_of as trace_of
    from fairlead.conditions.traces import write_trace as write_trace
    from fairlead.conditions.work import EqualWork as EqualWork
    from fairlead.conditions.work import FixedEpochs as FixedEpochs
    from fairlead.conditions.work import FixedSteps as FixedSteps
    from fairlead.conditions.work import LadderEpochs as LadderEpochs
    from fairlead.conditions.work import LadderSteps as LadderSteps
    from fairlead.conditions.work import NormalSteps as NormalSteps
    from fairlead.conditions.work import RandomEpochs as RandomEpochs
    from fairlead.conditions.work import RandomEpochsAndBatches as RandomEpochsAndBatches
    from fairlead.conditions.work import RandomSteps as RandomSteps
    from fairlead.conditions.work import ScriptedWork as ScriptedWork
    from fairlead.conditions.work import TraceWork as TraceWork
    from fairlead.conditions.work import TwoGroupEpochs as TwoGroupEpochs
    from fairlead.conditions.work import TwoGroupSteps as TwoGroupSteps
    from fairlead.conditions.work import Workload as Workload
    from fairlead.conditions.work import WorkModel as WorkModel
    from fairlead.corrections.base import Correction as Correction
    from fairlead.corrections.base import LocalOutcome as LocalOutcome
    from fairlead.corrections.base import LocalResult as LocalResult
    from fairlead.corrections.client_momentum import ClientMomentum as ClientMomentum
    from fairlead.corrections.regularizers import DynamicRegularizer as DynamicRegularizer
    from fairlead.corrections.regularizers import Proximal as Proximal
    from fairlead.corrections.stale_start import StaleStart as StaleStart
    from fairlead.corrections.variance_reduction import VRLSGD as VRLSGD
    from fairlead.corrections.variance_reduction import ControlVariates as ControlVariates
    from fairlead.experiments.diagnose import diagnose as diagnose
    from fairlead.experiments.experiment import Experiment as Experiment
    from fairlead.experiments.run_folder import RunFolder as RunFolder
    from fairlead.experiments.run_folder import RunSummary as RunSummary
    from fairlead.experiments.run_folder import load_records as load_records
    from fairlead.experiments.runner import Run as Run
    from fairlead.experiments.runner import run_experiment as run_experiment
    from fairlead.experiments.spec import from_toml as from_toml
    from fairlead.experiments.spec import load_experiment as load_experiment
    from fairlead.experiments.spec import to_toml as to_toml
    from fairlead.experiments.study import PlannedRun as PlannedRun
    from fairlead.experiments.study import StudyFolder as StudyFolder
    from fairlead.experiments.workers import run_study as run_study
    from fairlead.federation import Federation as Federation
    from fairlead.local_solver import LocalSolver as LocalSolver
    from fairlead.memory.update_memory import UpdateMemory as UpdateMemory
    from fairlead.models.augmentation import Augmentation as Augmentation
    from fairlead.models.augmentation import HorizontalFlip as HorizontalFlip
    from fairlead.models.augmentation import Normalize as Normalize
    from fairlead.models.augmentation import RandomCrop as RandomCrop
    from fairlead.models.base import ExampleShape as ExampleShape
    from fairlead.models.base import Model as Model
    from fairlead.models.convolutional import VGG11 as VGG11
    from fairlead.models.convolutional import DropoutCNN as DropoutCNN
    from fairlead.models.convolutional import FedAvgCNN as FedAvgCNN
    from fairlead.models.convolutional import FiveLayerCNN as FiveLayerCNN
    from fairlead.models.convolutional import ImageModel as ImageModel
    from fairlead.models.convolutional import PooledCNN as PooledCNN
    from fairlead.models.convolutional import ResNet18 as ResNet18
    from fairlead.models.convolutional import UnpooledCNN as UnpooledCNN
    from fairlead.models.dense import MLP as MLP
    from fairlead.models.dense import LogisticRegression as LogisticRegression
    from fairlead.models.imported import ImportedModel as ImportedModel
    from fairlead.models.sequences import CharLSTM as CharLSTM
    from fairlead.models.sequences import TextTransformer as TextTransformer
    from fairlead.models.sequences import TokenModel as TokenModel
    from fairlead.models.sequences import WindowCNN as WindowCNN
    from fairlead.optimizers.adaptive import Adagrad as Adagrad
    from fairlead.optimizers.adaptive import Adam as Adam
    from fairlead.optimizers.adaptive import AMSGrad as AMSGrad
    from fairlead.optimizers.adaptive import Yogi as Yogi
    from fairlead.optimizers.base import Optimizer as Optimizer
    from fairlead.optimizers.schedules import Constant as Constant
    from fairlead.optimizers.schedules import Cosine as Cosine
    from fairlead.optimizers.schedules import Exponential as Exponential
    from fairlead.optimizers.schedules import InverseSquareRoot as InverseSquareRoot
    from fairlead.optimizers.schedules import Milestones as Milestones
    from fairlead.optimizers.schedules import Schedule as Schedule
    from fairlead.optimizers.sgd import SGD as SGD
    from fairlead.privacy.client_privacy import ClientPrivacy as ClientPrivacy
    from fairlead.randomness import Key as Key
    from fairlead.records import Aggregate as Aggregate
    from fairlead.records import ClientUpdates as ClientUpdates
    from fairlead.records import ClientWeights as ClientWeights
    from fairlead.records import Cohort as Cohort
    from fairlead.records import Conditions as Conditions
    from fairlead.records import Contributions as Contributions
    from fairlead.records import Evaluation as Evaluation
    from fairlead.records import ExpectedRound as ExpectedRound
    from fairlead.records import Forecast as Forecast
    from fairlead.records import GradientFigures as GradientFigures
    from fairlead.records import Limit as Limit
    from fairlead.records import MeanCoefficients as MeanCoefficients
    from fairlead.records import NotKnown as NotKnown
    from fairlead.records import Participation as Participation
    from fairlead.records import Population as Population
    from fairlead.records import RoundRecord as RoundRecord
    from fairlead.records import ServerState as ServerState
    from fairlead.records import Transformed as Transformed
    from fairlead.records import WorkOrder as WorkOrder
    from fairlead.results.compared_method import ComparedMethod as ComparedMethod
    from fairlead.results.compared_method import compare as compare
    from fairlead.results.frames import load_frame as load_frame
    from fairlead.round import initial_state as initial_state
    from fairlead.round import run_round as run_round
    from fairlead.samplers.base import MemorylessSampler as MemorylessSampler
    from fairlead.samplers.base import Sampler as Sampler
    from fairlead.samplers.fedacs import FedACS as FedACS
    from fairlead.samplers.fedacs import FedACSEstimated as FedACSEstimated
    from fairlead.samplers.feedback import WeightFeedback as WeightFeedback
    from fairlead.samplers.full import FullFirstRound as FullFirstRound
    from fairlead.samplers.full import FullParticipation as FullParticipation
    from fairlead.samplers.scripted import ScriptedSampler as ScriptedSampler
    from fairlead.samplers.uniform import PoissonSampling as PoissonSampling
    from fairlead.samplers.uniform import UniformWithoutReplacement as UniformWithoutReplacement
    from fairlead.samplers.with_replacement import OptimalSampling as OptimalSampling
    from fairlead.samplers.with_replacement import WeightedWithReplacement as WeightedWithReplacement
    from fairlead.task import Task as Task
    from fairlead.task import accuracy as accuracy
    from fairlead.task import cross_entropy as cross_entropy
    from fairlead.task import mean_squared_error as mean_squared_error
    from fairlead.task import squared_error as squared_error
    from fairlead.theory.calibration import calibrated_lr as calibrated_lr
    from fairlead.theory.calibration import step_length as step_length
    from fairlead.transforms.aware_projection import AwareProjection as AwareProjection
    from fairlead.transforms.base import DirectionTransform as DirectionTransform
    from fairlead.transforms.clip import Clip as Clip
    from fairlead.worlds.base import World as World
    from fairlead.worlds.ray.cluster import RayCluster as RayCluster
    from fairlead.worlds.ray.world import RayWorld as RayWorld
    from fairlead.worlds.simulated import SimulatedWorld as SimulatedWorld

__version__ = "0.1.0"

MODULES = ("diagnostics", "errors", "presets", "settings", "testing")
"""Public modules, as attributes of the package."""

CONTENTS = {
    "algorithm": "Algorithm",
    "federation": "Federation",
    "round": "initial_state run_round",
    "local_solver": "LocalSolver",
    "task": "Task accuracy cross_entropy mean_squared_error squared_error",
    "records": (
        "Aggregate ClientUpdates ClientWeights Cohort Conditions Contributions Evaluation ExpectedRound Forecast "
        "GradientFigures Limit MeanCoefficients NotKnown Participation Population RoundRecord ServerState "
        "Transformed WorkOrder"
    ),
    "client_table": "ClientTable",
    "randomness": "Key",
    "samplers.base": "MemorylessSampler Sampler",
    "samplers.fedacs": "FedACS FedACSEstimated",
    "samplers.feedback": "WeightFeedback",
    "samplers.full": "FullFirstRound FullParticipation",
    "samplers.scripted": "ScriptedSampler",
    "samplers.uniform": "PoissonSampling UniformWithoutReplacement",
    "samplers.with_replacement": "OptimalSampling WeightedWithReplacement",
    "optimizers.adaptive": "AMSGrad Adagrad Adam Yogi",
    "optimizers.base": "Optimizer",
    "optimizers.schedules": "Constant Cosine Exponential InverseSquareRoot Milestones Schedule",
    "optimizers.sgd": "SGD",
    "corrections.base": "Correction LocalOutcome LocalResult",
    "corrections.client_momentum": "ClientMomentum",
    "corrections.variance_reduction": "ControlVariates VRLSGD",
    "corrections.regularizers": "DynamicRegularizer Proximal",
    "corrections.stale_start": "StaleStart",
    "aggregators.base": "Aggregator LinearAggregator",
    "aggregators.fedau": "FedAU",
    "aggregators.fedaware": "FedAWARE RememberedMean",
    "aggregators.feddyn": "FedDyn",
    "aggregators.fedmgda": "FedMGDA",
    "aggregators.last_updates": "FedVARP MIFA StaleFedVARP",
    "aggregators.robust": "CoordinateMedian NormBoundedMean TrimmedMean",
    "aggregators.linear": "CommunicationAware FedNova WeightedMean",
    "memory.update_memory": "UpdateMemory",
    "transforms.aware_projection": "AwareProjection",
    "transforms.base": "DirectionTransform",
    "transforms.clip": "Clip",
    "privacy.client_privacy": "ClientPrivacy",
    "clients.arrays": "NpzArrays",
    "clients.data": "ClientData",
    "clients.feature_skew": "FeatureSkew GaussianNoise Rotation",
    "clients.images": "CifarFolder Digits FashionMnistFolder MnistFolder",
    "clients.leaf": "LeafFolder",
    "clients.partitioners.base": "Partitioner",
    "clients.partitioners.labels": (
        "DirichletPartitioner InnerDirichletPartitioner LabelBlocksPartitioner PathologicalPartitioner ShardPartitioner"
    ),
    "clients.partitioners.sizes": (
        "DirichletSizePartitioner IidPartitioner LogNormalPartitioner NaturalIdPartitioner PowerLawPartitioner "
        "ReshuffledPartitioner SizePartitioner"
    ),
    "clients.pool": "Pool",
    "clients.pooled": "Excerpt PooledSource",
    "clients.quadratics": "Quadratics",
    "clients.source": "ClientSource FederatedData RealClients",
    "clients.synthetic": "SyntheticLogistic SyntheticRegression",
    "clients.tables": "CsvTable CsvText HuggingFaceData ParquetTable",
    "clients.tokenizers": "ByteTokens HashedWords Tokenizer",
    "conditions.devices": (
        "DeviceModel DeviceProfile FixedDevices LogNormalDevices TwoGroupDevices elapsed time_to"
    ),
    "conditions.links": (
        "BernoulliLink DriftingLink LinkModel MarkovLink PerfectLink ScriptedLink SinusoidalLink TraceLink "
        "TwoGroupLink UniformBernoulliLink"
    ),
    "conditions.timed": "CombinedLink DeadlineLink FirstArrivals FixedBatchSizes OutageLink TimeBudget",
    "conditions.traces": "TraceEntry read_trace trace_of write_trace",
    "conditions.work": (
        "EqualWork FixedEpochs FixedSteps LadderEpochs LadderSteps NormalSteps RandomEpochs "
        "RandomEpochsAndBatches RandomSteps ScriptedWork TraceWork TwoGroupEpochs TwoGroupSteps WorkModel "
        "Workload"
    ),
    "models.augmentation": "Augmentation HorizontalFlip Normalize RandomCrop",
    "models.base": "ExampleShape Model",
    "models.convolutional": (
        "DropoutCNN FedAvgCNN FiveLayerCNN ImageModel PooledCNN ResNet18 UnpooledCNN VGG11"
    ),
    "models.dense": "LogisticRegression MLP",
    "models.imported": "ImportedModel",
    "models.sequences": "CharLSTM TextTransformer TokenModel WindowCNN",
    "worlds.base": "World",
    "worlds.ray.cluster": "RayCluster",
    "worlds.ray.world": "RayWorld",
    "worlds.simulated": "SimulatedWorld",
    "theory.calibration": "calibrated_lr step_length",
    "experiments.diagnose": "diagnose",
    "experiments.experiment": "Experiment",
    "experiments.run_folder": "RunFolder RunSummary load_records",
    "experiments.runner": "Run run_experiment",
    "experiments.spec": "from_toml load_experiment to_toml",
    "experiments.study": "PlannedRun StudyFolder",
    "experiments.workers": "run_study",
    "results.compared_method": "ComparedMethod compare",
    "results.frames": "load_frame",
}
"""Public names by the module that defines them; parts are discovered from this table too."""

_MODULE_OF = {name: module for module, names in CONTENTS.items() for name in names.split()}

__all__ = [*MODULES, *_MODULE_OF]


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


def __getattr__(name: str) -> Any:
    if name in MODULES:
        return import_module(f"fairlead.{name}")
    if name in _MODULE_OF:
        return getattr(import_module(f"fairlead.{_MODULE_OF[name]}"), name)
    raise AttributeError(f"module 'fairlead' has no attribute {name!r}")
