"""Models that an engine cannot run get an error that names the module and the cure."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import fairlead as fl
from fairlead.errors import ClashError, EngineError, FieldError
from fairlead.worlds.engines.loop import LoopEngine
from fairlead.worlds.engines.paths import BatchedEngine


def data(sizes: tuple[int, ...] = (8, 4, 6), features: int = 4) -> fl.ClientData:
    draw = torch.Generator().manual_seed(0)
    return fl.ClientData.from_lists(
        [torch.randn((n, features), generator=draw, dtype=torch.float64) for n in sizes],
        [torch.randint(0, 3, (n,), generator=draw) for n in sizes],
    )


def world(model: nn.Module, engine: Any = "batched", sizes: tuple[int, ...] = (8, 4, 6), **more: Any) -> Any:
    return fl.SimulatedWorld(fl.Task(model.double(), **more), data(sizes), engine=engine, dtype=torch.float64)


class Wrapper(nn.Module):
    """A named inner module between two layers."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.first, self.inner, self.last = nn.Linear(4, 4), inner, nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = self.last(self.inner(self.first(inputs)))
        return scores


class Branching(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        return inputs * 2 if inputs.sum() > 0 else inputs


class Item(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        return inputs * inputs.abs().max().item()


class Functional(nn.Module):
    """Calls any function on its input."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, inputs: Tensor) -> Tensor:
        result: Tensor = self.function(inputs)
        return result


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTM(1, 4, num_layers=2, dropout=0.5, batch_first=True)

    def forward(self, inputs: Tensor) -> Tensor:
        states: Tensor = self.cell(inputs[..., None])[0]
        return states[:, -1]


class SelfAttention(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, dropout=dropout, batch_first=True)

    def forward(self, inputs: Tensor) -> Tensor:
        tokens = inputs[:, None, :] * torch.ones(3, 1, dtype=inputs.dtype)
        mixed: Tensor = self.attention(tokens, tokens, tokens, need_weights=False)[0]
        return mixed.mean(1)


@pytest.mark.parametrize("norm", [nn.BatchNorm1d(4), nn.BatchNorm1d(4, track_running_stats=False)], ids=repr)
def test_batch_norm_is_refused_by_name(norm: nn.Module) -> None:
    with pytest.raises(EngineError, match=r"cannot run BatchNorm1d 'inner'.*GroupNorm.*engine=\"loop\""):
        world(Wrapper(norm))


def test_batch_statistics_by_function_are_refused_too() -> None:
    def standardize(inputs: Tensor) -> Tensor:
        return F.batch_norm(inputs, None, None, training=True)

    with pytest.raises(EngineError, match="depends on the other examples of its batch"):
        world(Wrapper(Functional(standardize)))


def test_batch_norm_runs_in_the_loop_and_its_statistics_are_averaged() -> None:
    """One step of one full batch: running_mean ← 0.9·0 + 0.1·batch mean, then Σ p̂ over the clients."""
    model = nn.Sequential(nn.BatchNorm1d(4, affine=False), nn.Linear(4, 3)).double()
    federation = fl.Federation(fl.presets.fedavg(lr=0.1, batch_size=None), world(model, "loop"))
    list(federation.train(1))
    clients = data()
    rows = [clients.inputs[clients.rows_of(client)] for client in range(3)]
    share = clients.sizes / clients.sizes.sum()
    means = torch.stack([own.mean(0) for own in rows])
    variances = torch.stack([own.var(0) for own in rows])
    expected = torch.cat([0.1 * (share.double() @ means), 0.9 + 0.1 * (share.double() @ variances)])
    assert torch.allclose(federation.state.buffers, expected, atol=1e-12)


def test_evaluation_uses_the_averaged_statistics() -> None:
    model = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3))
    federation = fl.Federation(fl.presets.fedavg(lr=0.1), world(model, "loop"))
    list(federation.train(3))
    state = federation.state
    reset = torch.cat([torch.zeros(4), torch.ones(4)]).double()
    assert federation.evaluate().loss != federation.world.evaluate(state.params, reset).loss


def test_running_statistics_by_assignment_are_kept() -> None:
    """Some modules replace a buffer instead of changing it in place."""

    class Ema(nn.Module):
        level: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("level", torch.zeros(4))

        def forward(self, inputs: Tensor) -> Tensor:
            if self.training:
                self.level = 0.5 * self.level + 0.5 * inputs.detach().mean(0)
            return inputs - self.level

    federation = fl.Federation(
        fl.presets.fedavg(lr=0.0, batch_size=None), world(nn.Sequential(Ema(), nn.Linear(4, 3)), "loop")
    )
    list(federation.train(1))
    clients = data()
    expected = 0.5 * clients.inputs.mean(0)
    assert torch.allclose(federation.state.buffers, expected, atol=1e-12)
    with pytest.raises(EngineError, match=r"assigns its buffer '0\.level' in training"):
        world(nn.Sequential(Ema(), nn.Linear(4, 3)))


NORMED = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3))


@pytest.mark.parametrize(
    ("sizes", "solver"),
    [
        ((6, 7), {"batch_size": 3}),
        ((6, 7), {"batch_size": 3, "steps": 3}),
        ((6, 8), {"batch_size": 1, "steps": 1}),
        ((8, 1), {"batch_size": None}),
    ],
)
def test_a_batch_of_one_under_batch_norm_is_refused_before_training(
    sizes: tuple[int, ...], solver: dict[str, Any]
) -> None:
    """For every method, since every method makes the same batches."""
    client = 0 if solver["batch_size"] == 1 else 1
    for preset in (fl.presets.fedavg, fl.presets.scaffold, fl.presets.fedaware):
        run = fl.Federation(preset(lr=0.1, **solver), world(NORMED, "loop", sizes=sizes))
        with pytest.raises(
            FieldError, match=rf"LocalSolver\.batch_size must leave .* in round 1 from client {client}"
        ):
            run.train(3)


@pytest.mark.parametrize(
    ("sizes", "solver"),
    [((6, 8), {"batch_size": 3}), ((6, 7), {"batch_size": 3, "steps": 2}), ((6, 7), {"batch_size": None})],
)
def test_batches_of_two_or_more_are_accepted(sizes: tuple[int, ...], solver: dict[str, Any]) -> None:
    """A last batch of one that local work does not reach is none."""
    run = fl.Federation(fl.presets.fedavg(lr=0.1, **solver), world(NORMED, "loop", sizes=sizes))
    assert len(list(run.train(2))) == 2


def test_images_have_enough_values_in_one_example() -> None:
    """BatchNorm2d normalizes over pixels: one example of four of them is enough."""
    model = nn.Sequential(nn.Unflatten(1, (1, 2, 2)), nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(4, 3))
    run = fl.Federation(fl.presets.fedavg(lr=0.1, batch_size=3), world(model, "loop", sizes=(6, 7)))
    assert len(list(run.train(2))) == 2


def test_clients_without_weight_meet_no_batch() -> None:
    place = fl.SimulatedWorld(fl.Task(NORMED.double()), data((8, 1)), weights=(1.0, 0.0), dtype=torch.float64)
    assert len(list(fl.Federation(fl.presets.fedavg(lr=0.1), place).train(2))) == 2


def test_a_batch_of_one_in_a_later_round_is_refused_before_the_first() -> None:
    """Of 8 examples a batch of 7 leaves one; the draws of the seed meet it in round 4."""
    work = fl.RandomEpochsAndBatches(1, 1, min_batch_size=3)
    place = fl.SimulatedWorld(fl.Task(NORMED.double()), data((8, 3)), work=work, dtype=torch.float64)
    run = fl.Federation(fl.presets.fedavg(lr=0.1), place, seed=2)
    with pytest.raises(FieldError, match="got one in round 5 from client 0 with 8"):
        run.train(5)
    assert len(list(run.train(4))) == 4


def test_a_cumulative_average_is_refused() -> None:
    with pytest.raises(EngineError, match=r"BatchNorm1d '0' has momentum=None"):
        world(nn.Sequential(nn.BatchNorm1d(4, momentum=None), nn.Linear(4, 3)), "loop")


@pytest.mark.parametrize("inner", [Branching(), Item()], ids=lambda m: type(m).__name__)
def test_control_flow_on_values_is_refused_by_name(inner: nn.Module) -> None:
    with pytest.raises(EngineError, match=rf"cannot run {type(inner).__name__} 'inner'.*engine=\"loop\""):
        world(Wrapper(inner))
    assert isinstance(world(Wrapper(inner), "loop").engine, LoopEngine)


def test_a_model_that_mixes_examples_is_refused() -> None:
    """x − mean over the batch would see padding; in the loop there is none."""
    centered = Wrapper(Functional(lambda x: x - x.mean(0)))
    with pytest.raises(EngineError, match="depends on the other examples of its batch"):
        world(centered)
    assert isinstance(world(centered, "loop").engine, LoopEngine)


def test_a_loss_that_mixes_examples_is_refused() -> None:
    """The stacked path hands the loss all clients at once: a contrast between examples would mix them."""

    def contrast(outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets, reduction="none") - outputs.mean()

    with pytest.raises(EngineError, match="depends on the other examples of its batch"):
        world(nn.Linear(4, 3), loss=contrast)


def test_a_loss_that_decides_by_values_is_refused() -> None:
    """The values may be another client's, and no trial on a few examples need ever meet the other branch."""

    def scaled(outputs: Tensor, targets: Tensor) -> Tensor:
        losses = F.cross_entropy(outputs, targets, reduction="none")
        return 0.5 * losses if outputs.max() > 1e3 else losses

    with pytest.raises(EngineError, match=r"cannot run the loss: .*engine=\"loop\""):
        world(nn.Linear(4, 3), loss=scaled)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda x: x + torch.randn_like(x), "randn_like"),
        (lambda x: x + torch.rand(4, dtype=x.dtype), "rand"),
        (lambda x: x * torch.bernoulli(torch.full_like(x, 0.5)), "bernoulli"),
        (lambda x: F.alpha_dropout(x, 0.5, True), "alpha_dropout"),
        (lambda x: F.rrelu(x, training=True), "rrelu"),
        (lambda x: torch.empty_like(x).normal_() + x, "normal_"),
        (lambda x: torch.dropout(x, 0.5, True), "Functional 'inner'"),
        (lambda x: x + torch.empty_like(x).random_(0, 2), "Functional 'inner'"),
    ],
    ids=lambda case: case if isinstance(case, str) else "",
)
@pytest.mark.parametrize("engine", ["loop", "batched", "auto"])
def test_randomness_other_than_dropout_is_refused(function: Any, name: str, engine: Any) -> None:
    with pytest.raises(EngineError, match=f"draws random numbers by {name}"):
        world(Wrapper(Functional(function)), engine)


