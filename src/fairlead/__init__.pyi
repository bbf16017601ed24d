"""The public names of fairlead: `__init__.py` reads them here, and so do type checkers and editors."""

from fairlead import diagnostics as diagnostics
from fairlead import errors as errors
from fairlead import presets as presets
from fairlead import settings as settings
from fairlead import testing as testing
from fairlead.algorithm import Algorithm as Algorithm
from fairlead.federation import Federation as Federation
from fairlead.round import initial_state as initial_state, run_round as run_round
from fairlead.local_solver import LocalSolver as LocalSolver
from fairlead.stopping import StopRule as StopRule
from fairlead.task import Task as Task, accuracy as accuracy, cross_entropy as cross_entropy
from fairlead.task import mean_squared_error as mean_squared_error, squared_error as squared_error
from fairlead.records import Aggregate as Aggregate, ClientUpdates as ClientUpdates, ClientWeights as ClientWeights
from fairlead.records import Cohort as Cohort, Conditions as Conditions, Contributions as Contributions
from fairlead.records import Evaluation as Evaluation, ExpectedRound as ExpectedRound, Forecast as Forecast
from fairlead.records import GradientFigures as GradientFigures, Limit as Limit, MeanCoefficients as MeanCoefficients
from fairlead.records import NotKnown as NotKnown, Participation as Participation, Poll as Poll
from fairlead.records import Population as Population, RoundRecord as RoundRecord, ServerState as ServerState
from fairlead.records import Transformed as Transformed, WorkOrder as WorkOrder
from fairlead.client_table import ClientTable as ClientTable
from fairlead.randomness import Key as Key
from fairlead.samplers.base import MemorylessSampler as MemorylessSampler, Sampler as Sampler
from fairlead.samplers.adaptive import FedACS as FedACS, FedACSEstimated as FedACSEstimated
from fairlead.samplers.adaptive import OptimalSampling as OptimalSampling, PowerOfChoice as PowerOfChoice
from fairlead.samplers.adaptive import WeightFeedback as WeightFeedback
from fairlead.samplers.buffered import BufferedSampling as BufferedSampling
from fairlead.samplers.fixed import FullFirstRound as FullFirstRound, FullParticipation as FullParticipation
from fairlead.samplers.fixed import PoissonSampling as PoissonSampling, ScriptedSampler as ScriptedSampler
from fairlead.samplers.fixed import UniformWithoutReplacement as UniformWithoutReplacement
from fairlead.samplers.fixed import WeightedWithReplacement as WeightedWithReplacement
from fairlead.optimizers.descent import AMSGrad as AMSGrad, Adagrad as Adagrad, Adam as Adam, SGD as SGD, Yogi as Yogi
from fairlead.optimizers.base import Constant as Constant, Cosine as Cosine, Exponential as Exponential
from fairlead.optimizers.base import InverseSquareRoot as InverseSquareRoot, Milestones as Milestones
from fairlead.optimizers.base import Optimizer as Optimizer, Schedule as Schedule
from fairlead.corrections.base import Correction as Correction, LocalOutcome as LocalOutcome
from fairlead.corrections.base import LocalResult as LocalResult
from fairlead.corrections.past_rounds import ClientMomentum as ClientMomentum, StaleStart as StaleStart
from fairlead.corrections.drift import ControlVariates as ControlVariates, DynamicRegularizer as DynamicRegularizer
from fairlead.corrections.drift import Proximal as Proximal, VRLSGD as VRLSGD
from fairlead.corrections.compression import CompressedUpdate as CompressedUpdate
from fairlead.corrections.personal import OwnParameters as OwnParameters
from fairlead.optimizers.personal import MetaSGD as MetaSGD, MixedSGD as MixedSGD, MoreauSGD as MoreauSGD
from fairlead.aggregators.base import Aggregator as Aggregator, LinearAggregator as LinearAggregator
from fairlead.aggregators.weighted import CommunicationAware as CommunicationAware, FedAU as FedAU, FedDyn as FedDyn
from fairlead.aggregators.weighted import FedMGDA as FedMGDA, FedNova as FedNova
from fairlead.aggregators.weighted import StalenessWeighted as StalenessWeighted, WeightedMean as WeightedMean
from fairlead.aggregators.remembered import FedAWARE as FedAWARE, FedVARP as FedVARP, MIFA as MIFA
from fairlead.aggregators.remembered import RememberedMean as RememberedMean, StaleFedVARP as StaleFedVARP
from fairlead.aggregators.robust import CoordinateMedian as CoordinateMedian, GeometricMedian as GeometricMedian
from fairlead.aggregators.robust import Krum as Krum, NormBoundedMean as NormBoundedMean, TrimmedMean as TrimmedMean
from fairlead.memory.update_memory import UpdateMemory as UpdateMemory
from fairlead.transforms.projections import AwareProjection as AwareProjection, Clip as Clip
from fairlead.transforms.projections import Extrapolation as Extrapolation
from fairlead.transforms.base import DirectionTransform as DirectionTransform
from fairlead.privacy import ClientPrivacy as ClientPrivacy
from fairlead.clients.array_files import LeafFolder as LeafFolder, NpzArrays as NpzArrays
from fairlead.clients.data import ClientData as ClientData
from fairlead.clients.feature_skew import FeatureSkew as FeatureSkew, GaussianNoise as GaussianNoise
from fairlead.clients.feature_skew import Rotation as Rotation
from fairlead.clients.images import CifarFolder as CifarFolder, Digits as Digits
from fairlead.clients.images import FashionMnistFolder as FashionMnistFolder, MnistFolder as MnistFolder
from fairlead.clients.partitioners import DirichletSizePartitioner as DirichletSizePartitioner
from fairlead.clients.partitioners import IidPartitioner as IidPartitioner
from fairlead.clients.partitioners import LogNormalPartitioner as LogNormalPartitioner
from fairlead.clients.partitioners import NaturalIdPartitioner as NaturalIdPartitioner, Partitioner as Partitioner
from fairlead.clients.partitioners import PowerLawPartitioner as PowerLawPartitioner
from fairlead.clients.partitioners import ReshuffledPartitioner as ReshuffledPartitioner
from fairlead.clients.partitioners import SizePartitioner as SizePartitioner
from fairlead.clients.in_memory import InMemory as InMemory
from fairlead.clients.label_skew import DirichletPartitioner as DirichletPartitioner
from fairlead.clients.label_skew import InnerDirichletPartitioner as InnerDirichletPartitioner
from fairlead.clients.label_skew import LabelBlocksPartitioner as LabelBlocksPartitioner
from fairlead.clients.label_skew import PachinkoPartitioner as PachinkoPartitioner
from fairlead.clients.label_skew import PathologicalPartitioner as PathologicalPartitioner
from fairlead.clients.label_skew import ShardPartitioner as ShardPartitioner
from fairlead.clients.pool import Pool as Pool
from fairlead.clients.preprocessing import Agreement as Agreement, Preprocessing as Preprocessing
from fairlead.clients.source import ClientSource as ClientSource, Excerpt as Excerpt, FederatedData as FederatedData
from fairlead.clients.source import PooledSource as PooledSource, RealClients as RealClients
from fairlead.clients.quadratics import Quadratics as Quadratics
from fairlead.clients.synthetic import SyntheticLogistic as SyntheticLogistic
from fairlead.clients.synthetic import SyntheticRegression as SyntheticRegression
from fairlead.clients.tables import CsvTable as CsvTable, CsvText as CsvText, HuggingFaceData as HuggingFaceData
from fairlead.clients.tables import ParquetTable as ParquetTable
from fairlead.clients.tokenizers import ByteTokens as ByteTokens, HashedWords as HashedWords
from fairlead.clients.tokenizers import HuggingFaceTokenizer as HuggingFaceTokenizer, Tokenizer as Tokenizer
from fairlead.conditions.devices import DeviceModel as DeviceModel, DeviceProfile as DeviceProfile
from fairlead.conditions.devices import FixedDevices as FixedDevices, LogNormalDevices as LogNormalDevices
from fairlead.conditions.devices import TwoGroupDevices as TwoGroupDevices, elapsed as elapsed, time_to as time_to
from fairlead.conditions.links import BernoulliLink as BernoulliLink, DriftingLink as DriftingLink
from fairlead.conditions.links import LinkModel as LinkModel, MarkovLink as MarkovLink, PerfectLink as PerfectLink
from fairlead.conditions.links import ScriptedLink as ScriptedLink, SinusoidalLink as SinusoidalLink
from fairlead.conditions.links import TraceLink as TraceLink, TwoGroupLink as TwoGroupLink
from fairlead.conditions.links import UniformBernoulliLink as UniformBernoulliLink
from fairlead.conditions.timed_links import CombinedLink as CombinedLink, DeadlineLink as DeadlineLink
from fairlead.conditions.timed_links import FirstArrivals as FirstArrivals, OutageLink as OutageLink
from fairlead.conditions.work import EqualWork as EqualWork, FixedBatchSizes as FixedBatchSizes
from fairlead.conditions.work import FixedEpochs as FixedEpochs, FixedSteps as FixedSteps
from fairlead.conditions.work import LadderEpochs as LadderEpochs, LadderSteps as LadderSteps
from fairlead.conditions.work import NormalSteps as NormalSteps, RandomEpochs as RandomEpochs
from fairlead.conditions.work import RandomEpochsAndBatches as RandomEpochsAndBatches, RandomSteps as RandomSteps
from fairlead.conditions.work import ScriptedWork as ScriptedWork, TimeBudget as TimeBudget, TraceWork as TraceWork
from fairlead.conditions.work import TwoGroupEpochs as TwoGroupEpochs, TwoGroupSteps as TwoGroupSteps
from fairlead.conditions.work import WorkModel as WorkModel, Workload as Workload
from fairlead.conditions.traces import TraceEntry as TraceEntry, read_trace as read_trace, trace_of as trace_of
from fairlead.conditions.traces import write_trace as write_trace
from fairlead.metrics.base import MeanAbsoluteError as MeanAbsoluteError, Metric as Metric, R2 as R2
from fairlead.metrics.base import RootMeanSquaredError as RootMeanSquaredError
from fairlead.metrics.classification import AUC as AUC, AveragePrecision as AveragePrecision
from fairlead.metrics.classification import CalibrationError as CalibrationError, F1Score as F1Score
from fairlead.metrics.classification import Perplexity as Perplexity, PrecisionScore as PrecisionScore
from fairlead.metrics.classification import RecallScore as RecallScore, TopK as TopK
from fairlead.models.augmentation import Augmentation as Augmentation, HorizontalFlip as HorizontalFlip
from fairlead.models.augmentation import Normalize as Normalize, RandomCrop as RandomCrop
from fairlead.models.base import ExampleShape as ExampleShape, LogisticRegression as LogisticRegression, MLP as MLP
from fairlead.models.base import Model as Model
from fairlead.models.convolutional import DropoutCNN as DropoutCNN, FedAvgCNN as FedAvgCNN
from fairlead.models.convolutional import FiveLayerCNN as FiveLayerCNN, ImageModel as ImageModel
from fairlead.models.convolutional import PooledCNN as PooledCNN, ResNet18 as ResNet18, UnpooledCNN as UnpooledCNN
from fairlead.models.convolutional import VGG11 as VGG11
from fairlead.models.hugging_face import HuggingFaceModel as HuggingFaceModel, LoRA as LoRA
from fairlead.models.imported import ImportedModel as ImportedModel
from fairlead.models.sequences import CharLSTM as CharLSTM, TextTransformer as TextTransformer
from fairlead.models.sequences import TokenModel as TokenModel, WindowCNN as WindowCNN
from fairlead.worlds.base import World as World
from fairlead.worlds.ray.cluster import RayCluster as RayCluster
from fairlead.worlds.ray.world import RayWorld as RayWorld
from fairlead.worlds.simulated import SimulatedWorld as SimulatedWorld
from fairlead.theory.convergence import calibrated_lr as calibrated_lr, step_length as step_length
from fairlead.theory.prediction import calibration as calibration, mean_coefficients as mean_coefficients
from fairlead.theory.prediction import participation as participation
from fairlead.numerics.minimum_norm import shortest_in_hull as shortest_in_hull
from fairlead.diagnostics.consistency import chi_square as chi_square, zeng_chi as zeng_chi
from fairlead.diagnostics.diversity import client_updates as client_updates
from fairlead.experiments.diagnose import diagnose as diagnose
from fairlead.experiments.experiment import Experiment as Experiment
from fairlead.experiments.kept_models import load_model as load_model
from fairlead.experiments.run_folder import RunFolder as RunFolder, RunSummary as RunSummary
from fairlead.experiments.run_folder import load_agreement as load_agreement, load_records as load_records
from fairlead.experiments.runner import Run as Run, run_experiment as run_experiment
from fairlead.experiments.spec import from_toml as from_toml, load_experiment as load_experiment, to_toml as to_toml
from fairlead.experiments.study import PlannedRun as PlannedRun, StudyFolder as StudyFolder
from fairlead.experiments.workers import run_study as run_study
from fairlead.results.compared_method import ComparedMethod as ComparedMethod, ComparedMethods as ComparedMethods
from fairlead.results.compared_method import compare as compare
from fairlead.results.runs import load_frame as load_frame
from fairlead.reports.model_export import export_model as export_model

CONTENTS: dict[str, str]
MODULES: tuple[str, ...]
__version__: str
