"""Augmentation: keyed, inside the training step, the same from every engine."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import vmap

import fairlead as fl
from fairlead.errors import ClashError, FieldError
from fairlead.models.augmentation import InputPipeline
from fairlead.models.base import ExampleShape

IMAGES = torch.arange(2 * 2 * 3 * 4, dtype=torch.float64).reshape(2, 2, 3, 4) + 1.0
"""Two images of two channels, three rows and four columns, no pixel of which is 0."""


def noise(number: int) -> Tensor:
    return torch.tensor(number, dtype=torch.int64)


class TestRandomCrop:
    @pytest.mark.parametrize("shift", [(-1, -1), (-1, 0), (0, 1), (1, 1), (0, 0)])
    def test_padding_and_cutting(self, shift: tuple[int, int]) -> None:
        """out[y, x] = in[y + dy, x + dx]: cutting at (1 + dy, 1 + dx) after a border of one."""
        dy, dx = shift
        uniform = torch.tensor([[(1 + dy + 0.5) / 3, (1 + dx + 0.5) / 3], [0.5, 0.5]], dtype=torch.float64)
        padded = torch.nn.functional.pad(IMAGES, (1, 1, 1, 1))
        cropped = fl.RandomCrop(padding=1).apply(IMAGES, uniform)
        assert torch.equal(cropped[0], padded[0, :, 1 + dy : 4 + dy, 1 + dx : 5 + dx])
        assert torch.equal(cropped[1], IMAGES[1])

    def test_all_shifts_are_equally_likely(self) -> None:
        """900 images, 9 shifts: each 100 times on average, with deviation √(900·1/9·8/9) = 9.4."""
        images = torch.zeros(900, 3, 3, dtype=torch.float64)
        images[:, 1, 1] = 1.0
        cropped = InputPipeline((fl.RandomCrop(padding=1),)).apply(images, noise(7), torch.float64)
        counts = Counter(cropped.reshape(900, 9).argmax(1).tolist())
        assert sorted(counts) == list(range(9))
        assert max(abs(count - 100) for count in counts.values()) < 4 * 9.4

    def test_a_border_wider_than_the_image(self) -> None:
        cropped = fl.RandomCrop(padding=9).apply(IMAGES, torch.zeros(2, 2))
        assert not bool(cropped.any())

    def test_no_padding_is_no_change(self) -> None:
        cropped = InputPipeline((fl.RandomCrop(padding=0),)).apply(IMAGES, noise(1), torch.float64)
        assert torch.equal(cropped, IMAGES)


class TestHorizontalFlip:
    def test_columns_are_mirrored(self) -> None:
        flipped = fl.HorizontalFlip(0.5).apply(IMAGES, torch.tensor([[0.49], [0.5]]))
        assert flipped[0, 0, 0].tolist() == [4.0, 3.0, 2.0, 1.0]
        assert torch.equal(flipped[1], IMAGES[1])

    @pytest.mark.parametrize(
        ("probability", "low", "high"), [(0.0, 0, 0), (0.3, 240, 360), (1.0, 1000, 1000)]
    )
    def test_as_often_as_asked(self, probability: float, low: int, high: int) -> None:
        """Of 1000, 300 with deviation √210 = 14.5 for probability 0.3."""
        images = torch.tensor([[[1.0, 0.0]]]).expand(1000, 1, 2)
        pipeline = InputPipeline((fl.HorizontalFlip(probability),))
        flipped = int(pipeline.apply(images, noise(3), torch.float32)[:, 0, 1].sum())
        assert low <= flipped <= high


class TestNormalize:
    def test_channels_and_columns(self) -> None:
        out = fl.Normalize((1.0, 13.0), (2.0, 4.0)).apply(IMAGES, torch.zeros(2, 0))
        assert torch.equal(out[:, 0], (IMAGES[:, 0] - 1) / 2)
        assert torch.equal(out[:, 1], (IMAGES[:, 1] - 13) / 4)
        table = torch.tensor([[1.0, 10.0], [3.0, 30.0]])
        assert fl.Normalize((1.0, 10.0), (2.0, 20.0)).apply(table, torch.zeros(2, 0)).tolist() == [
            [0, 0],
            [1, 1],
        ]
        assert fl.Normalize(1.0, 2.0).apply(table, torch.zeros(2, 0)).tolist() == [[0, 4.5], [1, 14.5]]

    def test_neutral_values(self) -> None:
        assert torch.equal(fl.Normalize(0.0, 1.0).apply(IMAGES, torch.zeros(2, 0)), IMAGES)

    @pytest.mark.filterwarnings("error:Dynamo detected")
    def test_compiles_without_a_warning(self) -> None:
        step = fl.Normalize((1.0, 13.0), (2.0, 4.0))
        compiled = torch.compile(step.apply, backend="eager", fullgraph=True)
        assert torch.equal(compiled(IMAGES, torch.zeros(2, 0)), step.apply(IMAGES, torch.zeros(2, 0)))


class TestPipeline:
    STEPS = (fl.RandomCrop(1), fl.HorizontalFlip(), fl.Normalize((0.5, 0.25), (0.5, 2.0)))

    def test_evaluation_draws_nothing(self) -> None:
        out = InputPipeline(self.STEPS).apply(IMAGES, None, torch.float64)
        assert torch.equal(out, InputPipeline(self.STEPS[2:]).apply(IMAGES, noise(5), torch.float64))

    def test_bytes_are_scaled_first(self) -> None:
        pixels = torch.tensor([[[0, 51], [255, 102]]], dtype=torch.uint8)
        out = InputPipeline((fl.Normalize(0.2, 1.0),)).apply(pixels, None, torch.float64)
        expected = torch.tensor([[[-0.2, 0.0], [0.8, 0.2]]], dtype=torch.float64)
        torch.testing.assert_close(out, expected, rtol=0, atol=1e-15)

    def test_tokens_are_left_alone(self) -> None:
        tokens = torch.tensor([[3, 1]])
        assert InputPipeline().apply(tokens, None, torch.float32) is tokens

    def test_padding_changes_no_example(self) -> None:
        """A batch of five begins as the batch of three with the same key does."""
        images = torch.rand(5, 1, 6, 6, dtype=torch.float64)
        pipeline = InputPipeline((fl.RandomCrop(2), fl.HorizontalFlip()))
        long, short = (pipeline.apply(images[:n], noise(11), torch.float64) for n in (5, 3))
        assert torch.equal(long[:3], short)

    def test_steps_draw_apart_from_each_other(self) -> None:
        """Two flips with one draw each would undo each other were they the same draw."""
        images = torch.tensor([[[1.0, 0.0]]]).expand(200, 1, 2)
        twice = InputPipeline((fl.HorizontalFlip(), fl.HorizontalFlip())).apply(
            images, noise(2), torch.float32
        )
        assert 60 < int(twice[:, 0, 1].sum()) < 140

    def test_many_clients_at_once_on_any_device(self, device: torch.device) -> None:
        """As one client alone on the CPU."""
        keys = torch.tensor([4, -(2**62), 9])
        images = torch.rand(3, 4, 2, 5, 5, dtype=torch.float64)
        pipeline = InputPipeline(self.STEPS)
        together = vmap(lambda own, key: pipeline.apply(own, key, torch.float64))(
            images.to(device), keys.to(device)
        )
        alone = [pipeline.apply(own, key, torch.float64) for own, key in zip(images, keys, strict=True)]
        torch.testing.assert_close(together.cpu(), torch.stack(alone), rtol=0, atol=1e-15)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fl.RandomCrop(-1), "RandomCrop.padding must be a whole number of at least 0, got -1"),
        (
            lambda: fl.HorizontalFlip(1.5),
            "HorizontalFlip.probability must be a finite number of at least 0 and at",
        ),
        (lambda: fl.Normalize(0.0, 0.0), "Normalize.std must be a number above 0 or some, got 0.0"),
        (lambda: fl.Normalize((0.0, float("nan")), 1.0), "Normalize.mean must be a finite number or some"),
        (lambda: fl.Normalize((), 1.0), "Normalize.mean must be a finite number or some"),
    ],
)
def test_settings_out_of_range(make: Any, message: str) -> None:
    with pytest.raises(FieldError, match=message):
        make()


@pytest.mark.parametrize(
    ("step", "shape", "message"),
    [
        (fl.RandomCrop(), (3,), r"RandomCrop needs images.*got inputs of shape \(3,\)"),
        (fl.HorizontalFlip(), (3,), r"HorizontalFlip needs images"),
        (
            fl.Normalize((0.0, 0.0), 1.0),
            (3, 4, 4),
            r"Normalize.mean has 2 numbers, but the inputs have shape",
        ),
    ],
)
def test_inputs_that_do_not_fit(step: fl.Augmentation, shape: tuple[int, ...], message: str) -> None:
    task = fl.Task(fl.LogisticRegression(), augment=(step,))
    with pytest.raises(ClashError, match=message):
        task.build(ExampleShape(shape, 2), fl.Key.from_seed(0))


def federation(
    model: Any,
    engine: Any,
    augment: tuple[fl.Augmentation, ...],
    *,
    shape: tuple[int, ...] = (2, 6, 6),
    **options: Any,
) -> fl.Federation:
    """Five clients of unequal size, so that lanes are refilled and batches padded."""
    generator = torch.Generator().manual_seed(0)
    sizes = (7, 3, 5, 1, 4)
    inputs = [torch.rand(size, *shape, dtype=torch.float64, generator=generator) for size in sizes]
    if options.pop("bytes", False):
        inputs = [(own * 255).to(torch.uint8) for own in inputs]
    targets = [torch.randint(3, (size,), generator=generator) for size in sizes]
    world = fl.SimulatedWorld(
        fl.Task(model, augment=augment),
        fl.ClientData.from_lists(inputs, targets),
        engine=engine,
        lanes=2,
        device=options.pop("device", "cpu"),
        dtype=torch.float64,
    )
    algorithm = options.pop("algorithm", fl.presets.fedavg(lr=0.1, epochs=2, batch_size=3))
    return fl.Federation(algorithm, world, seed=1)


AUGMENTATIONS = [
    (fl.RandomCrop(2),),
    (fl.HorizontalFlip(),),
    (fl.Normalize((0.5, 0.4), (0.25, 0.5)),),
    (fl.RandomCrop(1), fl.HorizontalFlip(0.3), fl.Normalize(0.5, 0.25)),
]
MODELS = [
    pytest.param(fl.MLP(hidden=(5,)), id="dense"),
    pytest.param(fl.MLP(hidden=(5,), dropout=0.3), id="dropout"),
    pytest.param(
        torch.nn.Sequential(
            torch.nn.Conv2d(2, 2, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(32, 3)
        ),
        id="convolutional",
    ),
]


@pytest.mark.parametrize(
    "augment", AUGMENTATIONS, ids=lambda steps: "+".join(type(s).__name__ for s in steps)
)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("as_bytes", [False, True])
def test_engines_agree(
    model: Any, augment: tuple[fl.Augmentation, ...], as_bytes: bool, device: torch.device
) -> None:
    """One client after another on the CPU, or several at once on the device under test."""
    runs = [
        federation(model, engine, augment, bytes=as_bytes, device=where)
        for engine, where in (("loop", "cpu"), ("batched", device))
    ]
    for run in runs:
        assert len(list(run.train(3))) == 3
    torch.testing.assert_close(runs[0].params, runs[1].params.cpu(), rtol=0, atol=1e-12)


def test_control_variates_see_augmented_inputs_alike() -> None:
    """SCAFFOLD's anchor gradient is drawn with a key of its own, the same in every engine."""
    algorithm = fl.presets.scaffold(estimate="anchor", lr=0.1, epochs=1, batch_size=3)
    runs = [
        federation(fl.MLP(hidden=(4,)), e, (fl.RandomCrop(2),), algorithm=algorithm)
        for e in ("loop", "batched")
    ]
    for run in runs:
        assert len(list(run.train(3))) == 3
    torch.testing.assert_close(runs[0].params, runs[1].params, rtol=0, atol=1e-12)


