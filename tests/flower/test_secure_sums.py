"""Secure aggregation on Flower: the server learns the sums of a round and no client's own vectors."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from direct_grid import FIRST_NODE, DirectGrid
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.secure_aggregation.crypto.shamir import combine_shares
from flwr.common.secure_aggregation.crypto.symmetric_encryption import generate_shared_key
from flwr.supercore.primitives.asymmetric import generate_key_pairs
from small_federation import QUICK, SIZES, asking, build_model, client_apps, experiment, get_data
from torch import nn

import fairlead as fl
from fairlead.errors import ClashError
from fairlead.flower import RoundRules, make_client_app
from fairlead.flower.messages import RequestError
from fairlead.flower.secure_sums import STAGES, STEP, SecureSum, SumGroup, flat_sums, hide, reply_in_stage
from fairlead.flower.server import run_on_grid
from fairlead.records import Refusal, RoundRecord

ALL = ((0, 1, 2),)
SOME = ((0, 1, 2), (0, 2), (1, 2))
LOCAL: dict[str, Any] = {"lr": 0.1, "epochs": 2, "batch_size": 5}


def normed_model() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))


def private() -> fl.Algorithm:
    solver = fl.LocalSolver(fl.SGD(0.1), steps=3, batch_size=5)
    privacy = fl.ClientPrivacy(clip=0.05, noise_multiplier=1.0, delta=1e-3)
    return fl.Algorithm(
        solver, fl.UniformWithoutReplacement(3), fl.WeightedMean(over="asked"), privacy=privacy
    )


METHODS: dict[str, tuple[fl.Algorithm, Callable[[], nn.Module]]] = {
    "fedavg": (asking(fl.presets.fedavg(**LOCAL), SOME), build_model),
    "fednova": (asking(fl.presets.fednova(momentum=0.9, **LOCAL), SOME), normed_model),
    "scaffold": (asking(fl.presets.scaffold(**LOCAL), ALL), build_model),
    "scaffold, equal work": (asking(fl.presets.scaffold(lr=0.1, steps=3, batch_size=5), SOME), build_model),
    "feddyn": (asking(fl.presets.feddyn(alpha=0.1, **LOCAL), ALL), build_model),
    "fedcm": (asking(fl.presets.fedcm(alpha=0.3, **LOCAL), ALL), build_model),
    "fedau": (asking(fl.presets.fedau(**LOCAL), SOME), build_model),
    "fedadam": (asking(fl.presets.fedadam(server_lr=0.01, **LOCAL), SOME), build_model),
    "private": (private(), build_model),
}


def run(
    grid: DirectGrid,
    algorithm: fl.Algorithm,
    folder: Path,
    rounds: int = 3,
    model: Callable[[], nn.Module] = build_model,
    rules: RoundRules = QUICK,
) -> fl.Federation:
    asked = replace(experiment(algorithm, rounds), dtype="float64")
    return run_on_grid(grid, asked, model, folder, rules).federation


def apps(model: Callable[[], nn.Module] = build_model) -> dict[int, ClientApp]:
    return dict.fromkeys(range(len(SIZES)), make_client_app(model, get_data, dtype=torch.float64))


def secure(algorithm: fl.Algorithm) -> fl.Algorithm:
    return replace(algorithm, secure_aggregation=True)


@pytest.mark.parametrize("name", METHODS)
def test_secure_sums_give_the_numbers_of_plain_ones(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's step, running statistics, controls and losses agree up to the fixed-point step."""
    # The noise of a private run comes from a secret seed, here the same for both.
    monkeypatch.setattr("fairlead.flower.server._secret_seed", lambda folder: 5)
    algorithm, model = METHODS[name]
    plain = run(DirectGrid(apps(model), tmp_path / "m1"), algorithm, tmp_path / "plain", model=model)
    hidden = run(DirectGrid(apps(model), tmp_path / "m2"), secure(algorithm), tmp_path / "sums", model=model)
    near: dict[str, Any] = {"rtol": 0.0, "atol": 1e5 * STEP if name == "fedadam" else 100 * STEP}
    assert torch.allclose(plain.params, hidden.params, **near)
    assert torch.allclose(plain.state.buffers, hidden.state.buffers, **near)
    assert plain.state.shared.keys() == hidden.state.shared.keys()
    for shared in plain.state.shared:
        assert torch.allclose(plain.state.shared[shared], hidden.state.shared[shared], **near)
    for one, other in zip(plain.records, hidden.records, strict=True):
        assert other.arrived == one.arrived
        assert (
            other.coefficients == one.coefficients or name == "private"
        )  # the server cannot know what is clipped
        assert other.train_loss == pytest.approx(one.train_loss, abs=1e-8)
        assert one.elud is not None
        assert (other.elud, other.coherence, other.drift_norm) == (None, None, None)
        assert other.bytes_up >= 8 * len(other.arrived) * len(hidden.params)


