"""When a round on Flower ends, who is asked, and what becomes of late, bad and missing answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from threading import Timer
from typing import Literal

import pytest
import torch
from direct_grid import DirectGrid
from flwr.app import Array, ConfigRecord, Context, Error, Message, MessageType, RecordDict, UserConfig
from flwr.clientapp import ClientApp
from small_federation import QUICK, SIZES, asking, build_model, client_apps, experiment, round_of, simulated
from typer.testing import CliRunner

import fairlead as fl
from fairlead import cli
from fairlead.errors import ClashError, FairleadError, RunFolderError
from fairlead.experiments.run_folder import load_records
from fairlead.flower import RoundRules, make_server_app
from fairlead.flower.server import run_on_grid
from fairlead.flower.world import FlowerWorld
from fairlead.records import Cohort, RoundRecord, WorkOrder
from fairlead.reply_checks import ReplyLimits

VALUES, ARRAYS = "fairlead.values", "fairlead.arrays"


def plain() -> fl.Algorithm:
    return asking(fl.presets.fedavg(lr=0.1, steps=3, batch_size=5), ((0, 1, 2),))


def records_of(grid: DirectGrid, folder: Path, rounds: int, rules: RoundRules = QUICK) -> list[RoundRecord]:
    return list(run_on_grid(grid, experiment(plain(), rounds), build_model, folder, rules).federation.records)


def reasons(record: RoundRecord) -> dict[int | None, str]:
    return {refusal.client: str(refusal.reason) for refusal in record.refused}


def fated(fates: dict[tuple[int, int], str]) -> Callable[[int, Message], str]:
    """What becomes of the question to a client in a round; all others are answered."""

    def fate(client: int, message: Message) -> str:
        round = round_of(message)
        return "answered" if round is None else fates.get((client, round), "answered")

    return fate


def test_a_client_that_owes_an_answer_is_not_asked_again(tmp_path: Path) -> None:
    grid = DirectGrid(client_apps(), tmp_path / "m", fated({(1, 0): "lost"}))
    records = records_of(grid, tmp_path / "run", 3)
    assert [record.arrived for record in records] == [(0, 2)] * 3
    assert [client for client, message in grid.sent if round_of(message) is not None].count(1) == 1
    assert [reasons(record) for record in records] == [{1: "deadline"}, {1: "busy"}, {1: "busy"}]
    told = [refusal.sentence for record in records for refusal in record.refused]
    assert told[0] == "Client 1 did not answer within the deadline of 0.05 s."
    assert told[1] == "Client 1 still owes the answer of round 1."


def late_in_round_1(grid: DirectGrid) -> None:
    """Let the answer of client 1 to round 0 come while round 1 waits for client 2."""
    answered = grid.fate

    def fate(client: int, message: Message) -> str:
        if round_of(message) == 1:
            grid.release()
        return answered(client, message)

    grid.fate = fate


def test_late_answers_are_discarded_by_rule(tmp_path: Path) -> None:
    """Client 1 misses round 0 and arrives in round 1, where it counts for nothing; then it is asked again."""
    grid = DirectGrid(client_apps(), tmp_path / "m", fated({(1, 0): "late"}))
    late_in_round_1(grid)
    records = records_of(grid, tmp_path / "run", 3)
    assert [record.arrived for record in records] == [(0, 2), (0, 2), (0, 1, 2)]
    twin = simulated(plain(), link=fl.ScriptedLink(((0, 2), (0, 2), (0, 1, 2))))
    assert [record.train_loss for record in records] == [r.train_loss for r in twin.train(3)]
    assert [refusal.reason for refusal in records[1].refused] == ["busy", "late"]


def test_late_answers_are_used_by_rule(tmp_path: Path) -> None:
    """In round 1 client 1 counts with the update that it made from the model of round 0."""
    rules = replace(QUICK, late="use")
    grid = DirectGrid(client_apps(), tmp_path / "m", fated({(1, 0): "late"}))
    late_in_round_1(grid)
    run = run_on_grid(grid, experiment(plain(), 2), build_model, tmp_path / "run", rules)
    assert run.federation.records[1].arrived == (0, 1, 2)
    assert run.federation.records[1].refused == ()
    twin = simulated(plain(), link=fl.ScriptedLink(((0, 2),)))
    stale = _deltas(twin)[1]
    list(twin.train(1))
    fresh = _deltas(twin)
    weights = torch.tensor(SIZES, dtype=torch.float64) / sum(SIZES)
    expected = twin.params + weights[0] * fresh[0] + weights[1] * stale + weights[2] * fresh[2]
    assert torch.allclose(run.federation.params, expected.to(torch.float32), atol=1e-6)


def late_in_the_evaluation_of_round_0(grid: DirectGrid) -> None:
    """Let the answer of client 1 to round 0 come while the others are asked how good its model is."""
    answered = grid.fate

    def fate(client: int, message: Message) -> str:
        if message.metadata.message_type == "evaluate":
            grid.release()
        return answered(client, message)

    grid.fate = fate


@pytest.mark.parametrize(("late", "ages"), [("use", {1: 1}), ("discard", {})])
def test_answers_that_come_during_an_evaluation(
    late: Literal["use", "discard"], ages: dict[int, int], tmp_path: Path
) -> None:
    """They wait for the next round where it may use them; else their client is free to be asked anew."""
    grid = DirectGrid(client_apps(), tmp_path / "m", fated({(1, 0): "late"}))
    late_in_the_evaluation_of_round_0(grid)
    spec = replace(experiment(plain(), 2), evaluate_every=1)
    run = run_on_grid(grid, spec, build_model, tmp_path / "run", replace(QUICK, late=late))
    first, second = run.federation.records
    assert (first.arrived, second.arrived) == ((0, 2), (0, 1, 2))
    assert second.late == ages
    rounds_asked = [round_of(message) for client, message in grid.sent if client == 1]
    assert (1 in rounds_asked) == (late == "discard")


def test_late_updates_count_by_the_learning_rate_they_were_made_with(tmp_path: Path) -> None:
    """lr falls from 0.4 to 0.1: three steps of round 0 are as much work as twelve of round 1."""
    solver = fl.LocalSolver(fl.SGD(0.4, schedule=fl.Exponential(0.25)), steps=3)
    algorithm = asking(fl.Algorithm(solver, aggregator=fl.FedNova()), ((0, 1, 2),))
    grid = DirectGrid(client_apps(), tmp_path / "m", fated({(1, 0): "late"}))
    late_in_round_1(grid)
    rules = replace(QUICK, late="use")
    run = run_on_grid(grid, experiment(algorithm, 2), build_model, tmp_path / "run", rules)
    assert run.federation.records[1].late == {1: 1}
    assert run.federation.records[1].effective_steps == pytest.approx((3.0, 12.0, 3.0))


def test_a_late_update_does_not_tell_what_a_client_can_do_now(tmp_path: Path) -> None:
    """Two steps were asked for in round 0, six are in round 1: client 1 did all of its two, also seen afterwards."""
    spec = replace(experiment(plain(), 2), work=fl.ScriptedWork(((2, 2, 2), (6, 6, 6))))
    grid = DirectGrid(client_apps(), tmp_path / "m", fated({(1, 0): "late"}))
    late_in_round_1(grid)
    rules = replace(QUICK, late="use")
    for _ in range(2):
        # The second time it is over already, and all is learned from its records.
        run = run_on_grid(grid, spec, build_model, tmp_path / "run", rules)
        world = run.federation.world
        assert isinstance(world, FlowerWorld)
        assert run.federation.records[1].num_steps == (6, 2, 6)
        assert world.estimates.expected_steps(torch.full((3,), 6)).tolist() == [6, 6, 6]


def _deltas(federation: fl.Federation) -> torch.Tensor:
    """What all clients would upload from the federation's current model in its next round."""
    clients = torch.arange(len(SIZES))
    cohort = Cohort(clients, torch.ones_like(clients), torch.ones(len(SIZES), dtype=torch.float64))
    state, solver = federation.state, federation.algorithm.solver
    order = WorkOrder(
        state.round, solver, state.params, state.buffers, {}, cohort, state.memory, federation.key
    )
    return simulated(federation.algorithm).world.work(order).delta


