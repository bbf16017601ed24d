"""Federated optimization when clients differ.

Names are imported when they are first used: `import fairlead` alone does not load torch. Type checkers read
`__init__.pyi`, which `python docs/front_door.py` generates from the table below.
"""

from importlib import import_module
from typing import Any

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