def test_no_reply_holds_an_update(tmp_path: Path) -> None:
    """All that clients send: facts, public keys, ciphertexts, shares, and vectors that look like random bits."""
    single: dict[int, np.ndarray] = {}
    replies: list[Message] = []

    def spy(client: int, reply: Message) -> Message:
        # Evaluations hold the metrics of each client, and are not hidden.
        if reply.metadata.message_type != MessageType.EVALUATE:
            replies.append(reply)
        return reply

    def keep(client: int, reply: Message) -> Message:
        for record in reply.content.array_records.values():
            single[client] = record["delta"].numpy()
        return reply

    algorithm = asking(fl.presets.fedavg(**LOCAL), ALL)
    run(DirectGrid(apps(), tmp_path / "m1", tamper=keep), algorithm, tmp_path / "plain", 1)
    federation = run(DirectGrid(apps(), tmp_path / "m2", tamper=spy), secure(algorithm), tmp_path / "sums", 1)
    arrays = {
        (reply.metadata.src_node_id - FIRST_NODE, name): array.numpy()
        for reply in replies
        for record in reply.content.array_records.values()
        for name, array in record.items()
    }
    assert sorted(arrays) == [(client, "masked") for client in range(3)]
    for client, delta in single.items():
        masked = arrays[client, "masked"]
        assert masked.dtype == np.int64
        # Uniform bits: the mean of 64 n fair coins is 1/2 ± 1/(2√(64 n)), here within five deviations.
        bits = np.unpackbits(masked.view(np.uint8))
        assert abs(bits.mean() - 0.5) < 2.5 / np.sqrt(bits.size)
        # Nor is the vector there in fixed point: the distance is that of random numbers.
        assert np.abs(masked[: delta.size] * STEP - delta).max() > 1e6
        for reply in replies:
            for record in reply.content.config_records.values():
                assert delta.tobytes() not in b"".join(v for v in record.values() if isinstance(v, bytes))
                assert not any(isinstance(value, float) and value != 0 for value in record.values())
    weights = np.array(SIZES) / sum(SIZES)
    total = sum(weight * single[client] for client, weight in enumerate(weights))
    start = federation.world.initial_model(federation.key)[0].numpy()
    assert np.abs(federation.params.numpy() - start - total).max() < 10 * STEP


def test_two_sums_over_two_clients_are_refused_by_both(tmp_path: Path) -> None:
    """FedCM needs Σ p̂_i Δ_i and Σ p̂_i Δ_i/‖a_i‖₁: for two clients with unequal work, both updates follow."""
    algorithm = secure(asking(fl.presets.fedcm(alpha=0.3, **LOCAL), ((0, 2),)))
    (record,) = run(DirectGrid(apps(), tmp_path / "m"), algorithm, tmp_path / "run", 1).records
    assert record.arrived == ()
    assert {refusal.reason for refusal in record.refused} == {"exposed"}


