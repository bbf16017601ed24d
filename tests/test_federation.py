"""`Federation`: training, evaluation and what is refused before it starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import fairlead as fl
from fairlead.errors import ClashError, FieldError


def digits_like(sizes: tuple[int, ...], seed: int) -> fl.ClientData:
    draw = torch.Generator().manual_seed(seed)
    return fl.ClientData.from_lists(
        [torch.randn((n, 4), generator=draw, dtype=torch.float64) for n in sizes],
        [torch.randint(0, 3, (n,), generator=draw) for n in sizes],
    )


TRAIN, TEST = digits_like((5, 0, 8, 3), 0), digits_like((40,), 1)


def federation(test: fl.ClientData | None = None, weights: object = "examples") -> fl.Federation:
    torch.manual_seed(0)
    task = fl.Task(nn.Linear(4, 3).double())
    world = fl.SimulatedWorld(task, TRAIN, test=test, weights=weights, dtype=torch.float64)  # type: ignore[arg-type]
    return fl.Federation(fl.presets.fedavg(lr=0.1), world)


def figures(data: fl.ClientData, params: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss and accuracy of each example by hand."""
    weight, bias = params[:12].view(3, 4), params[12:]
    scores = data.inputs @ weight.T + bias
    losses = scores.logsumexp(1) - scores[torch.arange(len(scores)), data.targets]
    return losses, (scores.argmax(1) == data.targets).double()


def test_evaluation_on_a_test_set_is_a_mean_over_its_examples() -> None:
    run = federation(TEST)
    losses, hits = figures(TEST, run.params)
    found = run.evaluate()
    assert found.loss == pytest.approx(float(losses.mean()), rel=1e-12)
    assert found.metrics == {"accuracy": pytest.approx(float(hits.mean()))}
    assert found.client_loss is None


def test_evaluation_without_a_test_set_is_the_objective() -> None:
    """Σ ω_i F_i with ω = (½, 0, ¼, ¼), the mean of means and not the mean over all examples."""
    run = federation(weights=[2, 0, 1, 1])
    losses, _ = figures(TRAIN, run.params)
    means = [float(losses[TRAIN.rows_of(client)].mean()) for client in (0, 2, 3)]
    assert run.evaluate().loss == pytest.approx(0.5 * means[0] + 0.25 * means[1] + 0.25 * means[2])


def test_evaluation_per_client_is_on_its_own_data() -> None:
    run = federation(TEST)
    losses, hits = figures(TRAIN, run.params)
    found = run.evaluate(per_client=True)
    assert found.client_loss is not None
    for client in (0, 2, 3):
        rows = TRAIN.rows_of(client)
        assert found.client_loss[client] == pytest.approx(float(losses[rows].mean()))
        assert found.client_metrics["accuracy"][client] == pytest.approx(float(hits[rows].mean()))
    assert found.client_loss[1] != found.client_loss[1], "a client without examples has no figure"


def test_evaluation_per_client_uses_a_test_set_divided_among_them() -> None:
    divided = digits_like((4, 2, 3, 6), 2)
    run = federation(divided)
    losses, _ = figures(divided, run.params)
    found = run.evaluate(per_client=True)
    assert found.client_loss == pytest.approx([float(losses[divided.rows_of(c)].mean()) for c in range(4)])
    assert found.loss == pytest.approx(float(losses.mean()))


def test_large_test_sets_are_evaluated_in_pieces() -> None:
    large = digits_like((5000,), 3)
    run = federation(large)
    losses, _ = figures(large, run.params)
    assert run.evaluate().loss == pytest.approx(float(losses.mean()), rel=1e-12)


def test_evaluation_every_k_rounds_and_after_the_last() -> None:
    run = federation(TEST)
    evaluated = [record.round for record in run.train(5, evaluate_every=2) if record.evaluation]
    assert evaluated == [1, 3, 4]
    assert [record.evaluation for record in run.train(2)] == [None, None]
    assert [record.round for record in run.records] == list(range(7))


def test_evaluation_does_not_change_a_run() -> None:
    plain, watched = federation(TEST), federation(TEST)
    list(plain.train(3))
    list(watched.train(3, evaluate_every=1, per_client=True))
    assert torch.equal(plain.params, watched.params)


def test_evaluated_records_describe_the_model_after_the_round() -> None:
    run = federation(TEST)
    (record,) = run.train(1, evaluate_every=1)
    assert record.evaluation == run.evaluate()


