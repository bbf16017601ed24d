"""Unequal links: rates by z-tests, Markov chains, deadlines, over-selection and combinations."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import fairlead as fl
from fairlead.conditions.links import (
    BernoulliLink,
    DriftingLink,
    LinkModel,
    MarkovLink,
    PerfectLink,
    ScriptedLink,
    SinusoidalLink,
    TwoGroupLink,
    UniformBernoulliLink,
)
from fairlead.conditions.timed_links import CombinedLink, DeadlineLink, FirstArrivals, OutageLink
from fairlead.errors import ClashError, FieldError

KEY = fl.Key.from_seed(11)
Z = 5.0
N = 20_000
EVERYONE = torch.arange(N)
DURATIONS = torch.linspace(0.0, 10.0, N, dtype=torch.float64)

LINKS = [
    BernoulliLink(0.3),
    UniformBernoulliLink(0.1, 0.9),
    TwoGroupLink(N // 2),
    SinusoidalLink(0.4, 0.3, 7.0),
    DriftingLink(0.1, 0.8, rounds=10),
    MarkovLink(0.2, 0.1),
    MarkovLink(0.2, 0.1, forecast="previous"),
    MarkovLink(0.9, 0.8),
    OutageLink(0.2),
    CombinedLink((BernoulliLink(0.3), BernoulliLink(0.3), OutageLink(0.1))),
    CombinedLink((MarkovLink(0.2, 0.1), DeadlineLink(5.0))),
]


@pytest.mark.parametrize("link", LINKS, ids=repr)
@pytest.mark.parametrize("round", [0, 3, 12])
def test_arrivals_happen_at_the_rate_that_is_told(link: LinkModel, round: int) -> None:
    """Σ(arrived − rate) over 20,000 clients has mean 0 and variance Σ rate(1 − rate)."""
    rate = link.arrival(EVERYONE, round, KEY, DURATIONS)
    assert rate is not None
    arrived = link.arrives(EVERYONE, round, KEY, DURATIONS).double()
    for half in (slice(0, N // 2), slice(N // 2, N)):
        variance = float((rate * (1 - rate))[half].sum())
        assert abs(float((arrived - rate)[half].sum())) <= Z * math.sqrt(variance)


@pytest.mark.parametrize("link", LINKS, ids=repr)
def test_arrival_is_a_function_of_key_round_and_client(link: LinkModel) -> None:
    some = torch.tensor([5, 4, 19_999, 77])
    for round in (0, 9):
        whole = link.arrives(EVERYONE, round, KEY, DURATIONS)
        assert torch.equal(whole[some], link.arrives(some, round, KEY, DURATIONS[some]))
        rates = link.arrival(EVERYONE, round, KEY, DURATIONS)
        part = link.arrival(some, round, KEY, DURATIONS[some])
        assert rates is not None
        assert part is not None
        assert torch.equal(rates[some], part)


def test_bernoulli_rounds_are_independent() -> None:
    """Of two rounds with q = 0.3, a share 0.7² arrives in both."""
    first, second = (BernoulliLink(0.3).arrives(EVERYONE, round, KEY) for round in (4, 5))
    share = 0.49
    z = (float((first & second).double().mean()) - share) / math.sqrt(share * (1 - share) / N)
    assert abs(z) < Z


def test_two_groups_draw_their_rates_in_every_round() -> None:
    link = TwoGroupLink(N // 2, first=(0.4, 0.5), second=(0.0, 0.1))
    rates = [link.arrival(EVERYONE, round, KEY) for round in (0, 1)]
    for rate in rates:
        bad, good = rate[: N // 2], rate[N // 2 :]
        assert 0.5 <= float(bad.min()) < float(bad.max()) <= 0.6
        assert 0.9 <= float(good.min()) < float(good.max()) <= 1.0
        # U(0.5, 0.6) has variance 0.01/12.
        assert abs(float(bad.mean()) - 0.55) < Z * math.sqrt(0.01 / 12 / (N // 2))
    assert float((rates[0] == rates[1]).double().mean()) < 0.01


def test_drift_and_waves_follow_their_formulas() -> None:
    clients = torch.arange(3)
    drift = DriftingLink((0.1, 0.5, 0.9), (0.5, 0.5, 0.1), rounds=4)
    told = [drift.arrival(clients, round, KEY).tolist() for round in (0, 1, 4, 100)]
    expected = [[0.9, 0.5, 0.1], [0.8, 0.5, 0.3], [0.5, 0.5, 0.9], [0.5, 0.5, 0.9]]
    assert torch.allclose(torch.tensor(told), torch.tensor(expected))
    wave = SinusoidalLink(0.5, 0.2, period=8.0, phases="common")
    for round in range(9):
        q = 0.5 + 0.2 * math.sin(2 * math.pi * round / 8)
        assert wave.arrival(clients, round, KEY).tolist() == pytest.approx([1 - q] * 3, abs=1e-12)
    drawn = SinusoidalLink(0.5, 0.2, period=8.0).arrival(EVERYONE, 0, KEY)
    # Random phases spread the clients over the whole wave: mean 1 − q, variance amplitude²/2.
    assert abs(float(drawn.mean()) - 0.5) < Z * math.sqrt(0.02 / N)


def forward_chain(link: MarkovLink, clients: Tensor, rounds: int, key: fl.Key) -> list[list[bool]]:
    """The chain as its definition runs it: from round 0 on, one state after another."""
    fail, recover = link.fail, link.recover
    assert isinstance(fail, float)
    assert isinstance(recover, float)
    history: list[list[bool]] = []
    for round in range(rounds):
        draws = key.fold(round).uniform(clients).tolist()
        if round == 0:
            history.append([u < recover / (fail + recover) for u in draws])
        else:
            history.append(
                [u < (1 - fail if up else recover) for u, up in zip(draws, history[-1], strict=True)]
            )
    return history


@pytest.mark.parametrize(
    ("fail", "recover"),
    [(0.2, 0.1), (0.01, 0.02), (0.9, 0.8), (1.0, 1.0), (0.0, 0.3), (0.4, 0.0), (0.5, 0.5)],
)
def test_looking_back_gives_the_forward_chain(fail: float, recover: float) -> None:
    link, clients = MarkovLink(fail, recover), torch.tensor([0, 3, 9, 500, 123456])
    history = forward_chain(link, clients, 60, KEY)
    for round in (59, 0, 1, 30, 2):
        assert link.arrives(clients, round, KEY).tolist() == history[round]
        if round:
            told = MarkovLink(fail, recover, forecast="previous").arrival(clients, round, KEY).tolist()
            assert told == [1 - fail if up else recover for up in history[round - 1]]


def test_links_may_differ_in_what_never_happens() -> None:
    """Client 0 is up for ever and client 1 down for ever."""
    link = MarkovLink((0.0, 0.3), (0.2, 0.0))
    for round in (0, 1, 40):
        assert link.arrives(torch.arange(2), round, KEY).tolist() == [True, False]


def test_markov_links_stay() -> None:
    """P(up at t and t + 1) = π(1 − fail) with π = recover/(fail + recover)."""
    link, up = MarkovLink(0.05, 0.1), 0.1 / 0.15
    first, second = (link.arrives(EVERYONE, round, KEY) for round in (40, 41))
    share = up * 0.95
    z = (float((first & second).double().mean()) - share) / math.sqrt(share * (1 - share) / N)
    assert abs(z) < Z


def test_markov_with_sum_one_is_bernoulli() -> None:
    markov, bernoulli = MarkovLink(0.3, 0.7), BernoulliLink(0.3)
    for round in (0, 1, 50):
        assert torch.equal(markov.arrives(EVERYONE, round, KEY), bernoulli.arrives(EVERYONE, round, KEY))
        assert torch.allclose(markov.arrival(EVERYONE, round, KEY), bernoulli.arrival(EVERYONE, round, KEY))


def test_deadline_arithmetic() -> None:
    """Of 1, 2, 5 and 9 s those up to 5 are in time, and the round lasts 5 s; 1 and 2 alone end it at 2 s."""
    link = DeadlineLink(5.0)
    durations = torch.tensor([1.0, 2.0, 5.0, 9.0], dtype=torch.float64)
    clients = torch.arange(4)
    arrived = link.arrives(clients, 0, KEY, durations)
    assert arrived.tolist() == [True, True, True, False]
    assert link.arrival(clients, 0, KEY, durations).tolist() == [1.0, 1.0, 1.0, 0.0]
    assert link.closes(durations, arrived) == 5.0
    assert link.closes(durations[:2], arrived[:2]) == 2.0
    assert link.closes(durations[:0], arrived[:0]) == 0.0


def test_over_selection_arithmetic() -> None:
    """The first three of 4, 1, 3, 3 and 2 seconds are 1, 2 and the earlier client of the two with 3."""
    link: LinkModel = FirstArrivals(3)
    durations = torch.tensor([4.0, 1.0, 3.0, 3.0, 2.0], dtype=torch.float64)
    clients = torch.tensor([2, 5, 6, 8, 9])
    arrived = link.arrives(clients, 0, KEY, durations)
    assert arrived.tolist() == [False, True, True, False, True]
    assert link.closes(durations, arrived) == 3.0
    assert link.arrival(clients, 0, KEY, durations) is None
    few = link.arrives(clients[:2], 0, KEY, durations[:2])
    assert few.tolist() == [True, True]
    assert link.closes(durations[:2], few) == 4.0


def test_over_selection_counts_what_gets_through() -> None:
    """Client 1, the fastest, is lost: the first two of the others count, and the round ends at 3 s."""
    link = CombinedLink((ScriptedLink(((0, 2, 3),)), FirstArrivals(2)))
    durations = torch.tensor([4.0, 1.0, 2.0, 3.0], dtype=torch.float64)
    arrived = link.arrives(torch.arange(4), 0, KEY, durations)
    assert arrived.tolist() == [False, False, True, True]
    assert link.closes(durations, arrived) == 3.0


def test_the_first_link_to_end_a_round_ends_it() -> None:
    """A deadline of 2.5 s leaves one of two: nobody is waited for beyond it."""
    link = CombinedLink((DeadlineLink(2.5), FirstArrivals(2)))
    durations = torch.tensor([4.0, 2.0, 3.0], dtype=torch.float64)
    arrived = link.arrives(torch.arange(3), 0, KEY, durations)
    assert arrived.tolist() == [False, True, False]
    assert link.closes(durations, arrived) == 2.5
    assert (
        CombinedLink((DeadlineLink(9.0), FirstArrivals(2))).closes(durations, torch.tensor([True] * 3)) == 3.0
    )


def test_a_lost_update_is_known_when_it_would_have_come() -> None:
    durations = torch.tensor([1.0, 7.0], dtype=torch.float64)
    assert BernoulliLink(0.5).closes(durations, torch.tensor([True, False])) == 7.0
    assert PerfectLink().closes(durations[:0], torch.zeros(0, dtype=torch.bool)) == 0.0


def test_combined_links_are_independent() -> None:
    """Two equal links in one combination must not be lost together: 0.7² get through, not 0.7."""
    link = CombinedLink((BernoulliLink(0.3), BernoulliLink(0.3)))
    told = link.arrival(EVERYONE, 0, KEY)
    assert told is not None
    assert torch.allclose(told, torch.full((N,), 0.49, dtype=torch.float64))
    share = float(link.arrives(EVERYONE, 0, KEY).double().mean())
    assert abs(share - 0.49) < Z * math.sqrt(0.49 * 0.51 / N)
    assert CombinedLink((BernoulliLink(0.3), ScriptedLink(((1,),)))).arrival(EVERYONE, 0, KEY) is None


def test_outage_grows_with_time() -> None:
    link = OutageLink((0.0, 0.1, 0.1))
    told = link.arrival(torch.arange(3), 0, KEY, torch.tensor([5.0, 0.0, 10.0], dtype=torch.float64))
    assert told.tolist() == pytest.approx([1.0, 1.0, math.exp(-1.0)])


@pytest.mark.parametrize("link", [DeadlineLink(1.0), FirstArrivals(2), OutageLink(0.1)], ids=repr)
def test_timed_links_need_devices(link: LinkModel) -> None:
    with pytest.raises(ClashError, match=f"{type(link).__name__} needs devices"):
        link.arrives(torch.arange(3), 0, KEY)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: BernoulliLink(1.5), r"BernoulliLink.drop must be probabilities from 0 to 1, got 1.5\."),
        (lambda: BernoulliLink(()), r"BernoulliLink.drop must be probabilities from 0 to 1, got \(\)\."),
        (lambda: BernoulliLink(math.nan), r"BernoulliLink.drop must be probabilities from 0 to 1, got nan\."),
        (
            lambda: TwoGroupLink(3, first=(0.5, 0.4)),
            r"TwoGroupLink.first must be two ascending numbers from 0 to 1, got \(0.5, 0.4\)\.",
        ),
        (
            lambda: SinusoidalLink(0.1, 0.2, 5.0),
            r"SinusoidalLink.amplitude must keep drop ± amplitude between 0 and 1, got 0.2 with drop from",
        ),
        (lambda: SinusoidalLink(0.5, 0.2, 0.0), r"SinusoidalLink.period must be a finite number above 0"),
        (lambda: DriftingLink(0.1, 2.0, 5), r"DriftingLink.end must be probabilities from 0 to 1, got 2.0\."),
        (lambda: MarkovLink(0.0, 0.0), r"MarkovLink.fail and MarkovLink.recover must not both be 0"),
        (lambda: MarkovLink((0.1, 0.0), 0.0), r"MarkovLink.fail and MarkovLink.recover must not both be 0"),
        (lambda: DeadlineLink(0.0), r"DeadlineLink.seconds must be a finite number above 0, got 0.0\."),
        (lambda: FirstArrivals(0), r"FirstArrivals.count must be a whole number of at least 1, got 0\."),
        (lambda: CombinedLink(()), r"CombinedLink.links must be a list of at least one link, got \(\)\."),
        (lambda: CombinedLink(("a",)), r"CombinedLink.links must be a LinkModel, got 'a'\."),  # type: ignore[arg-type]
        (
            lambda: CombinedLink((CombinedLink((FirstArrivals(2),)), BernoulliLink(0.1))),
            r"CombinedLink.links must have FirstArrivals last",
        ),
        (lambda: OutageLink(-1.0), r"OutageLink.rate must be numbers from 0 to 1e\+30, got -1.0\."),
    ],
)
def test_wrong_fields_are_refused(build: Callable[[], LinkModel], message: str) -> None:
    with pytest.raises(FieldError, match=message):
        build()


def test_lists_shorter_than_the_population_are_refused_by_name() -> None:
    with pytest.raises(
        FieldError, match=r"BernoulliLink.drop must have one entry per client, got 2 for client 4"
    ):
        BernoulliLink((0.1, 0.2)).arrives(torch.tensor([0, 4]), 0, KEY)
