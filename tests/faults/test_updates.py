"""Mutated updates at the door of a round: none crashes it, none slips through, each is refused with a reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from time import perf_counter

import numpy as np
import pytest
import torch
from fault_runs import FULL
from mutated_replies import MUTATIONS, RECEIVED, mutated_replies, reply_form, sound_reply

import fairlead as fl
from fairlead.errors import FieldError
from fairlead.experiments.record_io import record_from_line, record_to_line
from fairlead.records import Refusal
from fairlead.reply_checks import Reason, ReceivedUpdate, ReplyLimits, validate_reply

COUNT = 10_000 if FULL else 1_000


def test_every_mutated_update_is_refused_with_its_reason(figure: Callable[[str], None]) -> None:
    """Every mutation knows which reasons are true of it; any other answer would mislead whoever looks for it."""
    refused, seconds = Counter[str](), perf_counter()
    for mutation, reply, form, reasons in mutated_replies(COUNT, seed=0):
        answer = validate_reply(reply, form, received=RECEIVED)
        assert isinstance(answer, Refusal), f"{mutation} was let in: {reply}"
        assert answer.reason in reasons, f"{mutation}: {answer}"
        assert answer.sentence.endswith(".")
        assert len(answer.sentence) < 300
        assert answer.sentence.isprintable(), "a client must not write to a terminal"
        refused[mutation] += 1
    assert sum(refused.values()) == COUNT
    assert refused.keys() == {mutation.__name__ for mutation in MUTATIONS}
    figure(
        f"mutated updates: {COUNT} of {COUNT} refused with a true reason, {len(MUTATIONS)} kinds of fault, "
        f"{perf_counter() - seconds:.1f} s"
    )


def test_sound_updates_are_let_in_bit_by_bit() -> None:
    """A door that refused everything would pass the test above."""
    random = np.random.default_rng(1)
    for _ in range(COUNT // 4):
        form = reply_form(random)
        reply, sent = sound_reply(form, random)
        answer = validate_reply(reply, form, received=RECEIVED)
        assert isinstance(answer, ReceivedUpdate), answer
        assert answer.client == reply.client
        assert (answer.num_steps, answer.num_examples, answer.loss) == tuple(reply.numbers.values())
        assert answer.arrays.keys() == sent.keys()
        for name, values in sent.items():
            assert answer.arrays[name].dtype == form.dtype
            assert answer.arrays[name].shape == form.arrays[name]
            assert answer.arrays[name].numpy().tobytes() == values.tobytes()


def test_a_sender_cannot_speak_for_another_client() -> None:
    """The transport says who sends: 2 may not answer as 5, and is the one named."""
    random = np.random.default_rng(2)
    form = reply_form(random)
    reply, _ = sound_reply(form, random)
    assert isinstance(reply.client, int)
    other = next(client for client in (2, 5, 19) if client != reply.client)
    assert isinstance(validate_reply(reply, form, sender=reply.client), ReceivedUpdate)
    answer = validate_reply(reply, form, sender=other)
    assert isinstance(answer, Refusal)
    assert (answer.client, answer.reason) == (other, Reason.WRONG_CLIENT)


def test_what_was_let_in_cannot_be_changed_by_its_sender() -> None:
    """Tensors own their memory: a transport may reuse its buffers."""
    random = np.random.default_rng(3)
    form = reply_form(random)
    reply, sent = sound_reply(form, random)
    one, other = validate_reply(reply, form), validate_reply(reply, form)
    assert isinstance(one, ReceivedUpdate)
    assert isinstance(other, ReceivedUpdate)
    one.arrays["delta"].fill_(3.0)
    assert torch.equal(other.arrays["delta"], torch.from_numpy(sent["delta"]))


def test_refusals_are_read_back_from_the_lines_of_a_run() -> None:
    refusals = (
        Refusal(3, Reason.DUPLICATE, "Client 3 was refused."),
        Refusal(None, Reason.EXTRA, "Someone."),
    )
    problem = fl.Quadratics(num_clients=2).problem(fl.Key.from_seed(0))
    federation = fl.Federation(fl.presets.fedavg(lr=0.1), fl.SimulatedWorld(problem.task(), problem.data()))
    (record,) = federation.train(1)
    assert record.refused == ()
    kept = replace(record, refused=refusals)
    assert record_from_line(record_to_line(kept)) == kept


@pytest.mark.parametrize(
    ("field", "value"),
    [("max_steps", 0), ("max_examples", 1.5), ("max_entry", float("nan")), ("max_subnormal", 1.1)],
)
def test_limits_are_checked(field: str, value: float) -> None:
    with pytest.raises(FieldError, match=rf"ReplyLimits\.{field} must be"):
        ReplyLimits(**{field: value})  # type: ignore[arg-type]


def test_a_tighter_limit_refuses_more() -> None:
    """The bound on entries is the users' to set: 1e12 unless they know their model."""
    random = np.random.default_rng(4)
    form = reply_form(random)
    reply, sent = sound_reply(form, random)
    largest = max(float(np.abs(values).max(initial=0.0)) for values in sent.values())
    for bound, let_in in ((largest * 1.01, True), (largest * 0.99, False)):
        tight = replace(form, limits=ReplyLimits(max_entry=bound))
        answer = validate_reply(replace(reply, numbers={**reply.numbers, "loss": 0.0}), tight)
        assert isinstance(answer, ReceivedUpdate) == let_in