def in_stage(fates: dict[tuple[int, str], str]) -> Callable[[int, Message], str]:
    return lambda client, message: fates.get((client, message.metadata.message_type), "answered")


def step_of(federation: fl.Federation) -> torch.Tensor:
    return federation.params - federation.world.initial_model(federation.key)[0]


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("fate", ["lost", "failed"])
def test_a_client_may_drop_out_in_any_stage(tmp_path: Path, stage: str, fate: str) -> None:
    """The round is that of the clients that stayed; after the masked vector has arrived, all of them."""
    algorithm = asking(fl.presets.fednova(**LOCAL), ALL)
    fates = in_stage({(1, f"{MessageType.TRAIN}.{stage}"): fate})
    hidden = run(DirectGrid(apps(), tmp_path / "m", fates), secure(algorithm), tmp_path / "sums", 1)
    away = {} if stage == "unmask" else {(1, MessageType.TRAIN): "lost"}
    plain = run(DirectGrid(apps(), tmp_path / "m2", in_stage(away)), algorithm, tmp_path / "plain", 1)
    (record,) = hidden.records
    assert record.arrived == plain.records[0].arrived == ((0, 1, 2) if stage == "unmask" else (0, 2))
    assert torch.allclose(step_of(hidden), step_of(plain), rtol=0, atol=100 * STEP)
    refused = {refusal.client: refusal.reason for refusal in record.refused}
    expected = {"lost": "deadline", "failed": "failed"}[fate]
    assert refused == ({} if stage == "unmask" else {1: expected})


@pytest.mark.parametrize("stage", STAGES)
def test_too_many_dropouts_give_an_empty_round_with_the_reason(tmp_path: Path, stage: str) -> None:
    kind = f"{MessageType.TRAIN}.{stage}"
    fates = in_stage({(0, kind): "failed", (1, kind): "failed"})
    algorithm = secure(asking(fl.presets.fedavg(**LOCAL), ALL))
    federation = run(DirectGrid(apps(), tmp_path / "m", fates), algorithm, tmp_path / "run", 1)
    (record,) = federation.records
    assert record.arrived == ()
    assert not bool(step_of(federation).any())
    told = [refusal.sentence for refusal in record.refused if refusal.reason == "no secure sum"]
    sentence = (
        f"Round 1 is void: 1 of 3 clients finished the stage {stage} of the secure sum, and 2 are needed."
    )
    assert set(told) == {sentence}


def test_a_run_continues_after_a_void_round_and_remembers_only_what_counted(tmp_path: Path) -> None:
    """SCAFFOLD: the controls of a void round are not committed, so the next one starts from those before."""
    rounds: list[int] = []

    def fate(client: int, message: Message) -> str:
        if message.metadata.message_type == "train.mask" and message.metadata.group_id == "1":
            rounds.append(1)
            return "failed"
        return "answered"

    algorithm = asking(fl.presets.scaffold(**LOCAL), ALL)
    hidden = run(DirectGrid(apps(), tmp_path / "m", fate), secure(algorithm), tmp_path / "sums", 3)
    lossy = in_stage({})

    def lost(client: int, message: Message) -> str:
        train = message.metadata.message_type == MessageType.TRAIN
        return "failed" if train and message.metadata.group_id == "1" else lossy(client, message)

    plain = run(DirectGrid(apps(), tmp_path / "m2", lost), algorithm, tmp_path / "plain", 3)
    assert [record.arrived for record in hidden.records] == [(0, 1, 2), (), (0, 1, 2)]
    assert rounds
    assert torch.allclose(hidden.params, plain.params, rtol=0, atol=1000 * STEP)