def test_rounds_wait_while_everybody_is_busy(tmp_path: Path) -> None:
    """All are slower than the deadline of round 0: round 1 lasts until they are done, and round 2 has them all."""
    grid = DirectGrid(client_apps(), tmp_path / "m", fated({(client, 0): "late" for client in range(3)}))
    answered, rules = grid.fate, replace(QUICK, deadline=1.0)

    def fate(client: int, message: Message) -> str:
        if round_of(message) == 0 and client == 2:
            Timer(1.3, grid.release).start()
        return answered(client, message)

    grid.fate = fate
    records = records_of(grid, tmp_path / "run", 3, rules)
    assert [record.arrived for record in records] == [(), (), (0, 1, 2)]


def test_over_selection_takes_the_first(tmp_path: Path) -> None:
    """All three answer at once; of equally fast clients the lower ids count."""
    records = records_of(
        DirectGrid(client_apps(), tmp_path / "m"), tmp_path / "run", 2, replace(QUICK, first=2)
    )
    assert [record.arrived for record in records] == [(0, 1), (0, 1)]
    assert [reasons(record) for record in records] == [{2: "late"}] * 2


def test_a_round_without_quorum_is_void(tmp_path: Path) -> None:
    grid = DirectGrid(client_apps(), tmp_path / "m", fated({(1, 0): "failed", (2, 0): "failed"}))
    records = records_of(grid, tmp_path / "run", 2, replace(QUICK, quorum=2))
    assert [record.arrived for record in records] == [(), (0, 1, 2)]
    assert reasons(records[0]) == {0: "no quorum", 1: "failed", 2: "failed"}
    assert [refusal.sentence for refusal in records[0].refused][:2] == [
        "Round 1 is void: only 1 update came.",
        "Client 1 failed: Flower's error 5, node unavailable",
    ]
    assert records[0].step_norm == 0.0


