"""`make_client_app`: a Flower ClientApp from a model and a function that loads a client's data, with its memory."""

import fcntl
import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from hashlib import sha256
from pathlib import Path

import numpy as np
import torch
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import Mod
from safetensors.torch import load, save
from torch import Tensor, nn

from fairlead.checkpoint.durable_files import write_durably
from fairlead.clients.data import ArrayLike, ClientData
from fairlead.clients.preprocessing import are_names
from fairlead.errors import FairleadError, FieldError, require_integer, require_number
from fairlead.flower import messages, secure_sums
from fairlead.flower.messages import Introduction, ModelForm, Question, RequestError
from fairlead.numerics.rows import home_of
from fairlead.parameters import FlatModule
from fairlead.randomness import Key, seeded_start
from fairlead.records import Broadcast, Vectors
from fairlead.task import AnyMetric, PerExample, Task
from fairlead.worlds.device import Arithmetic, usable_device
from fairlead.worlds.engines.base import LocalReturns, Objective
from fairlead.worlds.engines.loop import LoopEngine
from fairlead.worlds.evaluation import figures_of_one
from fairlead.worlds.executor import (
    ClientBlock,
    Train,
    do_work,
    draw_batches,
    local_steps,
    own_models,
    take_steps,
)

_RUN = re.compile(r"[0-9a-f]{8,64}")
_CONTENT = "*.safetensors"


@dataclass(frozen=True)
class ClientMemory:
    """The memory of one client for one run, in a folder of its own on the client's disk.

    With every question the server names the version of the memory to start from: that of the client's last update that
    it aggregated and checkpointed. The client keeps this version and the one after its new work. If server, link or
    client dies in between, the repeated question therefore gives the same numbers.
    """

    folder: Path

    @staticmethod
    def of(folder: Path, run: str, client: int) -> "ClientMemory":
        """The memory of a client under `folder`; `run` comes from the server and must not lead out of the folder."""
        if not _RUN.fullmatch(run):
            raise RequestError("malformed", "run must be 8 to 64 hexadecimal digits.")
        return ClientMemory(folder / run / f"client-{client}")

    @contextmanager
    def claimed(self, attempt: int, round: int, *, once: bool = False) -> Iterator[None]:
        """Lock the memory during local work, and refuse a question older than the latest.

        A node may still hold a question of a server that died. Work on it would delete memory that the next server
        needs. With `once`, a round is not asked again: two secure sums of the same updates over different clients
        would differ by single ones.
        """
        # Closed to other users: the memory reveals something about the client's data.
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self.folder / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            file = self.folder / "latest.json"
            latest = json.loads(file.read_bytes()) if file.exists() else [0, -1]
            if [attempt, round] < latest:
                raise RequestError(
                    "out of date",
                    f"Round {round + 1} was asked before round {latest[1] + 1}, which this client already knows.",
                )
            if once and round <= latest[1]:
                raise RequestError("twice", f"Its update of round {round + 1} may be in a sum already.")
            write_durably(file, json.dumps([attempt, round]).encode())
            yield

    def forget_old_runs(self, keep: int, *, remembers: bool) -> None:
        """Remove this client's memory of all but the `keep` latest runs that have one.

        This run counts if it `remembers` anything. The marks of as many runs without memory stay too; they never
        replace a memory. If a run resumes after its memory was removed, `read` says so.
        """
        last_work: dict[Path, int] = {}
        for mark in self.folder.parents[1].glob(f"*/{self.folder.name}/latest.json"):
            if mark.parent != self.folder and _RUN.fullmatch(mark.parent.parent.name):
                # Another process of this client may do the same.
                with suppress(FileNotFoundError):
                    last_work[mark.parent] = mark.stat().st_mtime_ns
        newest_first = sorted(last_work, key=lambda memory: last_work[memory], reverse=True)
        with_memory = [memory for memory in newest_first if any(memory.glob(_CONTENT))]
        without = [memory for memory in newest_first if memory not in with_memory]
        for memory in (*with_memory[keep - remembers :], *without[keep:]):
            shutil.rmtree(memory, ignore_errors=True)
            # Fails if another client keeps its memory in the same folder.
            with suppress(OSError):
                memory.parent.rmdir()

    def read(self, version: int, lengths: Mapping[str, int], like: Tensor) -> Vectors:
        """A version with vectors of the given lengths; version 0 is all zeros, and a missing version is an error."""
        if version == 0:
            return {name: like.new_zeros(length) for name, length in lengths.items()}
        content = self._content(version)
        vectors = load(content)
        if {name: tuple(v.shape) for name, v in vectors.items()} != {n: (m,) for n, m in lengths.items()}:
            raise RequestError("memory lost", f"Version {version} of the memory is of another method.")
        return {name: vector.to(like) for name, vector in vectors.items()}

    def write(self, version: int, vectors: Vectors, *, base: int) -> None:
        """Keep a new version and its base, and remove all others."""
        content = save({name: vector.detach().cpu().contiguous() for name, vector in vectors.items()})
        digest = sha256(content).hexdigest()[:32]
        file = self.folder / f"{version}-{digest}.safetensors"
        write_durably(file, content)
        kept = {file, *self._files(base)}
        for stale in self.folder.glob(_CONTENT):
            if stale not in kept:
                stale.unlink()

    def _content(self, version: int) -> bytes:
        for file in self._files(version):
            content = file.read_bytes()
            if file.stem.endswith(sha256(content).hexdigest()[:32]):
                return content
            raise RequestError("memory lost", f"Version {version} of the memory is damaged: {file.name}.")
        raise RequestError("memory lost", f"Version {version} of the memory is not on this client's disk.")

    def _files(self, version: int) -> list[Path]:
        return sorted(self.folder.glob(f"{version}-*.safetensors"))