def test_a_round_that_a_new_server_repeats_shows_no_single_update(tmp_path: Path) -> None:
    """The first server learns the sum of all, and dies; the sum of two in the same round would show the third."""
    algorithm, folder = secure(asking(fl.presets.fedavg(**LOCAL), ALL)), tmp_path / "run"

    def lost(client: int, message: Message) -> str:
        if message.metadata.message_type == "train.unmask" and message.metadata.group_id == "1":
            raise ConnectionError("The server dies.")
        return "answered"

    grid = DirectGrid(apps(), tmp_path / "m", lost)
    with pytest.raises(ConnectionError):
        run(grid, algorithm, folder)
    grid.fate = lambda client, message: "answered"
    records = run(grid, algorithm, folder).records
    assert [record.arrived for record in records] == [(0, 1, 2), (), (0, 1, 2)]
    assert {refusal.reason for refusal in records[1].refused} == {"twice"}
    assert "Client 0 refused: Its update of round 2 may be in a sum already." in {
        refusal.sentence for refusal in records[1].refused
    }


def test_one_client_alone_is_never_uncovered(tmp_path: Path) -> None:
    algorithm = secure(asking(fl.presets.fedavg(**LOCAL), ((1,),)))
    (record,) = run(DirectGrid(apps(), tmp_path / "m"), algorithm, tmp_path / "run", 1).records
    assert record.arrived == ()
    assert record.refused[0].sentence.startswith("Round 1 is void: 1 of 1 clients")


def test_late_updates_clash_with_secure_sums(tmp_path: Path) -> None:
    rules = replace(QUICK, late="use")
    with pytest.raises(ClashError, match='late="use"'):
        run(DirectGrid(apps(), tmp_path / "m"), secure(METHODS["fedavg"][0]), tmp_path / "run", rules=rules)


@dataclass(frozen=True)
class _WeightsFromNeighbors(fl.LinearAggregator):
    """Coefficients that change in other ways than by a common factor if a client is missing."""

    def coefficients(self, updates: fl.ClientUpdates, conditions: fl.Conditions) -> torch.Tensor:
        return torch.arange(1, len(updates) + 1, dtype=torch.float64) ** len(updates)


def test_weights_that_dropouts_change_void_the_round(tmp_path: Path) -> None:
    algorithm = replace(METHODS["fedavg"][0], aggregator=_WeightsFromNeighbors(), secure_aggregation=True)
    fates = in_stage({(0, "train.mask"): "failed"})
    whole = run(DirectGrid(apps(), tmp_path / "m"), algorithm, tmp_path / "whole", 1)
    assert whole.records[0].coefficients == (1.0, 8.0, 27.0)
    (record,) = run(DirectGrid(apps(), tmp_path / "m", fates), algorithm, tmp_path / "run", 1).records
    assert record.arrived == ()
    assert record.refused[-1].sentence == "Round 1 is void: its weights changed when clients dropped out."


# The protocol by itself, with nine clients.

COUNT, SECURE = 9, "fairlead.secure"