@pytest.mark.parametrize(
    ("inner", "name"),
    [(SelfAttention(0.5), "MultiheadAttention 'inner.attention'"), (Recurrent(), "LSTM 'inner.cell'")],
    ids=["attention", "lstm"],
)
def test_dropout_inside_fused_modules_is_refused_by_name(inner: nn.Module, name: str) -> None:
    """No override reaches the dropout inside these: left alone it would not be replayed."""
    with pytest.raises(EngineError, match=f"draws random numbers by {name}"):
        world(Wrapper(inner), "loop")


@pytest.mark.parametrize("idle", [nn.AlphaDropout(0.0), nn.FeatureAlphaDropout(0.0)])
def test_randomness_at_a_rate_of_zero_is_none(idle: nn.Module) -> None:
    assert not world(Wrapper(idle), "loop").objective.draws_noise


def test_a_model_that_does_not_fit_the_data_is_refused_in_one_sentence() -> None:
    data = fl.ClientData.from_lists([torch.zeros(4, 5)], [torch.zeros(4, dtype=torch.int64)])
    sentence = (
        r"Linear or its loss fails on a batch with inputs of shape \(3, 5\) and targets of shape \(3,\): "
    )
    with pytest.raises(EngineError, match=sentence):
        fl.SimulatedWorld(fl.Task(nn.Linear(7, 2)), data)