def test_augmentation_changes_training_but_not_evaluation() -> None:
    plain, cropped = (federation(fl.MLP(hidden=(4,)), "loop", steps) for steps in ((), (fl.RandomCrop(2),)))
    assert plain.evaluate() == cropped.evaluate()
    first, second = next(plain.train(1)), next(cropped.train(1))
    assert first.train_loss != second.train_loss


@pytest.mark.parametrize(
    ("augment", "draws"), [((), False), ((fl.Normalize(0.0, 1.0),), False), ((fl.HorizontalFlip(),), True)]
)
def test_an_objective_knows_that_it_draws(augment: tuple[fl.Augmentation, ...], draws: bool) -> None:
    world = federation(fl.MLP(hidden=(4,)), "loop", augment).world
    assert isinstance(world, fl.SimulatedWorld)
    assert world.objective.draws_noise is draws


def test_a_normalized_model_is_the_model_of_normalized_data() -> None:
    """Evaluation too: Normalize(m, s) on x gives the figures of no augmentation on (x − m)/s."""
    inputs = torch.rand(12, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    targets = torch.arange(12) % 2
    mean, std = (0.1, 0.2, 0.3), (2.0, 0.5, 1.0)
    scaled = (inputs - torch.tensor(mean, dtype=torch.float64)) / torch.tensor(std, dtype=torch.float64)
    runs = []
    for augment, values in (((fl.Normalize(mean, std),), inputs), ((), scaled)):
        data = fl.ClientData.from_owners(values, targets, torch.arange(12) % 3, num_clients=3)
        task = fl.Task(fl.MLP(hidden=(4,)), augment=augment)
        run = fl.Federation(
            fl.presets.fedavg(lr=0.5, epochs=1), fl.SimulatedWorld(task, data, dtype=torch.float64)
        )
        assert len(list(run.train(3))) == 3
        runs.append(run.evaluate().loss)
    assert runs[0] == pytest.approx(runs[1], abs=1e-12)


def test_resuming_draws_the_same(tmp_path: Any) -> None:
    whole = federation(fl.MLP(hidden=(4,)), "batched", (fl.RandomCrop(2), fl.HorizontalFlip()))
    assert len(list(whole.train(4))) == 4
    first = federation(fl.MLP(hidden=(4,)), "batched", (fl.RandomCrop(2), fl.HorizontalFlip()))
    assert len(list(first.train(2))) == 2
    first.save(tmp_path / "checkpoint")
    second = federation(fl.MLP(hidden=(4,)), "batched", (fl.RandomCrop(2), fl.HorizontalFlip()))
    second.resume(tmp_path / "checkpoint")
    assert len(list(second.train(2))) == 2
    assert torch.equal(whole.params, second.params)