def _one_client(
    objective: Objective, question: Question, memory: Vectors, num_steps: int
) -> tuple[ClientBlock, Train[Broadcast]]:
    """The only client of `objective`, and its local steps on the batches of a question."""
    steps, batch_size = torch.tensor([num_steps]), torch.tensor([question.batch_size])
    rows = {name: vector[None] for name, vector in memory.items()}
    client = ClientBlock(torch.tensor([question.client]), objective.data.sizes, steps, batch_size, rows)

    def train(order: Broadcast, block: ClientBlock) -> LocalReturns:
        size, own_steps, examples = (int(each) for each in (block.sizes, block.num_steps, block.batch_sizes))
        batches = draw_batches(0, size, own_steps, examples, question.batches)
        noise = [question.noise] if objective.draws_noise else None
        drawn = local_steps(order.solver, order.round, [batches], noise)
        return take_steps(LoopEngine(), objective, order, block, drawn, torch.tensor([0]))

    return client, train


def work_locally(
    objective: Objective, question: Question, memory: Vectors, num_steps: int
) -> tuple[RecordDict, Vectors]:
    """Train on the only client of `objective`: the answer, and the memory to keep if the server uses it."""
    order = question.order
    client, train = _one_client(objective, question, memory, num_steps)
    effective_steps = order.solver.effective_steps(client.num_steps, order.round)
    result, returns = do_work(
        order, client, effective_steps, objective.model, train, lambda _: question.noise
    )
    content = messages.answer(
        result.delta[0] if order.solver.encoder is None else None,
        result.buffers[0],
        {name: upload[0] for name, upload in result.message.items()},
        client=question.client,
        round=order.round,
        num_steps=num_steps,
        num_examples=int(client.sizes[0]),
        loss=float(returns.loss[0]),
    )
    return content, {name: row[0] for name, row in result.memory.items()}