def test_operations_without_a_batching_rule_are_refused_by_name() -> None:
    """vmap would run them one client after another, slower than the loop, and warn at every step."""
    with pytest.raises(EngineError, match=r"cannot run MultiheadAttention 'inner.attention'.*batching rule"):
        world(Wrapper(SelfAttention(0.0)))
    chosen = world(Wrapper(SelfAttention(0.0)), "auto")
    assert isinstance(chosen.engine, LoopEngine)
    federation = fl.Federation(fl.presets.fedavg(lr=0.1, batch_size=3), chosen)
    assert [record.arrived for record in federation.train(1)] == [(0, 1, 2)]


def test_dropout_over_another_axis_than_the_first_is_refused() -> None:
    """Masks are drawn in memory order: with time first, padding would shift them."""

    def time_first(inputs: Tensor) -> Tensor:
        return F.dropout(inputs.t(), 0.5).t()

    with pytest.raises(EngineError, match="with the batch as first axis wherever dropout is drawn"):
        world(Wrapper(Functional(time_first)))


def test_asking_for_randomness_leaves_torch_generator_alone() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    before = torch.get_rng_state()
    world(model)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("engine", ["loop", "batched"])
def test_a_loss_that_is_not_per_example_is_refused(engine: Any) -> None:
    def mean_loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets)

    with pytest.raises(EngineError, match=r"Task.loss must give one number per example, .*got shape \(\)"):
        world(nn.Linear(4, 3), engine, loss=mean_loss)