def vectors_of(client: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(client)
    return {"delta": generator.normal(size=50), "loss": generator.uniform(size=1)}


def started(client: int) -> tuple[RecordDict, tuple[bytes, bytes]]:
    """The state of a client that has trained, and its public keys."""
    from fairlead.flower.messages import Question, answer
    from fairlead.flower.secure_sums import public_keys_in
    from fairlead.records import Broadcast

    own, key = vectors_of(client), fl.Key.from_seed(0)
    nothing = torch.zeros(0)
    order = Broadcast(4, fl.LocalSolver(fl.SGD(0.1)), nothing, nothing, {})
    question = Question("0123456789abcdef", 1, client, 0, 1, 1, key, key, order, hides=True)
    reply = answer(torch.from_numpy(own["delta"]), nothing, {}, client=client, loss=float(own["loss"][0]))
    state = RecordDict()
    hide(reply, question, state)
    keys = public_keys_in(reply)
    assert keys is not None
    return state, keys


def all_started(threshold: int) -> tuple[dict[int, RecordDict], SumGroup]:
    found = {client: started(client) for client in range(COUNT)}
    group = SumGroup(
        *("0123456789abcdef", 1, 4, threshold, tuple(range(COUNT))),
        tuple(keys[0] for _, keys in found.values()),
        tuple(keys[1] for _, keys in found.values()),
    )
    return {client: state for client, (state, _) in found.items()}, group


WEIGHTS = {
    "delta": np.stack([np.linspace(0.1, 0.9, COUNT), np.linspace(-1, 1, COUNT)]),
    "loss": np.full((1, COUNT), 1 / COUNT),
}


def summed(lost: dict[str, set[int]], threshold: int = 6) -> SecureSum:
    states, group = all_started(threshold)

    def exchange(
        stage: str, contents: dict[int, RecordDict], accept: Callable[[int, RecordDict], None]
    ) -> list[Refusal]:
        for client, content in contents.items():
            if client not in lost.get(stage, set()):
                accept(client, reply_in_stage(stage, content, client, states[client], leverage=0.99))
        return []

    total = SecureSum(group, {"delta": 50, "loss": 1})
    total.run(exchange, lambda present: {name: rows[:, present] for name, rows in WEIGHTS.items()})  # type: ignore[arg-type]
    return total


@pytest.mark.parametrize(
    "lost",
    [{}, {"share_keys": {0, 8}}, {"mask": {3, 4, 5}}, {"share_keys": {1}, "mask": {0, 7}, "unmask": set()}],
)
def test_the_sums_are_exact_up_to_the_step(lost: dict[str, set[int]]) -> None:
    """Each of m clients rounds once to a multiple of the step: at most m/2 steps in all."""
    total = summed(lost)
    stayed = sorted(set(range(COUNT)) - lost.get("share_keys", set()) - lost.get("mask", set()))
    assert total.clients == stayed
    for name, rows in WEIGHTS.items():
        true = rows[:, stayed] @ np.stack([vectors_of(client)[name] for client in stayed])
        assert np.abs(total.sums[name] - true).max() <= len(stayed) / 2 * STEP * (1 + 1e-6)
        found = WEIGHTS[name][:, stayed] @ total.rows(name, torch.zeros(1, dtype=torch.float64)).numpy()
        assert np.allclose(found, true, rtol=0, atol=10 * STEP)


@pytest.mark.parametrize("stage", STAGES)
def test_fewer_clients_than_the_threshold_uncover_nothing(stage: str) -> None:
    total = summed({stage: {0, 1, 2, 3}})
    assert total.clients == []
    assert not total.sums
    assert {refusal.reason for refusal in total.refused} == {"no secure sum"}


def test_a_client_refuses_what_would_uncover_it() -> None:
    states, group = all_started(6)
    shares = group.to_records()
    with pytest.raises(RequestError, match="more than half of its 9 clients, got 4"):
        reply_in_stage("share_keys", replace(group, threshold=4).to_records(), 0, states[0], leverage=0.99)
    forged = replace(group, mask_keys=(group.mask_keys[1], *group.mask_keys[1:]))
    for other, wrong, reason in (
        (1, replace(group, round=3), "not this client's latest"),
        (2, replace(group, clients=(*range(8), 2)), "not true to this client"),
    ):
        with pytest.raises(RequestError, match=reason):
            reply_in_stage("share_keys", wrong.to_records(), other, states[other], leverage=0.99)
    state, _ = started(0)
    with pytest.raises(RequestError, match="not true to this client"):
        reply_in_stage("share_keys", forged.to_records(), 0, state, leverage=0.99)
    with pytest.raises(RequestError, match="not at the stage mask"):
        reply_in_stage("mask", shares, 3, states[3], leverage=0.99)
    # A refusal ends the sum for this client: what it kept is gone.
    with pytest.raises(RequestError, match="not at the stage share_keys"):
        reply_in_stage("share_keys", shares, 3, states[3], leverage=0.99)
    assert not states[3].array_records


def test_sums_that_show_one_client_are_refused(tmp_path: Path) -> None:
    """Two sums whose difference is one client's vector, or one sum in which the others have no weight."""
    from fairlead.flower.secure_sums import refuse_exposure

    everyone, others = np.ones(COUNT), np.ones(COUNT)
    others[4] = 0
    refuse_exposure({"delta": everyone[None]}, 0.99)
    for rows in (np.stack([everyone, others]), (everyone - others)[None]):
        with pytest.raises(RequestError, match=r"would show one of 9 clients almost alone \(leverage 1,"):
            refuse_exposure({"delta": rows}, 0.99)

    def weighted(context: Context) -> tuple[torch.Tensor, torch.Tensor]:
        return get_data(context)

    strict = make_client_app(
        build_model, weighted, limits=fl.flower.ClientLimits(leverage=0.5), dtype=torch.float64
    )
    grid = DirectGrid(dict.fromkeys(range(3), strict), tmp_path / "m")
    (record,) = run(grid, secure(METHODS["fedavg"][0]), tmp_path / "run", 1).records
    assert record.arrived == ()
    assert "leverage 0.6745, at most 0.5; ClientLimits.leverage" in record.refused[0].sentence


def test_controls_of_two_clients_with_unequal_work_are_refused(tmp_path: Path) -> None:
    """Σ ω_i (c_i⁺ − c_i) and Σ p_i Δ_i are two sums of updates: two clients follow from them, as solved here."""
    sent: dict[int, dict[str, np.ndarray]] = {}

    def keep(client: int, reply: Message) -> Message:
        for record in reply.content.array_records.values():
            sent[client] = {name: array.numpy() for name, array in record.items()}
        return reply

    algorithm = asking(fl.presets.scaffold(**LOCAL), ((0, 2),))
    plain = run(DirectGrid(apps(), tmp_path / "m1", tamper=keep), algorithm, tmp_path / "plain", 1).records[0]
    shares, steps = np.array([12.0, 20.0]) / 39, np.array(plain.num_steps)
    sums = np.stack(
        [
            sum(share * sent[client]["delta"] for share, client in zip(shares, (0, 2), strict=True)),
            sum(
                share * sent[client]["message.control_change"]
                for share, client in zip(shares, (0, 2), strict=True)
            ),
        ]
    )
    solved = np.linalg.solve(np.stack([shares, -shares / (0.1 * steps)]), sums)
    assert np.allclose(solved, [sent[0]["delta"], sent[2]["delta"]], rtol=0, atol=1e-10)
    (record,) = run(DirectGrid(apps(), tmp_path / "m2"), secure(algorithm), tmp_path / "sums", 1).records
    assert record.arrived == ()
    assert "would show one of 2 clients almost alone (leverage 1" in record.refused[0].sentence


def test_shares_of_one_client_come_once_and_for_one_mask() -> None:
    """After its answer to unmask a client has nothing left: no second question brings the other share."""
    states, group = all_started(6)
    asked: list[RecordDict] = []

    def exchange(
        stage: str, contents: dict[int, RecordDict], accept: Callable[[int, RecordDict], None]
    ) -> list[Refusal]:
        for client, content in contents.items():
            if stage == "unmask":
                asked.append(content)
            accept(client, reply_in_stage(stage, content, client, states[client], leverage=0.99))
        return []

    total = SecureSum(group, {"delta": 50, "loss": 1})
    total.run(exchange, lambda present: {name: rows[:, present] for name, rows in WEIGHTS.items()})  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="not at the stage unmask"):
        reply_in_stage("unmask", asked[0], 0, states[0], leverage=0.99)
    assert not states[0].config_records
    assert not states[0].array_records