def own_model(objective: Objective, question: Question, memory: Vectors) -> tuple[Tensor, Tensor]:
    """Parameters and running statistics of the model that the only client of `objective` uses itself."""
    client, train = _one_client(objective, question, memory, question.num_steps)
    params, buffers = own_models(question.order, client, objective.model, train)
    return params[0], buffers[0]


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
    summed: int = 2
    """The fewest examples whose sums leave this client for `Preprocessing`: the sum of one is the example itself."""
    leverage: float = 0.99
    """Share of the squared weights of a secure sum that one client may have: with 1 the sum is its own update."""

    def __post_init__(self) -> None:
        require_number(self, "leverage", above=0, at_most=1)
        require_integer(self, "steps", "batch_size", "examples", "memory_bytes", "runs", "summed", at_least=1)

    def check(self, question: Question, lengths: dict[str, int], sizes: Tensor) -> None:
        """Refuse a question that asks for too much of a client with `sizes` (1,) examples."""
        needed, personal = sum(lengths.values()), question.order.solver.personal
        work = [(question.num_steps, question.batch_size)]
        if personal is not None:
            work.append((int(personal.count_steps(sizes)), int(personal.batches(sizes))))
        for reason, asked, least, most, unit in (
            ("too many steps", max(steps for steps, _ in work), 1, self.steps, "local steps"),
            ("batch too large", max(size for _, size in work), 1, self.batch_size, "examples a batch"),
            ("too many examples", sum(n * size for n, size in work), 1, self.examples, "examples a round"),
            (
                "memory too large",
                needed * question.order.anchor.element_size(),
                0,
                self.memory_bytes,
                "bytes of memory",
            ),
        ):
            if not least <= asked <= most:
                raise RequestError(reason, f"{least} to {most} {unit} are allowed, got {asked}.")