def test_a_model_without_parameters_is_refused() -> None:
    with pytest.raises(EngineError, match="Identity has no trainable parameter"):
        world(nn.Identity(), "loop")


def test_auto_records_its_reason() -> None:
    small = world(nn.Linear(4, 3), "auto")
    assert isinstance(small.engine, BatchedEngine)
    assert small.engine_reason == "a small model: clients side by side share the overhead"
    normed = world(Wrapper(nn.BatchNorm1d(4)), "auto")
    assert isinstance(normed.engine, LoopEngine)
    assert normed.engine_reason.startswith("The batched engine cannot run BatchNorm1d 'inner'")
    convolved = world(nn.Sequential(nn.Unflatten(1, (1, 4)), nn.Conv1d(1, 3, 4), nn.Flatten()), "auto")
    assert isinstance(convolved.engine, LoopEngine)
    assert "convolutions" in convolved.engine_reason
    wide = world(
        nn.Sequential(nn.Linear(4, 1000), nn.ReLU(), nn.Linear(1000, 1000), nn.Linear(1000, 3)), "auto"
    )
    assert isinstance(wide.engine, BatchedEngine)
    assert "closed form" in wide.engine_reason
    curved = world(
        nn.Sequential(nn.Linear(4, 1000), nn.GELU(), nn.Linear(1000, 1000), nn.Linear(1000, 3)), "auto"
    )
    assert curved.engine == LoopEngine(per_core=True)
    assert "large model" in curved.engine_reason


def test_asked_for_is_a_reason_too() -> None:
    assert world(nn.Linear(4, 3), "loop").engine_reason == "asked for"


def test_unknown_engines_are_refused() -> None:
    with pytest.raises(FieldError, match=r"SimulatedWorld\.engine must be .* Did you mean 'batched'"):
        world(nn.Linear(4, 3), "batch")


@pytest.mark.parametrize("lanes", [0, -1, 1.5, True])
def test_lanes_must_be_a_whole_number(lanes: Any) -> None:
    with pytest.raises(FieldError, match=r"SimulatedWorld\.lanes must be a whole number of at least 1"):
        fl.SimulatedWorld(fl.Task(nn.Linear(4, 3)), data(), lanes=lanes)


@pytest.mark.parametrize("engine", ["auto", "loop", "batched", "branches"])
def test_nothing_is_compiled_on_a_cpu(engine: Any) -> None:
    with pytest.raises(ClashError, match=r"compile=True .* is 'cpu': leave `compile` out\.$"):
        fl.SimulatedWorld(fl.Task(nn.Linear(4, 3)), data(), engine=engine, compile=True)


@pytest.mark.parametrize(
    "device", ["meta", "cuda:99", "cuda:99999", "cuda:x", "cdua", "", None, torch.device("meta")]
)
def test_devices_that_engines_cannot_use_are_refused(device: Any) -> None:
    """Those that torch knows, and names that it does not."""
    with pytest.raises(FieldError) as caught:
        fl.SimulatedWorld(fl.Task(nn.Linear(4, 3)), data(), device=device)
    assert str(caught.value) == (
        "SimulatedWorld.device must be 'cpu' or a CUDA device of this machine, which has "
        f"{torch.cuda.device_count() or 'none'}, got {device!r}."
    )


@pytest.mark.parametrize("engine", ["loop", "batched"])
def test_a_model_may_change_its_inputs_in_place(engine: Any) -> None:
    """Training, trying and evaluating work on copies: the data must not drift."""
    clients = data()
    before = clients.inputs.clone()
    run = fl.Federation(
        fl.presets.fedavg(lr=0.1),
        fl.SimulatedWorld(
            fl.Task(_InPlace().double()),
            clients,
            engine=engine,
            dtype=torch.float64,
        ),
    )
    list(run.train(1))
    assert run.evaluate().loss == run.evaluate().loss
    assert torch.equal(clients.inputs, before)


class _InPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = self.out(inputs.mul_(2.0))
        return scores