def test_no_lists_of_arrivals_bring_both_secrets_of_a_client() -> None:
    """The server tells half of the clients that client 8 arrived, and the others that it did not."""
    states, group = all_started(6)
    everyone = list(range(COUNT))

    def ask(stage: str, client: int, **values: Any) -> Any:
        content = RecordDict({SECURE: ConfigRecord(values)})
        reply = reply_in_stage(stage, content, client, states[client], leverage=0.99)
        return reply.config_records[SECURE]["shares"] if stage != "mask" else None

    asked = group.to_records().config_records[SECURE]
    sealed = {client: ask("share_keys", client, **asked) for client in everyone}
    text = json.dumps({name: rows.tolist() for name, rows in WEIGHTS.items()})
    for client in everyone:
        shares = [sealed[other][client] for other in everyone]
        ask("mask", client, clients=everyone, weights=text, shares=shares)
    kept = states[8].config_records[SECURE]
    arrived = [ask("unmask", client, clients=everyone)[8] for client in everyone[:4]]
    gone = [ask("unmask", client, clients=everyone[:8])[8] for client in everyone[4:8]]
    with pytest.raises(RequestError, match="clients of the secure sum have changed"):
        ask("unmask", 8, clients=everyone[:8])
    for shares, secret in ((arrived, kept["own_seed"]), (gone, kept["mask_secret"])):
        assert len(shares) == 4
        with suppress(ValueError):
            assert combine_shares(shares) != secret


