"""Every published setting by name: number of clients, data split, local work and links.

A `Setting` completes an experiment that has data, model and method.

>>> setting = hybrid_plus()
>>> setting.work
RandomEpochsAndBatches(low=2, high=5, min_batch_size=10)
>>> setting.client_side()
{'lr': 0.01, 'batch_size': 64, 'cohort_size': 10, 'epochs': 3}

In a spec, `setting = "hybrid_plus"` fills in the fields that the spec does not set; a table `[setting]` with `name`
also takes arguments.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import ParamSpec

from fairlead.clients import label_skew
from fairlead.clients.partitioners import NaturalIdPartitioner, Partitioner
from fairlead.clients.quadratics import Quadratics
from fairlead.clients.source import ClientSource, PooledSource
from fairlead.clients.synthetic import SyntheticLogistic
from fairlead.conditions import work as local_work
from fairlead.conditions.links import BernoulliLink, LinkModel, PerfectLink, TwoGroupLink
from fairlead.conditions.work import EqualWork, WorkModel
from fairlead.errors import ClashError
from fairlead.local_solver import LocalSolver
from fairlead.optimizers.base import Milestones
from fairlead.optimizers.descent import SGD
from fairlead.presets import ClientSide

_Arguments = ParamSpec("_Arguments")


@dataclass(frozen=True)
class Setting:
    """Clients, local work and links of a published experiment."""

    num_clients: int | None
    """None: the clients of the data."""
    solver: LocalSolver
    """Local work with plain SGD."""
    cohort_size: int | None = None
    """Clients sampled in a round; None: all."""
    rounds: int | None = None
    """None where the paper does not say."""
    partition: Partitioner | None = None
    """Partitioner of a pooled data set; None where the paper uses synthetic clients."""
    clients: ClientSource | None = None
    """Synthetic clients of the paper; None where it splits a pooled data set."""
    work: WorkModel = EqualWork()
    link: LinkModel = PerfectLink()

    def deal(self, source: PooledSource) -> PooledSource:
        """A pooled data set, split among the clients of this setting."""
        if self.partition is None:
            raise ClashError(
                f"This setting has its own synthetic clients and cannot split {type(source).__name__}: use its "
                "clients."
            )
        return replace(source, num_clients=self.num_clients, partition=self.partition)

    def client_side(self) -> ClientSide:
        """Arguments of every preset: learning rate, local work and cohort size."""
        solver = self.solver
        side = ClientSide(lr=solver.optimizer.lr, batch_size=solver.batch_size, cohort_size=self.cohort_size)
        if solver.steps is None:
            side["epochs"] = solver.epochs
        else:
            side["steps"] = solver.steps
        return side


@dataclass(frozen=True)
class PublishedSetting:
    """A setting with its name and papers."""

    name: str
    build: Callable[..., Setting]
    references: tuple[str, ...]


SETTINGS: dict[str, PublishedSetting] = {}


def published(*references: str) -> Callable[[Callable[_Arguments, Setting]], Callable[_Arguments, Setting]]:
    """Enter a setting into the table."""

    def enter(build: Callable[_Arguments, Setting]) -> Callable[_Arguments, Setting]:
        SETTINGS[build.__name__] = PublishedSetting(build.__name__, build, references)
        return build

    return enter


@published("wang2024unreasonable")
def consensus_femnist(steps: int = 10) -> Setting:
    """500 writers of FEMNIST a round take full-batch steps of 0.1 (Wang 2024 Table 3)."""
    return _natural(asked=500, lr=0.1, steps=steps)


@published("wang2024unreasonable")
def consensus_stackoverflow(steps: int = 10) -> Setting:
    """1,000 users of Stack Overflow a round take full-batch steps of 0.5 (Wang 2024 Table 3)."""
    return _natural(asked=1000, lr=0.5, steps=steps)


@published("wang2024unreasonable")
def consensus_cifar100(steps: int = 10) -> Setting:
    """200 of 500 clients of CIFAR-100 by Pachinko allocation take full-batch steps of 0.5 (Wang 2024 Table 3)."""
    natural = _natural(asked=200, lr=0.5, steps=steps)
    return replace(natural, num_clients=500, partition=label_skew.PachinkoPartitioner())


def _natural(asked: int, lr: float, steps: int) -> Setting:
    solver = LocalSolver(SGD(lr), steps=steps, batch_size=None)
    return Setting(None, solver, cohort_size=asked, partition=NaturalIdPartitioner())


_DROPS = tuple((40 - 2 * client) / 100 for client in range(20))


@published("weng2025fedacs")
def fedacs_static(alpha: float = 0.1) -> Setting:
    """20 clients by Dirichlet(α) with 1, 3, ..., 39 epochs and arrival rates 0.60, 0.62, ..., 0.98 (Weng 2025).

    Those who work little also arrive rarely. The table of learning rates and batch sizes leaves open which
    ones go with CIFAR-10; these are those of CINIC-10.
    """
    return Setting(
        20,
        LocalSolver(SGD(0.03), epochs=1, batch_size=1024),
        cohort_size=6,
        rounds=200,
        partition=label_skew.DirichletPartitioner(alpha),
        work=local_work.LadderEpochs(1, 2),
        link=BernoulliLink(_DROPS),
    )


@published("weng2025fedacs")
def fedacs_dynamic(alpha: float = 0.1) -> Setting:
    """20 clients by Dirichlet(α) in two groups whose work and links vary by round (Weng 2025 §I.3.1).

    First half: epochs from U(1, 10) and q from U(0.4, 0.5); second half: U(20, 30) and U(0, 0.1).
    """
    return replace(fedacs_static(alpha), work=local_work.TwoGroupEpochs(10), link=TwoGroupLink(10))


@published("weng2025fedacs")
def fedacs_static_one_class(*, in_order: bool = False) -> Setting:
    """As `fedacs_static`, with one class per client: MNIST in Weng 2025.

    Client i has class i mod 10, or ⌊i/2⌋ with `in_order`, so that half of the classes are with slow clients alone.
    The paper does not say which.
    """
    return _one_class(fedacs_static(), in_order=in_order)


@published("weng2025fedacs")
def fedacs_dynamic_one_class(*, in_order: bool = False) -> Setting:
    """As `fedacs_dynamic`, with one class per client as in `fedacs_static_one_class`: MNIST in Weng 2025."""
    return _one_class(fedacs_dynamic(), in_order=in_order)


@published("weng2025fedacs")
def fedacs_quadratics_equal() -> Setting:
    """30 quadratic clients with e_i ~ N(0, I) in 10 dimensions, T = 15 and q = 0.2 (Weng 2025 Fig. 4 left)."""
    solver = LocalSolver(SGD(0.001), steps=15, batch_size=None)
    clients = Quadratics(num_clients=30, dim=10, spread=1.0)
    return Setting(30, solver, cohort_size=15, clients=clients, link=BernoulliLink(0.2))


@published("weng2025fedacs")
def fedacs_quadratics_unequal() -> Setting:
    """As `fedacs_quadratics_equal`, with T from 1 to 30 and q from 0.01 to 0.3 (Weng 2025 Fig. 4 middle).

    The paper does not say how they are paired: T_m = m and q_m = 0.01 m here.
    """
    drops = tuple(client / 100 for client in range(1, 31))
    return replace(fedacs_quadratics_equal(), work=local_work.LadderSteps(1, 1), link=BernoulliLink(drops))


@published("weng2025fedacs")
def fedacs_quadratics_varying() -> Setting:
    """As `fedacs_quadratics_equal`, with two groups that vary by round (Weng 2025 Fig. 4 right).

    First half: T from U(1, 10) and q from U(0.2, 0.4); second half: U(20, 30) and U(0, 0.2).
    """
    link = TwoGroupLink(15, first=(0.2, 0.4), second=(0.0, 0.2))
    return replace(fedacs_quadratics_equal(), work=local_work.TwoGroupSteps(15), link=link)


@published("weng2025fedacs")
def fedacs_quadratics_static() -> Setting:
    """20 quadratic clients with T = 1, 3, ..., 39 and arrival rates 0.60, ..., 0.98 (Weng 2025 Fig. 7 left)."""
    solver = LocalSolver(SGD(0.002), steps=1, batch_size=None)
    return Setting(
        20,
        solver,
        cohort_size=6,
        clients=Quadratics(num_clients=20, dim=10, spread=1.0),
        work=local_work.LadderSteps(1, 2),
        link=BernoulliLink(_DROPS),
    )


@published("weng2025fedacs")
def fedacs_quadratics_dynamic() -> Setting:
    """20 quadratic clients in the two groups of `fedacs_dynamic` (Weng 2025 Fig. 7 right)."""
    return replace(fedacs_quadratics_static(), work=local_work.TwoGroupSteps(10), link=TwoGroupLink(10))


def _one_class(setting: Setting, *, in_order: bool) -> Setting:
    return replace(
        setting,
        solver=LocalSolver(SGD(0.02), epochs=1, batch_size=512),
        partition=label_skew.PathologicalPartitioner(1, "in-order" if in_order else "deterministic"),
    )


@published("zeng2023gradient", "mcmahan2017fedavg")
def statistical_only() -> Setting:
    """Labels differ, work does not: 200 label-sorted shards, two for each of 100 clients (Zeng 2023)."""
    return Setting(100, _solver(), cohort_size=10, partition=label_skew.ShardPartitioner(2))


@published("zeng2023gradient")
def hybrid(alpha: float = 0.1) -> Setting:
    """Labels and sizes differ, and with them the local steps: Dirichlet(α) over 100 clients (Zeng 2023).

    As in FedLab: a client that has its equal share gets no further labels, and every client has ten examples or more.
    """
    partition = label_skew.DirichletPartitioner(alpha, min_partition_size=10, self_balancing=True)
    return Setting(100, _solver(), cohort_size=10, partition=partition)


@published("zeng2023gradient")
def hybrid_plus(alpha: float = 0.1) -> Setting:
    """As `hybrid`, with epochs from U(2, 5) and batch sizes from U(10, n_i) in every round (Zeng 2023)."""
    return replace(hybrid(alpha), work=local_work.RandomEpochsAndBatches(2, 5, min_batch_size=10))


@published("zeng2025fedaware")
def fedaware_cifar10(alpha: float = 0.1) -> Setting:
    """100 clients by Dirichlet(α), three epochs each, for 500 rounds: CIFAR-10 in Zeng 2025 Table 2.

    Figure 7 has α = 0.1, 0.5, 1 and 10.
    """
    return replace(hybrid(alpha), rounds=500)


@published("zeng2025fedaware")
def fedaware_cifar100() -> Setting:
    """As `fedaware_cifar10`, for 600 rounds: CIFAR-100 in Zeng 2025 Table 2."""
    return replace(hybrid(), rounds=600)


@published("zeng2025fedaware")
def fedaware_agnews() -> Setting:
    """As `fedaware_cifar10`, for 300 rounds with a learning rate of 0.0001: AG News in Zeng 2025 Table 2."""
    return replace(hybrid(), solver=_solver(lr=1e-4), rounds=300)


@published("zeng2025fedaware")
def label_blocks() -> Setting:
    """20 clients, of which ten have balanced labels and ten do not; all take part (Zeng 2025 Fig. 6)."""
    return Setting(20, _solver(), rounds=150, partition=label_skew.LabelBlocksPartitioner(10))


def _solver(lr: float = 0.01) -> LocalSolver:
    return LocalSolver(SGD(lr), epochs=3, batch_size=64)


@published("wang2021fednova")
def fednova_equal_epochs() -> Setting:
    """16 clients by Dirichlet(0.1), two epochs each, all in every round, 100 rounds (Wang 2021 Table I).

    The split is that of the released code, the same for every seed. The learning rate is 0.05 and a tenth of it
    after 50 and 75 rounds, the factor being the released code's; the paper starts from 0.02 where clients have
    momentum, and the released code has a weight decay of 0.0001.
    """
    optimizer = SGD(0.05, schedule=Milestones((50, 75), gamma=0.1))
    solver = LocalSolver(optimizer, epochs=2, batch_size=32)
    partition = label_skew.DirichletPartitioner(0.1, 10, self_balancing=True, released_seed=2020)
    return Setting(16, solver, rounds=100, partition=partition)


@published("wang2021fednova")
def fednova_random_epochs() -> Setting:
    """As `fednova_equal_epochs`, with epochs from U(2, 5) for every client and round (Wang 2021 Table I)."""
    return replace(fednova_equal_epochs(), work=local_work.RandomEpochs(2, 5))


@published("wang2021fednova", "li2020fedprox")
def fednova_synthetic() -> Setting:
    """Synthetic(1, 1) over 30 clients, five epochs each, all in every round (Wang 2021 Fig. 5 left)."""
    solver = LocalSolver(SGD(0.02), epochs=5, batch_size=20)
    return Setting(30, solver, rounds=200, clients=SyntheticLogistic(1.0, 1.0, num_clients=30))


@published("wang2021fednova", "li2020fedprox")
def fednova_synthetic_partial() -> Setting:
    """As `fednova_synthetic`, with 30 % of the clients sampled (Wang 2021 Fig. 5 middle)."""
    return replace(fednova_synthetic(), cohort_size=9)


@published("wang2021fednova", "li2020fedprox")
def fednova_synthetic_random() -> Setting:
    """As `fednova_synthetic_partial`, with epochs from U(1, 5) (Wang 2021 Fig. 5 right)."""
    return replace(fednova_synthetic_partial(), work=local_work.RandomEpochs(1, 5))


@published("wang2021fednova")
def fednova_quadratics_equal() -> Setting:
    """30 quadratic clients with e_i ~ N(0, 0.01 I), 30 steps each (Wang 2021 Fig. 2a).

    The paper does not say dimension, start and number of rounds: 10, 1 and 1,200 here.
    """
    optimizer = SGD(0.05, schedule=Milestones((600, 900), gamma=0.2))
    solver = LocalSolver(optimizer, steps=30, batch_size=None)
    clients = Quadratics(num_clients=30, dim=10, spread=0.1, start=1.0)
    return Setting(30, solver, rounds=1200, clients=clients)


@published("wang2021fednova")
def fednova_quadratics_random() -> Setting:
    """As `fednova_quadratics_equal`, with normal steps of mean 30 in [1, 96] (Wang 2021 Fig. 2b)."""
    return replace(fednova_quadratics_equal(), work=local_work.NormalSteps(30.0, 16.0, low=1, high=96))


@published("wang2021fednova")
def fednova_quadratics_fixed() -> Setting:
    """As `fednova_quadratics_equal`, with steps spread as N(20, 20) and then fixed (Wang 2021 Fig. 4).

        τ_i = max(1, round(20 + 20 Φ⁻¹((i + ½)/30))),   i = 0, ..., 29

    The figure needs no data, so those of Fig. 2 stand in. The paper does not say which steps were drawn, here
    quantiles, nor whether the second 20 is the variance: only as a standard deviation does it give a bias
    worth a figure (χ² = 4.0 for FedAvg).
    """
    normal = NormalDist(20, 20)
    steps = tuple(max(1, round(normal.inv_cdf((client + 0.5) / 30))) for client in range(30))
    return replace(fednova_quadratics_equal(), work=local_work.FixedSteps(steps))
