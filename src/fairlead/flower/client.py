"""`make_client_app`: a Flower ClientApp from a model and a function that loads a client's data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from fairlead.clients.data import ArrayLike, ClientData
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
from fairlead.worlds.batches import draw_batches, local_steps
from fairlead.worlds.engines.base import LocalJobs, Objective
from fairlead.worlds.engines.loop import LoopEngine
from fairlead.worlds.evaluation import evaluate
from fairlead.worlds.executor import run_jobs, settle_work


def work_locally(
    objective: Objective, question: Question, memory: Vectors, num_steps: int
) -> tuple[Answer, Vectors]:
    """Train on the only client of `objective`: the answer, and the memory to keep if the server uses it."""
    order, sizes, steps = question.order, objective.data.sizes, torch.tensor([num_steps])
    batches = draw_batches(0, int(sizes[0]), num_steps, question.batch_size, question.batches)
    noise = [question.noise] if objective.draws_noise else None
    jobs = LocalJobs(
        clients=[question.client],
        steps=local_steps(order.solver, order.round, [batches], noise),
        anchor=order.anchor,
        buffers=order.buffers,
        shared=order.shared,
        memory={name: vector[None] for name, vector in memory.items()},
    )
    returns = run_jobs(LoopEngine(), objective, jobs, torch.tensor([0]), sizes)
    effective_steps = order.solver.effective_steps(steps, order.round)
    result = settle_work(order, jobs.memory, steps, effective_steps, returns)
    answer = Answer(
        client=question.client,
        round=order.round,
        num_steps=num_steps,
        num_examples=int(sizes[0]),
        loss=float(returns.loss[0]),
        delta=result.delta[0],
        buffers=returns.buffers[0],
        messages={name: upload[0] for name, upload in result.message.items()},
    )
    return answer, {name: row[0] for name, row in result.memory.items()}


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
        needed = sum(lengths.values()) * question.order.anchor.element_size()
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
        order = question.order
        solver, dim = order.solver, len(order.anchor)
        lengths = {name: solver.memory_dim(name, dim) for name in solver.memory_names}
        self.limits.check(question, lengths)
        data = self._examples(self.get_data, context)
        model = self._model()
        objective = Objective.build(model, self.task.loss_function(), data)
        most = question.num_steps if self.capacity is None else max(self.capacity(context), 1)
        num_steps = min(question.num_steps, most)
        memory = ClientMemory.of(self._folder(context), question.run, question.client)
        with memory.claimed(question.attempt, order.round):
            memory.forget_old_runs(self.limits.runs, remembers=bool(lengths))
            base = memory.read(question.base, lengths, order.anchor)
            answer, remembered = work_locally(objective, question, base, num_steps)
            if lengths:
                memory.write(question.version, remembered, base=question.base)
        return answer.to_records()

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
