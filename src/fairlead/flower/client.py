"""`make_client_app`: a Flower ClientApp from a model and a function that loads a client's data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from fairlead.clients.data import ArrayLike, ClientData
from fairlead.corrections.base import LocalOutcome
from fairlead.errors import FairleadError, FieldError, require_integer
from fairlead.flower.client_memory import ClientMemory
from fairlead.flower.messages import (
    Answer,
    Introduction,
    ModelForm,
    Question,
    RequestError,
    marks,
    open_examination,
    refusal,
)
from fairlead.parameters import FlatModule
from fairlead.records import Vectors
from fairlead.task import PerExample, Task
from fairlead.worlds.arithmetic import usable_device
from fairlead.worlds.batches import draw_batches
from fairlead.worlds.engines.base import LocalJobs, LocalSteps, Objective
from fairlead.worlds.engines.loop import LoopEngine
from fairlead.worlds.evaluation import evaluate


class LocalResult(NamedTuple):
    """What a client sends, and what it keeps if the server takes it."""

    answer: Answer
    memory: Vectors


def work_locally(objective: Objective, question: Question, memory: Vectors, num_steps: int) -> LocalResult:
    """Train on the only client of `objective`, `num_steps` long; the same bits as the loop engine's."""
    solver, round, size = question.solver, question.round, int(objective.data.sizes[0])
    words = np.zeros(num_steps + 1, dtype=np.uint64)
    if objective.draws_noise:
        words = question.noise.words(np.arange(num_steps + 1))
    rows = {name: vector[None] for name, vector in memory.items()}
    jobs = LocalJobs(
        clients=[question.client],
        steps=LocalSteps(
            solver=solver,
            batches=[draw_batches(0, size, num_steps, question.batch_size, question.batches)],
            noise=[torch.from_numpy(words.view(np.int64))],
            step_lrs=solver.step_lrs(round, num_steps),
        ),
        anchor=question.anchor,
        buffers=question.buffers,
        shared=question.shared,
        memory=rows,
    )
    results = LoopEngine().run(objective, jobs)
    anchor_gradient = None
    if solver.needs_anchor_gradient:
        key = jobs.steps.noise[0][-1].to(question.anchor.device) if objective.draws_noise else None
        anchor_gradient = objective.full_gradient(question.anchor, question.buffers, 0, key)[None]
    steps = torch.tensor([num_steps])
    norms = solver.accumulation(steps, round)
    outcome = LocalOutcome(
        round=round,
        anchor=question.anchor,
        delta=results.delta,
        num_steps=steps.to(results.delta)[:, None],
        effective_steps=None if norms is None else norms.l1.to(results.delta)[:, None],
        lr=solver.optimizer.lr_at(round),
        anchor_gradient=anchor_gradient,
    )
    aftermath = solver.settle(outcome, rows, question.shared)
    answer = Answer(
        client=question.client,
        round=round,
        num_steps=num_steps,
        num_examples=size,
        loss=float(results.loss[0]),
        delta=aftermath.delta[0],
        buffers=results.buffers[0],
        messages={name: upload[0] for name, upload in aftermath.message.items()},
    )
    return LocalResult(answer, {name: row[0] for name, row in aftermath.memory.items()})


Examples = tuple[ArrayLike, ArrayLike]
"""Inputs and targets, one row per example."""
GetData = Callable[[Context], Examples]


@dataclass(frozen=True)
class ClientLimits:
    """The most that a client does for its server in one round; what goes beyond is refused."""

    steps: int = 100_000
    batch_size: int = 65_536
    examples: int = 2**28
    """Steps times batch size: which examples are used is drawn beforehand, eight bytes for each."""
    memory_bytes: int = 8 * 2**30
    """Of what its corrections keep on this client's disk."""
    runs: int = 8
    """Whose memory is kept on this client's disk: the one longest without work is removed for a new one."""

    def __post_init__(self) -> None:
        for field in ("steps", "batch_size", "examples", "memory_bytes", "runs"):
            require_integer(self, field, at_least=1)

    def check(self, question: Question, lengths: dict[str, int]) -> None:
        """Refuse a question that asks for too much."""
        if not 1 <= question.num_steps <= self.steps:
            raise RequestError(
                "too many steps", f"1 to {self.steps} local steps are allowed, got {question.num_steps}."
            )
        if not 1 <= question.batch_size <= self.batch_size:
            raise RequestError(
                "batch too large",
                f"Batches of 1 to {self.batch_size} are allowed, got {question.batch_size}.",
            )
        examples = question.num_steps * question.batch_size
        if examples > self.examples:
            raise RequestError(
                "too many examples",
                f"{self.examples} examples a round are allowed, and {examples} are asked for.",
            )
        needed = sum(lengths.values()) * question.anchor.element_size()
        if needed > self.memory_bytes:
            raise RequestError(
                "memory too large",
                f"{self.memory_bytes} bytes may be remembered, and {needed} are asked for.",
            )