def test_numbers_beyond_fixed_point_are_refused() -> None:
    for bad in (1e9, float("nan")):
        with pytest.raises(RequestError, match="must be within"):
            flat_sums({"delta": np.ones((1, 2))}, {"delta": np.array([1.0, bad])}, 0, 2)


def test_a_masked_vector_of_another_shape_is_refused(tmp_path: Path) -> None:
    def cut(client: int, reply: Message) -> Message:
        for name, record in reply.content.array_records.items():
            if client == 1:
                reply.content[name] = ArrayRecord({"masked": Array(record["masked"].numpy()[1:])})
        return reply

    grid = DirectGrid(apps(), tmp_path / "m", tamper=cut)
    (record,) = run(grid, secure(METHODS["fedavg"][0]), tmp_path / "run", 1).records
    assert record.arrived == (0, 2)
    assert [refusal.reason for refusal in record.refused] == ["wrong shape"]


def test_a_node_may_send_to_secure_sums_only(tmp_path: Path) -> None:
    class Strict(DirectGrid):
        extra = {"only-sums": True}

    algorithm = METHODS["fedavg"][0]
    (record,) = run(Strict(apps(), tmp_path / "m"), algorithm, tmp_path / "plain", 1).records
    assert record.arrived == ()
    assert {refusal.reason for refusal in record.refused} == {"not secure"}
    (record,) = run(Strict(apps(), tmp_path / "m2"), secure(algorithm), tmp_path / "sums", 1).records
    assert record.arrived == (0, 1, 2)


def test_flower_masks_have_few_seeds() -> None:
    """The reason for masks of our own: Flower folds 44 characters of base64 into 32 bits, of which 4 are always 0."""
    from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen

    ours, theirs = generate_key_pairs(), generate_key_pairs()
    seed = generate_shared_key(ours[0], theirs[1])
    folded = np.bitwise_xor.reduce(np.frombuffer(seed, dtype="<u4"))
    assert len(seed) == 44
    assert folded & 0x80808080 == 0
    guessed = np.random.RandomState(folded).randint(0, 2**32 - 1, 8, dtype=np.int64)
    assert np.array_equal(pseudo_rand_gen(seed, 2**32, [(8,)])[0], guessed)


def test_records_of_secure_rounds_can_be_read_again(tmp_path: Path) -> None:
    from fairlead.experiments.run_folder import load_records

    federation = run(DirectGrid(apps(), tmp_path / "m"), secure(METHODS["fedavg"][0]), tmp_path / "run", 2)
    read: list[RoundRecord] = list(load_records(tmp_path / "run"))
    assert read == list(federation.records)


def test_plain_client_apps_answer_the_same_messages() -> None:
    """The default app has all stages: secure sums need no app of their own."""
    (app, *_) = client_apps().values()
    assert {f"train.{stage}" for stage in STAGES} <= set(app._registered_funcs)