def make_client_app(
    build_model: Callable[[], nn.Module],
    get_data: GetData,
    *,
    get_test_data: GetData | None = None,
    holdout: float = 0.0,
    loss: str | PerExample = "cross_entropy",
    metrics: tuple[str | AnyMetric, ...] = ("accuracy",),
    capacity: Callable[[Context], int] | None = None,
    limits: ClientLimits | None = None,
    folder: str | Path | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    mods: Sequence[Mod] = (),
) -> ClientApp:
    """A ClientApp that does the local work of any fairlead method, within its `limits`.

    `build_model` makes the same module as on the server. `get_data` loads this client's inputs and targets;
    `get_test_data` loads those for evaluation; instead of it, the client may hold out a share of its data for them
    (`holdout`, see `ClientData.hold_out`); with neither, training data are used. The node config says which client a
    node is, as `client-id` or `partition-id`. Targets may be names of classes if the spec has
    `preprocessing.classes`; the client then preprocesses all examples as the federation agrees. `capacity` returns
    the most local steps that a weak client takes: it then does fewer than asked, and reports how many. Methods such
    as SCAFFOLD keep memory on the client, under `folder` (default: `memory-folder` of the node config, or else
    `.fairlead/clients` in the home directory). With `only-sums` in its node config, a node sends updates to secure
    sums only. `device` is one of the client's machine. `mods` are Flower's, around every message.
    """
    place = usable_device("make_client_app", device)
    Arithmetic().require_device(place, dtype)
    if holdout and get_test_data is not None:
        raise FieldError("make_client_app takes get_test_data or holdout, not both.")
    with seeded_start(Key.from_seed(0)):
        allowed, task = limits or ClientLimits(), Task(build_model(), loss, metrics)
    app = ClientApp(mods=[*mods])

    def raw(context: Context, *, test: bool = False) -> Examples:
        inputs, targets = ((test and get_test_data) or get_data)(context)
        if not holdout:
            return inputs, targets
        # By their places, because targets may be names of classes.
        places = ClientData.from_lists([np.arange(len(inputs))], [np.arange(len(targets))])
        key = Key.from_seed(0).fold("holdout", client_of(context))
        rows = places.hold_out(holdout, key)[test].inputs

        def own(part: ArrayLike) -> ArrayLike:
            return part[rows] if isinstance(part, Tensor) else np.asarray(part)[rows]

        return own(inputs), own(targets)

    def examples(context: Context, content: RecordDict, *, test: bool = False) -> ClientData:
        inputs, targets = raw(context, test=test)
        agreed = messages.agreement_in(content)
        if agreed is not None:
            inputs, targets = agreed.apply(inputs, targets)
        return ClientData.from_lists([inputs], [targets]).to(place, dtype)

    def model() -> FlatModule:
        assert isinstance(task.model, nn.Module)
        return FlatModule(task.model).to(place, dtype)

    @cache
    def form() -> ModelForm:
        return ModelForm.of(model(), dtype)

    @app.query()
    @_replying
    def introduce(content: RecordDict, context: Context) -> RecordDict:
        inputs, targets = raw(context)
        wanted = messages.read_sums_request(content)
        if wanted is not None:
            if 0 < len(inputs) < allowed.summed:
                few = f"sums of {len(inputs)} examples stay here, at least {allowed.summed} are needed"
                raise RequestError("too few examples", f"{few} (ClientLimits.summed).")
            return messages.sums_reply(client_of(context), wanted[0].sums(inputs, targets, wanted[1]))
        if are_names(targets):
            # They become numbers when clients have agreed on them.
            targets = np.zeros(len(targets))
        size = len(ClientData.from_lists([inputs], [targets]).to(place, dtype).inputs)
        return Introduction(client_of(context), size, form().digest).to_records()

    def question_in(content: RecordDict, context: Context) -> Question:
        question = Question.from_records(content, form(), home_of(place))
        if question.client != client_of(context):
            raise RequestError("wrong client", f"This node is not client {question.client}.")
        return question

    def admit(
        question: Question, content: RecordDict, context: Context
    ) -> tuple[Objective, ClientMemory, dict[str, int]]:
        """The client's objective and memory for a question within the limits, and the lengths of what it remembers."""
        order, data = question.order, examples(context, content)
        lengths = order.solver.memory_dims(len(order.anchor), len(order.buffers))
        allowed.check(question, lengths, data.sizes)
        chosen = folder or context.node_config.get("memory-folder") or Path.home() / ".fairlead" / "clients"
        memory = ClientMemory.of(Path(str(chosen)), question.run, question.client)
        return Objective.build(model(), task.loss_function(), data), memory, lengths

    @app.train()
    @_replying
    def train(content: RecordDict, context: Context) -> RecordDict:
        question = question_in(content, context)
        if context.node_config.get("only-sums") and not question.hides:
            raise RequestError("not secure", "This node sends updates to secure sums only (only-sums).")
        order = question.order
        objective, memory, lengths = admit(question, content, context)
        most = question.num_steps if capacity is None else max(capacity(context), 1)
        with memory.claimed(question.attempt, order.round, once=question.hides):
            memory.forget_old_runs(allowed.runs, remembers=bool(lengths))
            base = memory.read(question.base, lengths, order.anchor)
            reply, remembered = work_locally(objective, question, base, min(question.num_steps, most))
            if lengths:
                memory.write(question.version, remembered, base=question.base)
        if question.hides:
            secure_sums.hide(reply, question, context.state)
        return reply

    def add_securely(stage: str, content: RecordDict, context: Context) -> RecordDict:
        client, kept = client_of(context), context.state
        return secure_sums.reply_in_stage(stage, content, client, kept, leverage=allowed.leverage)

    for stage in secure_sums.STAGES:
        app.train(stage)(_replying(partial(add_securely, stage)))

    @app.evaluate()
    @_replying
    def evaluate_model(content: RecordDict, context: Context) -> RecordDict:
        if messages.asks_for_own_model(content):
            question = question_in(content, context)
            objective, memory, lengths = admit(question, content, context)
            kept = memory.read(question.base, lengths, question.order.anchor)
            params, buffers = own_model(objective, question, kept)
            on_training_data = False
        else:
            params, buffers, on_training_data = messages.read_evaluation_request(content, form(), place)
        data = examples(context, content, test=not on_training_data)
        found = figures_of_one(model(), task, params, buffers, data)
        return messages.metrics_reply(client_of(context), len(data.inputs), found)

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
            content = messages.refusal(refused.reason, str(refused))
        except FairleadError as error:
            content = messages.refusal("failed", str(error))
        return Message(content, reply_to=message)

    return handle
