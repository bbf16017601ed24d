"""Federated optimization when clients differ.

Names are imported when they are first used: `import fairlead` alone does not load torch. Type checkers read
`__init__.pyi`, which `python docs/front_door.py` generates from the table below.
"""

from collections.abc import Callable
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
    "stopping": "StopRule",
    "task": "Task accuracy cross_entropy mean_squared_error squared_error",
    "records": (
        "Aggregate ClientUpdates ClientWeights Cohort Conditions Contributions Evaluation ExpectedRound Forecast "
        "GradientFigures Limit MeanCoefficients NotKnown Participation Poll Population RoundRecord ServerState "
        "Transformed WorkOrder"
    ),
    "client_table": "ClientTable",
    "randomness": "Key",
    "samplers.base": "MemorylessSampler Sampler",
    "samplers.adaptive": "FedACS FedACSEstimated OptimalSampling PowerOfChoice WeightFeedback",
    "samplers.buffered": "BufferedSampling",
    "samplers.fixed": (
        "FullFirstRound FullParticipation PoissonSampling ScriptedSampler UniformWithoutReplacement "
        "WeightedWithReplacement"
    ),
    "optimizers.descent": "AMSGrad Adagrad Adam SGD Yogi",
    "optimizers.base": "Constant Cosine Exponential InverseSquareRoot Milestones Optimizer Schedule",
    "corrections.base": "Correction LocalOutcome LocalResult",
    "corrections.past_rounds": "ClientMomentum StaleStart",
    "corrections.drift": "ControlVariates DynamicRegularizer Proximal VRLSGD",
    "corrections.compression": "CompressedUpdate",
    "corrections.personal": "OwnParameters",
    "optimizers.personal": "MetaSGD MixedSGD MoreauSGD",
    "aggregators.base": "Aggregator LinearAggregator",
    "aggregators.weighted": "CommunicationAware FedAU FedDyn FedMGDA FedNova StalenessWeighted WeightedMean",
    "aggregators.remembered": "FedAWARE FedVARP MIFA RememberedMean StaleFedVARP",
    "aggregators.robust": "CoordinateMedian GeometricMedian Krum NormBoundedMean TrimmedMean",
    "memory.update_memory": "UpdateMemory",
    "transforms.projections": "AwareProjection Clip Extrapolation",
    "transforms.base": "DirectionTransform",
    "privacy": "ClientPrivacy",
    "clients.array_files": "LeafFolder NpzArrays",
    "clients.data": "ClientData",
    "clients.feature_skew": "FeatureSkew GaussianNoise Rotation",
    "clients.images": "CifarFolder Digits FashionMnistFolder MnistFolder",
    "clients.partitioners": (
        "DirichletSizePartitioner IidPartitioner LogNormalPartitioner NaturalIdPartitioner Partitioner "
        "PowerLawPartitioner ReshuffledPartitioner SizePartitioner"
    ),
    "clients.in_memory": "InMemory",
    "clients.label_skew": (
        "DirichletPartitioner InnerDirichletPartitioner LabelBlocksPartitioner PachinkoPartitioner "
        "PathologicalPartitioner ShardPartitioner"
    ),
    "clients.pool": "Pool",
    "clients.preprocessing": "Agreement Preprocessing",
    "clients.source": "ClientSource Excerpt FederatedData PooledSource RealClients",
    "clients.quadratics": "Quadratics",
    "clients.synthetic": "SyntheticLogistic SyntheticRegression",
    "clients.tables": "CsvTable CsvText HuggingFaceData ParquetTable",
    "clients.tokenizers": "ByteTokens HashedWords HuggingFaceTokenizer Tokenizer",
    "conditions.devices": (
        "DeviceModel DeviceProfile FixedDevices LogNormalDevices TwoGroupDevices elapsed time_to"
    ),
    "conditions.links": (
        "BernoulliLink DriftingLink LinkModel MarkovLink PerfectLink ScriptedLink SinusoidalLink TraceLink "
        "TwoGroupLink UniformBernoulliLink"
    ),
    "conditions.timed_links": "CombinedLink DeadlineLink FirstArrivals OutageLink",
    "conditions.work": (
        "EqualWork FixedBatchSizes FixedEpochs FixedSteps LadderEpochs LadderSteps NormalSteps RandomEpochs "
        "RandomEpochsAndBatches RandomSteps ScriptedWork TimeBudget TraceWork TwoGroupEpochs TwoGroupSteps "
        "WorkModel Workload"
    ),
    "conditions.traces": "TraceEntry read_trace trace_of write_trace",
    "metrics.base": "MeanAbsoluteError Metric R2 RootMeanSquaredError",
    "metrics.classification": (
        "AUC AveragePrecision CalibrationError F1Score Perplexity PrecisionScore RecallScore TopK"
    ),
    "models.augmentation": "Augmentation HorizontalFlip Normalize RandomCrop",
    "models.base": "ExampleShape LogisticRegression MLP Model",
    "models.convolutional": (
        "DropoutCNN FedAvgCNN FiveLayerCNN ImageModel PooledCNN ResNet18 UnpooledCNN VGG11"
    ),
    "models.hugging_face": "HuggingFaceModel LoRA",
    "models.imported": "ImportedModel",
    "models.sequences": "CharLSTM TextTransformer TokenModel WindowCNN",
    "worlds.base": "World",
    "worlds.ray.cluster": "RayCluster",
    "worlds.ray.world": "RayWorld",
    "worlds.simulated": "SimulatedWorld",
    "theory.convergence": "calibrated_lr step_length",
    "theory.prediction": "calibration mean_coefficients participation",
    "numerics.minimum_norm": "shortest_in_hull",
    "diagnostics.consistency": "chi_square zeng_chi",
    "diagnostics.diversity": "client_updates",
    "experiments.diagnose": "diagnose",
    "experiments.experiment": "Experiment",
    "experiments.kept_models": "load_model",
    "experiments.run_folder": "RunFolder RunSummary load_agreement load_records",
    "experiments.runner": "Run run_experiment",
    "experiments.spec": "from_toml load_experiment to_toml",
    "experiments.study": "PlannedRun StudyFolder",
    "experiments.workers": "run_study",
    "results.compared_method": "ComparedMethod ComparedMethods compare",
    "results.runs": "load_frame",
    "reports.model_export": "export_model",
}
"""Public names by the module that defines them; parts are discovered from this table too."""


def front_door(
    package: str, contents: dict[str, str], modules: tuple[str, ...] = (), own: tuple[str, ...] = ()
) -> tuple[list[str], Callable[[], list[str]], Callable[[str], Any]]:
    """`__all__`, `__dir__` and `__getattr__` of a package with such a table, public `modules` and names of its own."""
    module_of = {name: f"fairlead.{module}" for module, names in contents.items() for name in names.split()}
    public = [*modules, *module_of]

    def load(name: str) -> Any:
        if name in modules:
            return import_module(f"{package}.{name}")
        if name in module_of:
            return getattr(import_module(module_of[name]), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return public, lambda: sorted([*public, *own]), load


__all__, __dir__, __getattr__ = front_door("fairlead", CONTENTS, MODULES, own=("__version__",))
