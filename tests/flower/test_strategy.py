"""`FlowerStrategy` inside a plain Flower app, whose clients know nothing of fairlead."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from direct_grid import DirectGrid
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg, Strategy
from safetensors.torch import load_file
from small_federation import SIZES, build_model, examples_of, simulated
from torch import Tensor, nn
from typer.testing import CliRunner

import fairlead as fl
from fairlead.cli import app
from fairlead.errors import FairleadError, FieldError
from fairlead.experiments.run_folder import RunFolder
from fairlead.flower import FlowerStrategy
from fairlead.parameters import FlatModule
from fairlead.reply_checks import ReplyLimits

STEPS = (2, 5, 3)
"""Local steps of the clients, over all their examples each."""


def plain_app() -> ClientApp:
    """What a user of Flower has: torch's own SGD, a state_dict and the usual metrics."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        client = int(str(context.node_config["client-id"]))
        model = build_model()
        model.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
        inputs, targets = examples_of(client)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for _ in range(STEPS[client]):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), targets)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            losses.append(float(loss.detach()))
        metrics = MetricRecord({"num-examples": len(inputs), "num-steps": STEPS[client]})
        metrics["train-loss"] = sum(losses) / len(losses)
        content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
        return Message(content, reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        client = int(str(context.node_config["client-id"]))
        metrics = MetricRecord({"num-examples": SIZES[client], "mark": float(client)})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app


def initial_arrays(seed: int = 3) -> ArrayRecord:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(fl.Key.from_seed(seed).fold("init").torch_seed())
        return ArrayRecord(build_model().state_dict())


def trained(
    strategy: Strategy,
    folder: Path,
    rounds: int,
    fate: Callable[[int, Message], str] = lambda client, message: "answered",
    tamper: Callable[[int, Message], Message] = lambda client, reply: reply,
) -> Tensor:
    return trained_on(plain_grid(folder, fate, tamper), strategy, rounds)


def plain_grid(
    folder: Path,
    fate: Callable[[int, Message], str] = lambda client, message: "answered",
    tamper: Callable[[int, Message], Message] = lambda client, reply: reply,
) -> DirectGrid:
    return DirectGrid(dict.fromkeys(range(len(SIZES)), plain_app()), folder, fate, tamper)


def trained_on(grid: DirectGrid, strategy: Strategy, rounds: int) -> Tensor:
    result = strategy.start(grid=grid, initial_arrays=initial_arrays(), num_rounds=rounds, timeout=1.0)
    model = build_model()
    model.load_state_dict(result.arrays.to_torch_state_dict())
    return FlatModule(model).initial_params()


def plan(preset: Callable[..., fl.Algorithm]) -> fl.Algorithm:
    """Full batches, as the app's clients use them."""
    return preset(lr=0.1, batch_size=None)


PRESETS = ("fednova", "fedaware", "fedvarp", "fedadam", "fedmgda_plus", "mifa")


@pytest.mark.parametrize("name", PRESETS)
def test_the_numbers_of_the_simulation(name: str, tmp_path: Path) -> None:
    """The same method, work and data in simulation: equal up to the rounding of torch's own optimizer."""
    algorithm = plan(getattr(fl.presets, name))
    strategy = FlowerStrategy(algorithm, len(SIZES), seed=3)
    twin = simulated(algorithm, work=fl.FixedSteps(STEPS))
    list(twin.train(4))
    assert torch.allclose(trained(strategy, tmp_path, 4), twin.params, atol=2e-6)
    assert [record.arrived for record in strategy.records] == [(0, 1, 2)] * 4


def test_fedavg_is_that_of_flower(tmp_path: Path) -> None:
    own = FlowerStrategy(plan(fl.presets.fedavg), len(SIZES))
    theirs = FedAvg(min_available_nodes=3, min_train_nodes=3)
    assert torch.allclose(trained(own, tmp_path, 3), trained(theirs, tmp_path, 3), atol=1e-6)


def test_weights_are_learned_from_replies(tmp_path: Path) -> None:
    strategy = FlowerStrategy(plan(fl.presets.fednova), len(SIZES))
    trained(strategy, tmp_path, 2)
    assert strategy.weights.tolist() == pytest.approx([size / sum(SIZES) for size in SIZES])
    report = strategy.consistency()
    assert report.surrogate is not None


def test_its_rounds_can_be_diagnosed(tmp_path: Path) -> None:
    """FedAvg gives Ω ∝ ωτ with τ = 2, 5 and 3 steps over 12, 7 and 20 examples."""
    strategy = FlowerStrategy(plan(fl.presets.fedavg), len(SIZES))
    with pytest.raises(FieldError, match="needs at least one round"):
        strategy.diagnosis()
    trained(strategy, tmp_path, 30)
    found = strategy.diagnosis()
    assert (found.rounds, found.advice.preset) == (30, "scaffold")
    omega = torch.tensor(SIZES, dtype=torch.float64) / sum(SIZES)
    surrogate = omega * torch.tensor(STEPS) / (omega @ torch.tensor(STEPS, dtype=torch.float64))
    measured = found.finding("measured")
    assert measured is not None
    assert measured.evidence["misplaced_weight"] == pytest.approx(float((omega - surrogate).abs().sum() / 2))


def test_a_bad_reply_and_a_dead_node_are_absent(tmp_path: Path) -> None:
    """Under Flower's FedAvg the same NaN would reach the model without a word."""

    def tamper(client: int, reply: Message) -> Message:
        if client == 1 and reply.metadata.message_type == "train":
            reply.content.array_records["arrays"]["0.bias"] = Array(torch.full((6,), float("nan")))
        return reply

    strategy = FlowerStrategy(plan(fl.presets.fedavg), len(SIZES))
    fate = lambda client, message: "failed" if client == 2 else "answered"  # noqa: E731
    params = trained(strategy, tmp_path, 1, fate, tamper)
    twin = simulated(plan(fl.presets.fedavg), work=fl.FixedSteps(STEPS), link=fl.ScriptedLink(((0,),)))
    list(twin.train(1))
    assert torch.allclose(params, twin.params, atol=1e-6)
    (record,) = strategy.records
    assert {refusal.client: str(refusal.reason) for refusal in record.refused} == {
        1: "not finite",
        2: "failed",
    }


@pytest.mark.parametrize(
    ("preset", "part"),
    [(fl.presets.scaffold, "ControlVariates"), (fl.presets.pfedme, "LocalSolver.personal")],
)
def test_methods_with_a_half_on_the_clients_are_refused(
    preset: Callable[..., fl.Algorithm], part: str
) -> None:
    with pytest.raises(fl.errors.ClashError, match=f"use {part}: build the clients with make_client_app"):
        FlowerStrategy(preset(lr=0.1), 3)


def test_privacy_is_refused_where_weights_are_learned_from_replies() -> None:
    private = fl.Algorithm(
        fl.LocalSolver(fl.SGD(0.1)),
        aggregator=fl.WeightedMean(over="asked"),
        privacy=fl.ClientPrivacy(clip=1.0, noise_multiplier=1.0, delta=1e-3),
    )
    with pytest.raises(fl.errors.ClashError, match="so ClientPrivacy could guarantee nothing"):
        FlowerStrategy(private, 3)


def server_round(message: Message) -> int:
    return int(str(message.content.config_records["config"]["server-round"]))


def reasons(strategy: FlowerStrategy) -> list[dict[int | None, str]]:
    return [{each.client: str(each.reason) for each in record.refused} for record in strategy.records]


def test_rounds_and_evaluations_go_on_without_a_node_that_is_gone(tmp_path: Path) -> None:
    """Flower's own evaluation would wait for three nodes for ever."""
    grid = plain_grid(tmp_path)

    def fate(client: int, message: Message) -> str:
        if message.metadata.message_type == "evaluate" and server_round(message) == 1:
            grid.away = {2}
        return "answered"

    grid.fate = fate
    strategy = FlowerStrategy(plan(fl.presets.fedavg), len(SIZES), poll=0.01)
    trained_on(grid, strategy, 3)
    assert [record.arrived for record in strategy.records] == [(0, 1, 2), (0, 1), (0, 1)]
    assert reasons(strategy) == [{}, {2: "away"}, {2: "away"}]
    asked = [client for client, message in grid.sent if message.metadata.message_type == "evaluate"]
    assert sorted(asked) == [0, 0, 0, 1, 1, 1, 2]


def test_a_node_that_restarts_without_a_key_is_trained_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It has another node id from round 3 on."""
    grid = plain_grid(tmp_path)

    def fate(client: int, message: Message) -> str:
        if message.metadata.message_type == "evaluate" and client == 2:
            grid.nodes.pop(1001, None)
            if server_round(message) == 2:
                grid.nodes[500] = 1
        return "answered"

    grid.fate = fate
    strategy = FlowerStrategy(plan(fl.presets.fednova), len(SIZES), poll=0.01)
    params = trained_on(grid, strategy, 4)
    arrivals = ((0, 1, 2), (0, 2), (0, 1, 2), (0, 1, 2))
    assert [record.arrived for record in strategy.records] == list(arrivals)
    assert "Node 500 replaces node 1001 as client 1." in caplog.messages
    twin = simulated(plan(fl.presets.fednova), work=fl.FixedSteps(STEPS), link=fl.ScriptedLink(arrivals))
    list(twin.train(4))
    assert torch.allclose(params, twin.params, atol=2e-6)


def test_too_few_nodes_are_logged_and_end_the_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    grid = plain_grid(tmp_path)
    grid.away = {0, 2}
    strategy = FlowerStrategy(plan(fl.presets.fedavg), len(SIZES), join_seconds=0.1, poll=0.01)
    with pytest.raises(
        FairleadError, match=r"^Only 1 of 3 nodes were connected within 0.1 s: start the others"
    ):
        trained_on(grid, strategy, 1)
    assert caplog.messages.count("Waiting to start: 1 of 3 nodes are connected.") == 1


def test_a_run_can_start_with_some_of_its_clients(tmp_path: Path) -> None:
    """Client 2 joins in round 2; all three are clients of the method from the beginning."""
    grid = plain_grid(tmp_path)
    grid.away = {2}

    def fate(client: int, message: Message) -> str:
        grid.away = set()
        return "answered"

    grid.fate = fate
    strategy = FlowerStrategy(plan(fl.presets.fedavg), len(SIZES), start_with=2, poll=0.01)
    params = trained_on(grid, strategy, 3)
    assert [record.arrived for record in strategy.records] == [(0, 1), (0, 1, 2), (0, 1, 2)]
    link = fl.ScriptedLink(((0, 1), (0, 1, 2), (0, 1, 2)))
    twin = simulated(plan(fl.presets.fedavg), work=fl.FixedSteps(STEPS), link=link)
    list(twin.train(3))
    assert torch.allclose(params, twin.params, atol=1e-6)


def test_a_run_in_which_every_client_was_refused_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def tamper(client: int, reply: Message) -> Message:
        if reply.metadata.message_type == "train":
            del reply.content.metric_records["metrics"]["num-examples"]
        return reply

    strategy = FlowerStrategy(plan(fl.presets.fedavg), len(SIZES))
    with pytest.raises(FairleadError, match=r"^No update could be used in 2 rounds. Client 0 was refused in"):
        trained(strategy, tmp_path, 2, tamper=tamper)
    assert "Round 1 used no update." in caplog.messages
    assert any(line.startswith("Round 2: Client 2 was refused in round 2: ") for line in caplog.messages)


def test_a_round_without_quorum_is_void(tmp_path: Path) -> None:
    strategy = FlowerStrategy(plan(fl.presets.fedavg), len(SIZES), quorum=3)
    fate = lambda client, message: "lost" if (client, server_round(message)) == (1, 1) else "answered"  # noqa: E731
    params = trained(strategy, tmp_path, 2, fate)
    assert [record.arrived for record in strategy.records] == [(), (0, 1, 2)]
    assert reasons(strategy) == [{0: "no quorum", 1: "deadline", 2: "no quorum"}, {}]
    assert strategy.records[0].refused[0].sentence == "Round 1 is void: only 2 updates came."
    twin = simulated(plan(fl.presets.fedavg), work=fl.FixedSteps(STEPS))
    list(twin.train(1))
    assert torch.allclose(params, twin.params, atol=1e-6)
    for wrong in (0, 4):
        with pytest.raises(FieldError, match=f"FlowerStrategy.quorum must .* got {wrong}"):
            FlowerStrategy(plan(fl.presets.fedavg), len(SIZES), quorum=wrong)


def test_a_silent_client_and_a_failed_one_are_named(tmp_path: Path) -> None:
    fates = {0: "answered", 1: "lost", 2: "failed"}
    strategy = FlowerStrategy(plan(fl.presets.fedavg), len(SIZES))
    trained(strategy, tmp_path, 1, lambda client, message: fates[client])
    assert [refusal.sentence for refusal in strategy.records[0].refused] == [
        "Client 1 did not answer in time.",
        "Client 2 failed: Flower's error 5, node unavailable",
    ]


def scripted_app(replies: Mapping[int, tuple[float, float, int]]) -> ClientApp:
    """Client i replies with a weight, a running variance and a number of steps; all have 10 examples."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        weight, variance, steps = replies[int(str(context.node_config["client-id"]))]
        arrays = {"weight": weight, "running_var": variance}
        content = RecordDict(
            {"arrays": ArrayRecord({n: Array(torch.tensor([v])) for n, v in arrays.items()})}
        )
        content["metrics"] = MetricRecord({"num-examples": 10, "num-steps": steps})
        return Message(content, reply_to=message)

    return app


def test_running_statistics_are_averaged_and_never_extrapolated(tmp_path: Path) -> None:
    """FedNova with τ = 1 and 9 steps moves by mean(τ) · mean(Δ_i/τ_i): the weight by 5 · (1/1 + 9/9)/2 = 5.

    The same step would take the variance from 1 to 1 − 5 · (0.5/1 + 0.9/9)/2 = −0.5, whose root is NaN.
    """
    replies = {0: (1.0, 0.5, 1), 1: (9.0, 0.1, 9)}
    grid = DirectGrid(dict.fromkeys(range(2), scripted_app(replies)), tmp_path)
    strategy = FlowerStrategy(fl.presets.fednova(lr=0.1), 2, fraction_evaluate=0.0)
    arrays = {"weight": Array(torch.zeros(1)), "running_var": Array(torch.ones(1))}
    counter = {"num_batches_tracked": Array(torch.tensor(0))}
    result = strategy.start(grid=grid, initial_arrays=ArrayRecord({**arrays, **counter}), num_rounds=1)
    found = result.arrays.to_torch_state_dict()
    assert found["weight"].item() == pytest.approx(5.0)
    assert found["running_var"].item() == pytest.approx(0.3)
    assert found["num_batches_tracked"].item() == 0


def test_a_claim_of_nearly_all_examples_is_noticed_and_bounded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def tamper(client: int, reply: Message) -> Message:
        if client == 1:
            reply.content.metric_records["metrics"]["num-examples"] = 900_000_000
        return reply

    trained(FlowerStrategy(plan(fl.presets.fedavg), len(SIZES)), tmp_path, 2, tamper=tamper)
    assert len([line for line in caplog.messages if line.startswith("Client 1 reports 900000000 of")]) == 1
    bounded = FlowerStrategy(plan(fl.presets.fedavg), len(SIZES), limits=ReplyLimits(max_examples=100))
    trained(bounded, tmp_path, 1, tamper=tamper)
    assert reasons(bounded) == [{1: "out of range"}]


def test_the_first_reports_are_no_claim(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With one client a round, the first to report has all examples so far: a false claim shows beside others."""
    one = replace(plan(fl.presets.fedavg), sampler=fl.ScriptedSampler(((0,), (2,), (1,), (2,))))
    trained(FlowerStrategy(one, len(SIZES)), tmp_path, 4)
    assert not [line for line in caplog.messages if "reports" in line]

    def tamper(client: int, reply: Message) -> Message:
        if client == 0 and reply.metadata.message_type == "train":
            reply.content.metric_records["metrics"]["num-examples"] = 900_000_000
        return reply

    trained(FlowerStrategy(one, len(SIZES)), tmp_path, 4, tamper=tamper)
    (line,) = (line for line in caplog.messages if "reports" in line)
    assert line.startswith("Client 0 reports 900000000 of 900000020 examples")


def test_secure_aggregation_is_refused() -> None:
    secure = replace(fl.presets.fedavg(lr=0.1), secure_aggregation=True)
    with pytest.raises(fl.errors.ClashError, match="receives single updates, which secure_aggregation would"):
        FlowerStrategy(secure, 3)


@pytest.mark.parametrize("preset", [fl.presets.fedvarp, fl.presets.fedadam])
def test_a_run_in_a_folder_resumes_with_the_same_bits(
    preset: Callable[..., fl.Algorithm], tmp_path: Path
) -> None:
    """Two rounds, a new process, two more; client 1 is away in round 2, and no node keeps its order."""

    def grid() -> DirectGrid:
        found = plain_grid(tmp_path)
        # An id as Flower's are: beyond 2⁶³. The last client is first in the order of ids.
        found.nodes = {2**64 - 5: 0, 2**63 + 7: 1, 12: 2}
        found.fate = lambda client, message: (
            "lost" if client == 1 and server_round(message) == 2 else "answered"
        )
        return found

    def strategy(folder: str | None) -> FlowerStrategy:
        place = None if folder is None else tmp_path / folder
        return FlowerStrategy(plan(preset), len(SIZES), folder=place, poll=0.01)

    whole = strategy(None)
    expected = trained_on(grid(), whole, 4)
    trained_on(grid(), strategy("run"), 2)
    again, later = grid(), strategy("run")
    del again.nodes[12]
    again.nodes[4] = 2
    assert torch.equal(trained_on(again, later, 4), expected)
    model = build_model()
    model.load_state_dict(load_file(tmp_path / "run" / "model.safetensors"))
    assert torch.equal(FlatModule(model).initial_params(), expected)
    assert {server_round(message) for _, message in again.sent} == {3, 4}
    assert later.weights.tolist() == whole.weights.tolist()
    assert [vars(r) | {"seconds": 0} for r in later.records] == [
        vars(r) | {"seconds": 0} for r in whole.records
    ]
    assert torch.equal(trained_on(grid(), strategy("run"), 4), expected)


def test_a_folder_of_another_run_is_refused(tmp_path: Path) -> None:
    trained(FlowerStrategy(plan(fl.presets.fedavg), len(SIZES), folder=tmp_path / "run"), tmp_path, 1)
    with pytest.raises(FairleadError, match="is another experiment, with a different algorithm: "):
        trained(FlowerStrategy(plan(fl.presets.fednova), len(SIZES), folder=tmp_path / "run"), tmp_path, 1)
    spec = fl.Experiment(fl.Digits(num_clients=3), fl.presets.fedavg(lr=0.1), rounds=1)
    fl.run_experiment(spec, tmp_path / "simulated")
    before = (tmp_path / "simulated" / "rounds.jsonl").read_bytes()
    with pytest.raises(FairleadError):
        trained(FlowerStrategy(plan(fl.presets.fedavg), 3, folder=tmp_path / "simulated"), tmp_path, 1)
    assert (tmp_path / "simulated" / "rounds.jsonl").read_bytes() == before


def test_a_run_whose_server_died_before_its_first_checkpoint_starts_over(tmp_path: Path) -> None:
    """The record of round 1 was written, and its checkpoint was not."""

    def run(folder: str, rounds: int) -> Tensor:
        return trained(FlowerStrategy(plan(fl.presets.fedavg), 3, folder=tmp_path / folder), tmp_path, rounds)

    run("run", 1)
    shutil.rmtree(tmp_path / "run" / "checkpoint")
    (tmp_path / "run" / "summary.json").unlink()
    assert torch.equal(run("run", 2), run("whole", 2))
    assert len(fl.load_records(tmp_path / "run")) == 2


def test_the_folder_serves_the_commands_for_runs(tmp_path: Path) -> None:
    """`export` with a card, `report`, `diagnose` and `flower weights`, as for a run of `make_server_app`."""

    def said(*words: str | Path, status: int = 0) -> str:
        result = CliRunner().invoke(app, list(map(str, words)))
        assert result.exit_code == status, result.output
        return " ".join(result.output.split())

    folder, model = tmp_path / "run", tmp_path / "model.safetensors"
    strategy = FlowerStrategy(plan(fl.presets.fedavg), len(SIZES), folder=folder)
    params = trained(strategy, tmp_path, 6)
    said("export", folder, "-o", model)
    exported = build_model()
    exported.load_state_dict(load_file(model))
    assert torch.equal(FlatModule(exported).initial_params(), params)
    card = model.with_name("model.safetensors.md").read_text()
    assert "The last model, after 6 rounds.\n" in card
    assert "at nodes of Flower" in card
    assert "This model was not evaluated." in card
    assert "diverged" not in said("report", folder, "-o", tmp_path / "report.html")
    assert "Work: unequal, 2 to 5 effective local steps" in said("diagnose", folder)
    weights = json.loads(said("flower", "weights", folder, "--json"))
    measured = strategy.consistency().surrogate
    assert measured is not None
    assert [each["optimised"] for each in weights["clients"]] == measured.tolist()
    (start,) = RunFolder(folder).provenance()
    assert (start.outcome, start.next_round) == ("finished", 6)
    with pytest.raises(FairleadError, match="is already 6 rounds long: 5 are too few"):
        trained(FlowerStrategy(plan(fl.presets.fedavg), len(SIZES), folder=folder), tmp_path, 5)


def test_the_folder_says_why_a_run_failed(tmp_path: Path) -> None:
    grid = plain_grid(tmp_path)
    grid.away = {0, 1, 2}
    strategy = FlowerStrategy(
        plan(fl.presets.fedavg), 3, folder=tmp_path / "run", join_seconds=0.1, poll=0.01
    )
    with pytest.raises(FairleadError):
        trained_on(grid, strategy, 1)
    (start,) = RunFolder(tmp_path / "run").provenance()
    assert start.outcome.startswith("failed: Only 0 of 3 nodes were connected within 0.1 s")


@pytest.mark.parametrize("kept", [True, False])
def test_a_second_start_resumes_the_run_in_the_folder_and_otherwise_begins_anew(
    kept: bool, tmp_path: Path
) -> None:
    """FedAdam, whose moments a second start without a folder must not have."""

    def strategy(folder: Path | None) -> FlowerStrategy:
        return FlowerStrategy(plan(fl.presets.fedadam), 3, folder=folder, poll=0.01)

    expected = trained(strategy(None), tmp_path, 3)
    grid, again = plain_grid(tmp_path), strategy(tmp_path / "run" if kept else None)
    trained_on(grid, again, 2)
    grid.sent.clear()
    assert torch.equal(trained_on(grid, again, 3), expected)
    assert [record.round for record in again.records] == [0, 1, 2]
    assert {server_round(message) for _, message in grid.sent} == ({3} if kept else {1, 2, 3})
    if kept:
        run = RunFolder(tmp_path / "run")
        summary = run.summary()
        assert summary is not None
        assert (run.experiment().rounds, summary.rounds, len(run.log())) == (3, 3, 3)
        assert [(s.first_round, s.next_round, s.outcome) for s in run.provenance()] == [
            (0, 2, "finished"),
            (2, 3, "finished"),
        ]
        with pytest.raises(FairleadError, match="is already 3 rounds long: 2 are too few"):
            trained_on(grid, again, 2)


def test_a_second_start_goes_on_after_a_failure(tmp_path: Path) -> None:
    """The link fails in round 2, and round 1 is in the folder."""
    grid = plain_grid(tmp_path)
    strategy = FlowerStrategy(plan(fl.presets.fedadam), 3, folder=tmp_path / "run", poll=0.01)

    def fate(client: int, message: Message) -> str:
        if server_round(message) == 2:
            raise OSError("the link is gone")
        return "answered"

    grid.fate = fate
    with pytest.raises(OSError, match="the link is gone"):
        trained_on(grid, strategy, 3)
    grid.fate = lambda client, message: "answered"
    whole = FlowerStrategy(plan(fl.presets.fedadam), 3, poll=0.01)
    assert torch.equal(trained_on(grid, strategy, 3), trained(whole, tmp_path, 3))
    assert [record.round for record in strategy.records] == [0, 1, 2]


def test_a_run_without_rounds_is_refused(tmp_path: Path) -> None:
    strategy = FlowerStrategy(plan(fl.presets.fedavg), 3, folder=tmp_path / "run")
    with pytest.raises(FieldError, match=r"num_rounds must be a whole number of at least 1, got 0\.$"):
        trained(strategy, tmp_path, 0)
    assert not (tmp_path / "run").exists()


def test_a_users_own_spec_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text("rounds = 7\n")
    with pytest.raises(FairleadError, match="already holds files of the same names as a run's"):
        trained(FlowerStrategy(plan(fl.presets.fedavg), 3, folder=tmp_path), tmp_path, 1)
    assert (tmp_path / "spec.toml").read_text() == "rounds = 7\n"
    assert not (tmp_path / "rounds.jsonl").exists()