def test_a_client_that_is_away_counts_as_lost_and_comes_back(tmp_path: Path) -> None:
    grid = DirectGrid(client_apps(), tmp_path / "m")

    def fate(client: int, message: Message) -> str:
        grid.away = {2} if round_of(message) == 0 else set()
        return "answered"

    grid.fate = fate
    records = records_of(grid, tmp_path / "run", 3)
    assert [record.arrived for record in records] == [(0, 1, 2), (0, 1), (0, 1, 2)]
    assert reasons(records[1]) == {2: "away"}


def test_over_selection_names_the_clients_it_did_not_wait_for(tmp_path: Path) -> None:
    grid = DirectGrid(client_apps(), tmp_path / "m", fated({(0, 0): "lost"}))
    (record,) = records_of(grid, tmp_path / "run", 1, replace(QUICK, first=2, deadline=30.0))
    assert record.arrived == (1, 2)
    assert [refusal.sentence for refusal in record.refused] == ["Client 0 was not among the first 2 updates."]


def test_the_log_names_clients_that_did_not_evaluate(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fates = {0: "lost", 1: "failed", 2: "answered"}
    grid = DirectGrid(client_apps(), tmp_path / "m")
    grid.fate = lambda client, message: (
        fates[client] if message.metadata.message_type == "evaluate" else "answered"
    )
    run_on_grid(grid, replace(experiment(plain(), 1), evaluate_every=1), build_model, tmp_path / "run", QUICK)
    assert "An evaluation is missing: Client 0 did not answer evaluate within 0.05 s." in caplog.messages
    assert "An evaluation is missing: Client 1 failed: Flower's error 5, node unavailable" in caplog.messages


class FailingApp(ClientApp):
    """Raises whatever a client is asked, which Flower reports as an error of the ClientApp."""

    def __call__(self, message: Message, context: Context) -> Message:
        return Message(Error(code=2, reason="<class 'FileNotFoundError'>:<'patients.csv'>"), reply_to=message)


def test_a_client_whose_data_cannot_be_loaded_stops_the_run_with_its_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without waiting for `join_seconds`: only a restart of the node could help."""
    apps = {**client_apps(), 1: FailingApp()}
    with pytest.raises(
        FairleadError,
        match=r"Clients \[1\] have not introduced themselves: Node 1001 failed to .*patients.csv",
    ):
        records_of(DirectGrid(apps, tmp_path / "m"), tmp_path / "run", 1)
    assert len([line for line in caplog.messages if "patients.csv" in line]) == 1


def test_a_client_id_that_two_nodes_have_is_announced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    grid = DirectGrid(client_apps(), tmp_path / "m")
    grid.nodes[1003] = 1
    records = records_of(grid, tmp_path / "run", 1)
    assert records[0].arrived == (0, 1, 2)
    assert "Node 1003 repeats the id of client 1, which is at node 1001: it waits." in caplog.messages


def claiming(examples: int) -> Callable[[int, Message], Message]:
    def tamper(client: int, reply: Message) -> Message:
        if client == 1 and reply.metadata.message_type in ("query", "train"):
            reply.content.config_records[VALUES]["num_examples"] = examples
        return reply

    return tamper


def test_a_claim_of_nearly_all_examples_is_noticed_and_bounded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    grid = DirectGrid(client_apps(), tmp_path / "m", tamper=claiming(900_000_000))
    records_of(grid, tmp_path / "run", 1)
    (line,) = (line for line in caplog.messages if "reports" in line)
    assert line.startswith("Client 1 reports 900000000 of 900000032 examples and has 1 of the weight: bound")
    with pytest.raises(FairleadError, match=r"client 1 claims 900000000 examples; at most 100 are allowed"):
        run_on_grid(
            grid,
            experiment(plain(), 1),
            build_model,
            tmp_path / "bounded",
            QUICK,
            limits=ReplyLimits(max_examples=100),
            join_seconds=0.5,
        )


def test_rules_and_bounds_are_settings_of_a_run(tmp_path: Path) -> None:
    """`flwr run --run-config 'deadline=0.05 quorum=3'`: two of three updates are too few."""
    app = make_server_app(experiment(plain(), 1), build_model, rules=replace(QUICK, deadline=60.0))
    grid = DirectGrid(client_apps(), tmp_path / "m", fated({(1, 0): "lost"}))
    config: UserConfig = {"folder": str(tmp_path / "run"), "deadline": 0.05, "quorum": 3, "num-clients": 3}
    app(grid, Context(1, 1, {}, RecordDict(), config))
    (record,) = load_records(tmp_path / "run")
    assert reasons(record) == {0: "no quorum", 1: "deadline", 2: "no quorum"}
    for changed, sentence in (
        ({"quorum": -1}, "RoundRules.quorum must be"),
        ({"max-examples": 0}, "ReplyLimits.max_examples must be"),
        ({"num-clients": 4}, "num-clients must be 3, as clients.num_clients of the spec, got 4."),
        ({"num-clients": "three"}, "num-clients must be a whole number of at least 1, got 'three'."),
    ):
        with pytest.raises(FairleadError, match=sentence):
            app(grid, Context(1, 1, {}, RecordDict(), {**config, **changed}))


def test_a_run_can_start_with_some_of_its_clients_and_resume(tmp_path: Path) -> None:
    """Client 2 introduces itself in round 2; the second server knows it, and starts while client 0 is away."""
    app = make_server_app(replace(experiment(plain(), 4), weights="uniform"), build_model, rules=QUICK)
    config: UserConfig = {"folder": str(tmp_path / "run"), "start-with": 2, "join-seconds": 5.0}
    grid = DirectGrid(client_apps(), tmp_path / "m")
    grid.away = {2}

    def fate(client: int, message: Message) -> str:
        grid.away = {None: grid.away, 0: set(), 3: {0}}.get(round_of(message), set())
        return "answered"

    grid.fate = fate
    app(grid, Context(1, 1, {}, RecordDict(), config))
    arrivals = [(0, 1), (0, 1), (0, 1, 2), (0, 1, 2)]
    assert [record.arrived for record in load_records(tmp_path / "run")] == arrivals
    members = json.loads((tmp_path / "run" / "flower.json").read_text())["clients"]
    assert [member["num_examples"] for member in members] == list(SIZES)
    longer = make_server_app(replace(experiment(plain(), 5), weights="uniform"), build_model, rules=QUICK)
    longer(grid, Context(1, 1, {}, RecordDict(), config))
    assert load_records(tmp_path / "run")[-1].arrived == (1, 2)


def test_weights_that_clients_report_need_all_of_them(tmp_path: Path) -> None:
    app = make_server_app(experiment(plain(), 1), build_model, rules=QUICK)
    context = Context(1, 1, {}, RecordDict(), {"folder": str(tmp_path / "run"), "start-with": 2})
    with pytest.raises(
        ClashError, match=r'FlowerWorld.start_with=2 .* set weights to "uniform" or to one number'
    ):
        app(DirectGrid(client_apps(), tmp_path / "m"), context)


def test_the_log_as_json_lines(tmp_path: Path) -> None:
    app = make_server_app(replace(experiment(plain(), 2), evaluate_every=2), build_model, rules=QUICK)
    grid = DirectGrid(client_apps(), tmp_path / "m", fated({(1, 0): "failed"}))
    config: UserConfig = {"folder": str(tmp_path / "run"), "json-log": True}
    app(grid, Context(1, 1, {}, RecordDict(), config))
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert all({"time", "level", "message"} <= line.keys() for line in lines)
    rounds = [line for line in lines if "asked" in line]
    assert [(line["round"], line["asked"], line["arrived"]) for line in rounds] == [(1, 3, 2), (2, 3, 3)]
    found = load_records(tmp_path / "run")[-1].evaluation
    assert found is not None
    assert [line["evaluation"] for line in rounds] == [None, {"loss": found.loss, **found.metrics}]
    assert rounds[1]["message"].endswith(f", loss {found.loss:.4g}, accuracy {found.metrics['accuracy']:.4g}")
    (missing,) = (line for line in lines if "client" in line)
    assert (missing["round"], missing["client"], missing["reason"], missing["level"]) == (
        1,
        1,
        "failed",
        "warning",
    )
    assert datetime.fromisoformat(missing["time"]).tzinfo is not None
    grid.away = {0, 1, 2}
    with pytest.raises(FairleadError):
        app(
            grid,
            Context(1, 1, {}, RecordDict(), {**config, "folder": str(tmp_path / "new"), "join-seconds": 0.1}),
        )
    last = json.loads((tmp_path / "new" / "log.jsonl").read_text().splitlines()[-1])
    assert last["level"] == "error"
    assert last["message"].startswith(
        "FairleadError: Clients [0, 1, 2] have not introduced themselves within 0.1 s"
    )


def test_an_objective_that_no_client_tells_is_unknown_and_no_divergence(tmp_path: Path) -> None:
    """No client answers after the last round: the model comes out, with its card."""

    def fate(client: int, message: Message) -> str:
        return "lost" if message.metadata.message_type == MessageType.EVALUATE else "answered"

    grid = DirectGrid(client_apps(), tmp_path / "m", fate)
    run = run_on_grid(grid, experiment(plain(), 2), build_model, tmp_path / "run", QUICK)
    assert run.summary is not None
    assert run.summary.objective is None
    assert run.summary.learned
    made = fl.export_model(tmp_path / "run", tmp_path / "model.safetensors")
    assert "This model was not evaluated." in made.card.read_text()
    words = ["report", str(tmp_path / "run"), "-o", str(tmp_path / "report.html")]
    assert "diverged" not in CliRunner().invoke(cli.app, words).output


def test_the_folder_of_a_simulation_is_refused(tmp_path: Path) -> None:
    spec = fl.Experiment(fl.Digits(num_clients=3), fl.presets.fedavg(lr=0.1), rounds=1)
    fl.run_experiment(spec, tmp_path / "run")
    before = sorted(file.name for file in (tmp_path / "run").iterdir())
    with pytest.raises(RunFolderError, match="holds a run that make_server_app did not start"):
        run_on_grid(DirectGrid(client_apps(), tmp_path / "m"), spec, build_model, tmp_path / "run", QUICK)
    assert sorted(file.name for file in (tmp_path / "run").iterdir()) == before


def test_clients_that_never_introduce_themselves_stop_the_run(tmp_path: Path) -> None:
    apps = {client: app for client, app in client_apps().items() if client != 1}
    with pytest.raises(FairleadError, match=r"Clients \[1\] have not introduced themselves within 0.5 s"):
        run_on_grid(
            DirectGrid(apps, tmp_path / "m"),
            experiment(plain(), 1),
            build_model,
            tmp_path / "run",
            QUICK,
            join_seconds=0.5,
        )


def _with_value(name: str, value: float | int | str) -> Callable[[Message], None]:
    def spoil(reply: Message) -> None:
        reply.content.config_records[VALUES][name] = value

    return spoil


def _with_delta(array: Array) -> Callable[[Message], None]:
    def spoil(reply: Message) -> None:
        reply.content.array_records[ARRAYS]["delta"] = array

    return spoil


def _without(name: str) -> Callable[[Message], None]:
    def spoil(reply: Message) -> None:
        del reply.content.array_records[ARRAYS][name]

    return spoil


def _empty(reply: Message) -> None:
    reply.content[VALUES] = ConfigRecord()


DIM = 51
"""Parameters of the model: 4·6 + 6 + 6·3 + 3."""
HUGE = Array(torch.zeros(DIM))
HUGE.data = HUGE.data.replace(b"(51,), ", b"(1099511627776,), ")[: len(HUGE.data)]
SPOILT: dict[str, tuple[Callable[[Message], None], str]] = {
    "NaN": (_with_delta(Array(torch.full((DIM,), float("nan")))), "not finite"),
    "infinity": (_with_delta(Array(torch.full((DIM,), float("inf")))), "not finite"),
    "huge numbers": (_with_delta(Array(torch.full((DIM,), 1e30))), "too large"),
    "a shape that broadcasts": (_with_delta(Array(torch.zeros(1))), "wrong shape"),
    "another type": (_with_delta(Array(torch.zeros(DIM, dtype=torch.float64))), "wrong dtype"),
    "a header that lies": (_with_delta(HUGE), "lying header"),
    "a missing array": (_without("delta"), "missing part"),
    "more steps than asked": (_with_value("num_steps", 4), "out of range"),
    "no steps": (_with_value("num_steps", 0), "out of range"),
    "negative examples": (_with_value("num_examples", -5), "out of range"),
    "another round": (_with_value("round", 7), "wrong round"),
    "another client": (_with_value("client", 0), "wrong client"),
    "an unknown value": (_with_value("weight", 1e9), "extra part"),
    "nothing": (_empty, "malformed"),
}


@pytest.mark.parametrize("name", SPOILT)
def test_a_bad_answer_is_an_absent_row_with_a_reason(name: str, tmp_path: Path) -> None:
    spoil, reason = SPOILT[name]

    def tamper(client: int, reply: Message) -> Message:
        if client == 1 and reply.metadata.message_type == "train":
            spoil(reply)
        return reply

    grid = DirectGrid(client_apps(), tmp_path / "m", tamper=tamper)
    run = run_on_grid(grid, experiment(plain(), 1), build_model, tmp_path / "run", QUICK)
    (record,) = run.federation.records
    assert record.arrived == (0, 2)
    assert reasons(record) == {1: reason}
    twin = simulated(plain(), link=fl.ScriptedLink(((0, 2),)))
    list(twin.train(1))
    assert torch.equal(run.federation.params, twin.params)