def make_client_app(
    build_model: Callable[[], nn.Module],
    get_data: GetData,
    *,
    get_test_data: GetData | None = None,
    loss: str | PerExample = "cross_entropy",
    metrics: tuple[str | PerExample, ...] = ("accuracy",),
    capacity: Callable[[Context], int] | None = None,
    limits: ClientLimits | None = None,
    folder: str | Path | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> ClientApp:
    """A ClientApp that does whatever a fairlead server asks within its `limits`.

    `build_model` makes the module that the server makes too; `get_data` loads this client's inputs and targets,
    `get_test_data` those that it is examined on (its training data without). Which client a node is stands in
    its node config, as `client-id` or `partition-id`. `capacity` says how many local steps the client takes at
    most, where it is weaker than others: it then does less than asked, and says so. What methods such as
    SCAFFOLD remember is kept under `folder`, by default `memory-folder` of the node config, else
    `.fairlead/clients` in the home directory. `device` is one of the client's machine.
    """
    checked_device = usable_device("make_client_app", device)
    side = _ClientSide(
        Task(build_model(), loss, metrics),
        get_data,
        get_test_data,
        capacity,
        limits or ClientLimits(),
        folder,
        dtype,
        checked_device,
    )
    app = ClientApp()
    app.query()(side.answering(side.introduce))
    app.train()(side.answering(side.train))
    app.evaluate()(side.answering(side.examine))
    return app


def client_of(context: Context) -> int:
    """Which client a node is, as its own configuration says."""
    for name in ("client-id", "partition-id"):
        value = context.node_config.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    raise FieldError(
        "The node config must say which client this node is: start it with --node-config 'client-id=0'."
    )


@dataclass(frozen=True, eq=False)
class _ClientSide:
    task: Task
    get_data: GetData
    get_test_data: GetData | None
    capacity: Callable[[Context], int] | None
    limits: ClientLimits
    folder: str | Path | None
    dtype: torch.dtype
    device: torch.device

    def answering(
        self, act: Callable[[RecordDict, Context], RecordDict]
    ) -> Callable[[Message, Context], Message]:
        """A handler of messages that says no in words instead of failing."""

        def handle(message: Message, context: Context) -> Message:
            try:
                content = act(message.content, context)
            except RequestError as refused:
                content = refusal(refused.reason, str(refused))
            except FairleadError as error:
                content = refusal("failed", str(error))
            return Message(content, reply_to=message)

        return handle

    def introduce(self, content: RecordDict, context: Context) -> RecordDict:
        size = len(self._examples(self.get_data, context).inputs)
        return Introduction(client_of(context), size, self._form().digest).to_records()

    def train(self, content: RecordDict, context: Context) -> RecordDict:
        question = Question.from_records(content, self._form()).on(self.device)
        if question.client != client_of(context):
            raise RequestError("wrong client", f"This node is not client {question.client}.")
        solver, dim = question.solver, len(question.anchor)
        lengths = {name: solver.memory_dim(name, dim) for name in solver.memory_names}
        self.limits.check(question, lengths)
        data = self._examples(self.get_data, context)
        model = self._model()
        objective = Objective.build(model, self.task.loss_function(), data)
        most = question.num_steps if self.capacity is None else max(self.capacity(context), 1)
        num_steps = min(question.num_steps, most)
        memory = ClientMemory.of(self._folder(context), question.run, question.client)
        with memory.claimed(question.attempt, question.round):
            memory.forget_old_runs(self.limits.runs, remembers=bool(lengths))
            base = memory.read(question.base, lengths, question.anchor)
            result = work_locally(objective, question, base, num_steps)
            if lengths:
                memory.write(question.version, result.memory, base=question.base)
        return result.answer.to_records()

    def examine(self, content: RecordDict, context: Context) -> RecordDict:
        params, buffers, on_training_data = open_examination(content, self._form())
        load = self.get_data if on_training_data or self.get_test_data is None else self.get_test_data
        data = self._examples(load, context)
        params, buffers = params.to(self.device), buffers.to(self.device)
        whole = torch.ones(1, dtype=torch.float64)
        found = evaluate(
            self._model(), self.task, params, buffers, train=data, test=None, weights=whole, per_client=False
        )
        return marks(client_of(context), len(data.inputs), {"loss": found.loss, **found.metrics})

    def _examples(self, load: GetData, context: Context) -> ClientData:
        inputs, targets = load(context)
        return ClientData.from_lists([inputs], [targets]).to(self.device, self.dtype)

    def _model(self) -> FlatModule:
        assert isinstance(self.task.model, nn.Module)
        return FlatModule(self.task.model).to(self.device, self.dtype)

    def _form(self) -> ModelForm:
        return ModelForm.of(self._model(), self.dtype)

    def _folder(self, context: Context) -> Path:
        chosen = self.folder or context.node_config.get("memory-folder")
        return Path(str(chosen)) if chosen else Path.home() / ".fairlead" / "clients"