@pytest.mark.parametrize("name", ["rounds", "evaluate_every", "gradients_every"])
def test_negative_counts_are_refused_at_once(name: str) -> None:
    asked: dict[str, Any] = {"rounds": 3, name: -1}
    with pytest.raises(
        FieldError, match=rf"Federation\.train\.{name} must be a whole number of at least 0, got -1\."
    ):
        federation().train(**asked)


def test_no_rounds_are_no_rounds() -> None:
    run = federation()
    assert list(run.train(0, evaluate_every=1)) == []
    assert run.state.round == 0


def test_stopping_in_between_leaves_a_state_to_go_on_from() -> None:
    stopped, whole = federation(), federation()
    for record in stopped.train(10):
        if record.round == 3:
            break
    list(stopped.train(2))
    list(whole.train(6))
    assert torch.equal(stopped.params, whole.params)


def test_seeds_decide_the_start_and_the_cohorts() -> None:
    problem = fl.Quadratics(num_clients=10).problem(fl.Key.from_seed(0))
    world = fl.SimulatedWorld(problem.task(), problem.data())
    algorithm = fl.presets.fedavg(lr=0.1, cohort_size=3)
    asked = [[r.asked for r in fl.Federation(algorithm, world, seed).train(5)] for seed in (0, 0, 1)]
    assert asked[0] == asked[1]
    assert asked[0] != asked[2]
    digits = fl.Digits(num_clients=3).load(fl.Key.from_seed(0))
    model = fl.SimulatedWorld(fl.Task(fl.MLP(hidden=(4,))), digits.train)
    starts = [fl.Federation(algorithm, model, seed).params for seed in (0, 0, 1)]
    assert torch.equal(starts[0], starts[1])
    assert not torch.equal(starts[0], starts[2])


def test_methods_meet_the_same_work_links_and_cohorts() -> None:
    """Comparisons under one seed differ by the method alone."""
    problem = fl.Quadratics(num_clients=10).problem(fl.Key.from_seed(0))
    world = fl.SimulatedWorld(
        problem.task(), problem.data(), work=fl.RandomSteps(1, 9), link=fl.BernoulliLink(0.5)
    )
    seen = []
    for preset in (fl.presets.fedavg, fl.presets.fednova, fl.presets.scaffold):
        run = fl.Federation(preset(lr=0.01, cohort_size=4), world, seed=2)
        seen.append([(r.asked, r.arrived, r.num_steps) for r in run.train(5)])
    assert seen[0] == seen[1] == seen[2]


def test_parts_that_need_arrival_rates_are_refused_where_none_are_known() -> None:
    problem = fl.Quadratics(num_clients=2).problem(fl.Key.from_seed(0))
    world = fl.SimulatedWorld(problem.task(), problem.data(), link=fl.ScriptedLink(((0,), (1,))))
    algorithm = fl.Algorithm(fl.LocalSolver(fl.SGD(0.1)), aggregator=fl.CommunicationAware())
    with pytest.raises(ClashError, match="CommunicationAware needs the arrival rates"):
        fl.Federation(algorithm, world)


def test_a_cohort_larger_than_the_population_is_refused() -> None:
    with pytest.raises(
        FieldError, match=r"cohort_size must be at most 3, the number of clients with positive"
    ):
        fl.Federation(fl.presets.fedavg(lr=0.1, cohort_size=4), federation().world)


def test_a_federation_made_without_rounds_must_be_told_them() -> None:
    with pytest.raises(FieldError, match=r"Federation\.train needs `rounds`, because none was set"):
        federation().train()


def test_training_without_a_loop_trains_when_the_federation_is_used() -> None:
    """Whatever is asked of it: the rounds have run, and are those of a loop."""
    looped = run_of()
    records = list(looped.train(4))
    asks: list[Callable[[fl.Federation], object]] = [
        lambda run: run.records,
        lambda run: run.state,
        lambda run: run.model(),
        lambda run: run.evaluate(),
        lambda run: run.consistency(),
        lambda run: run.train(0),
    ]
    for ask in asks:
        run = run_of()
        run.train(1)
        run.train(3)
        ask(run)
        assert run.records == records
        assert torch.equal(run.params, looped.params)


def test_a_loop_runs_a_round_at_a_time_and_may_stop() -> None:
    run = run_of()
    for record in run.train(5):
        assert run.state.round == record.round + 1 == len(run.records)
        if record.round == 1:
            break
    assert run.state.round == 2
    training = run.train(2)
    assert repr(training).startswith("<2 rounds")
    assert [record.round for record in training] == [2, 3]


def run_of() -> fl.Federation:
    problem = fl.Quadratics(num_clients=3).problem(0)
    return fl.Federation(
        fl.presets.scaffold(lr=0.1, steps=2), fl.SimulatedWorld(problem.task(), problem.data())
    )
