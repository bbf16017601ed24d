"""`make_client_app`: a Flower ClientApp from a model and a function that loads a client's data."""

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
    Introduction,
    ModelForm,
    Question,
    RequestError,
    answer,
    metrics_reply,
    read_evaluation_request,
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
from fairlead.worlds.executor import finish_work, run_jobs


def work_locally(
    objective: Objective, question: Question, memory: Vectors, num_steps: int
) -> tuple[RecordDict, Vectors]:
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
    result = finish_work(order, jobs.memory, steps, effective_steps, returns)
    content = answer(
        result.delta[0],
        returns.buffers[0],
        {name: upload[0] for name, upload in result.message.items()},
        client=question.client,
        round=order.round,
        num_steps=num_steps,
        num_examples=int(sizes[0]),
        loss=float(returns.loss[0]),
    )
    return content, {name: row[0] for name, row in result.memory.items()}


Examples = tuple[ArrayLike, ArrayLike]
"""Inputs and targets, one row per example."""
GetData = Callable[[Context], Examples]


@dataclass(frozen=True)
class ClientLimits:
    """The most that a client does for its server in one round; it refuses larger requests."""

    steps: int = 100_000
    batch_size: int = 65_536
    examples: int = 2**28
    """Steps times batch size: the batches are drawn beforehand, at eight bytes per example."""
    memory_bytes: int = 8 * 2**30
    """Size of what corrections keep on this client's disk."""
    runs: int = 8
    """Runs whose memory stays on this client's disk; a new run replaces the one idle for longest."""

    def __post_init__(self) -> None:
        for field in ("steps", "batch_size", "examples", "memory_bytes", "runs"):
            require_integer(self, field, at_least=1)

    def check(self, question: Question, lengths: dict[str, int]) -> None:
        """Refuse a question that asks for too much."""
        steps, batch_size = question.num_steps, question.batch_size
        needed = sum(lengths.values()) * question.order.anchor.element_size()
        for reason, asked, least, most, unit in (
            ("too many steps", steps, 1, self.steps, "local steps"),
            ("batch too large", batch_size, 1, self.batch_size, "examples a batch"),
            ("too many examples", steps * batch_size, 1, self.examples, "examples a round"),
            ("memory too large", needed, 0, self.memory_bytes, "bytes of memory"),
        ):
            if not least <= asked <= most:
                raise RequestError(reason, f"{least} to {most} {unit} are allowed, got {asked}.")


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
    """A ClientApp that does the local work of any fairlead method, within its `limits`.

    `build_model` makes the same module as on the server. `get_data` loads this client's inputs and targets;
    `get_test_data` loads those for evaluation (default: the training data). The node config says which client a node
    is, as `client-id` or `partition-id`. `capacity` returns the most local steps that a weak client takes: it then
    does fewer than asked, and reports how many. Methods such as SCAFFOLD keep memory on the client, under `folder`
    (default: `memory-folder` of the node config, or else `.fairlead/clients` in the home directory). `device` is one
    of the client's machine.
    """
    place = usable_device("make_client_app", device)
    allowed, task = limits or ClientLimits(), Task(build_model(), loss, metrics)
    app = ClientApp()

    def examples(load: GetData, context: Context) -> ClientData:
        inputs, targets = load(context)
        return ClientData.from_lists([inputs], [targets]).to(place, dtype)

    def model() -> FlatModule:
        assert isinstance(task.model, nn.Module)
        return FlatModule(task.model).to(place, dtype)

    def form() -> ModelForm:
        return ModelForm.of(model(), dtype)

    @app.query()
    @_replying
    def introduce(content: RecordDict, context: Context) -> RecordDict:
        size = len(examples(get_data, context).inputs)
        return Introduction(client_of(context), size, form().digest).to_records()

    @app.train()
    @_replying
    def train(content: RecordDict, context: Context) -> RecordDict:
        question = Question.from_records(content, form(), place)
        if question.client != client_of(context):
            raise RequestError("wrong client", f"This node is not client {question.client}.")
        order = question.order
        lengths = {n: order.solver.memory_dim(n, len(order.anchor)) for n in order.solver.memory_names}
        allowed.check(question, lengths)
        objective = Objective.build(model(), task.loss_function(), examples(get_data, context))
        most = question.num_steps if capacity is None else max(capacity(context), 1)
        chosen = folder or context.node_config.get("memory-folder") or Path.home() / ".fairlead" / "clients"
        memory = ClientMemory.of(Path(str(chosen)), question.run, question.client)
        with memory.claimed(question.attempt, order.round):
            memory.forget_old_runs(allowed.runs, remembers=bool(lengths))
            base = memory.read(question.base, lengths, order.anchor)
            reply, remembered = work_locally(objective, question, base, min(question.num_steps, most))
            if lengths:
                memory.write(question.version, remembered, base=question.base)
        return reply

    @app.evaluate()
    @_replying
    def evaluate_model(content: RecordDict, context: Context) -> RecordDict:
        params, buffers, on_training_data = read_evaluation_request(content, form(), place)
        data = examples(get_data if on_training_data else get_test_data or get_data, context)
        one = torch.ones(1, dtype=torch.float64)
        found = evaluate(model(), task, params, buffers, train=data, test=None, weights=one, per_client=False)
        return metrics_reply(client_of(context), len(data.inputs), {"loss": found.loss, **found.metrics})

    return app


def client_of(context: Context) -> int:
    """The client at a node, by the node's own configuration."""
    for name in ("client-id", "partition-id"):
        value = context.node_config.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    raise FieldError(
        "The node config must say which client this node is: start it with --node-config 'client-id=0'."
    )


def _replying(act: Callable[[RecordDict, Context], RecordDict]) -> Callable[[Message, Context], Message]:
    """A handler of messages that replies with a refusal instead of failing."""

    def handle(message: Message, context: Context) -> Message:
        try:
            content = act(message.content, context)
        except RequestError as refused:
            content = refusal(refused.reason, str(refused))
        except FairleadError as error:
            content = refusal("failed", str(error))
        return Message(content, reply_to=message)

    return handle
