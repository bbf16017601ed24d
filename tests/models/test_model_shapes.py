"""What every model takes and gives: shapes, published sizes, refusals, starts and specs."""

from __future__ import annotations

import pytest
import torch
from model_cases import SMALL, Case, every_model
from torch import nn

from fairlead.component import parts_of
from fairlead.errors import ClashError, FieldError
from fairlead.models.base import MLP, ExampleShape, Model
from fairlead.models.convolutional import (
    VGG11,
    DropoutCNN,
    FedAvgCNN,
    FiveLayerCNN,
    ImageModel,
    PooledCNN,
    ResNet18,
    UnpooledCNN,
)
from fairlead.models.sequences import CharLSTM, TextTransformer, WindowCNN
from fairlead.plain_data import from_plain, to_plain
from fairlead.randomness import Key
from fairlead.references import reference
from fairlead.task import Task

MNIST, EMNIST = ExampleShape((28, 28), 10), ExampleShape((28, 28), 62)
CIFAR10, CIFAR100 = ExampleShape((3, 32, 32), 10), ExampleShape((3, 32, 32), 100)
GREY_32 = ExampleShape((1, 32, 32), 10)
IMAGE_MODELS: list[ImageModel] = [
    FedAvgCNN(hidden=8),
    FedAvgCNN(hidden=8, padding="valid"),
    FiveLayerCNN(),
    DropoutCNN(),
    PooledCNN(channels=(4, 4, 4)),
    UnpooledCNN(),
    VGG11(width=1),
    ResNet18(groups=1, width=2),
]


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_every_model_has_a_case() -> None:
    found = parts_of(Model)  # type: ignore[type-abstract]
    own = {name for name, cls in found.items() if cls.__module__.startswith("fairlead.models")}
    # Any module of a user, without a form of its own; folders, which `test_hugging_face` makes.
    own -= {"InMemoryModel", "HuggingFaceModel"}
    assert own == {type(case.model).__name__ for case in SMALL.values()}


@every_model
def test_outputs_have_a_row_per_example(case: Case) -> None:
    module = case.model.build(case.shape)
    inputs = case.inputs(4, torch.Generator().manual_seed(0))
    outputs = module(inputs.float() if inputs.is_floating_point() else inputs)
    positions = case.shape.inputs if case.every_position else ()
    assert outputs.shape == (4, *positions, case.shape.outputs)
    assert bool(torch.isfinite(outputs).all())


@pytest.mark.parametrize(
    ("model", "shape", "published"),
    [
        (MLP(hidden=(200, 200)), MNIST, 199_210),
        (FedAvgCNN(), MNIST, 1_663_370),
        (FedAvgCNN(), CIFAR10, 2_156_490),
        (FedAvgCNN(hidden=2048), EMNIST, 6_603_710),
        (FedAvgCNN(padding="valid"), MNIST, 582_026),
        (FedAvgCNN(padding="valid"), CIFAR10, 878_538),
        (FiveLayerCNN(), CIFAR10, 122_570),
        (DropoutCNN(), CIFAR10, 1_626_442),
        (DropoutCNN(), EMNIST, 1_206_590),
        (PooledCNN(), CIFAR10, 551_786),
        (PooledCNN(hidden=(512, 256), dropout=0.2), CIFAR10, 1_193_130),
        (PooledCNN((10, 20), (50,), 0.2), MNIST, 51_480),
        (UnpooledCNN(), MNIST, 786_480),
        (VGG11(), CIFAR10, 9_750_922),
        (ResNet18(), CIFAR10, 11_173_962),
        (ResNet18(), CIFAR100, 11_220_132),
        (WindowCNN(), ExampleShape((64, 3), 6), 11_206),
        (CharLSTM(vocabulary=80), ExampleShape((80,), 80, 80), 817_872),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Model) else None,
)
def test_published_sizes(model: Model, shape: ExampleShape, published: int) -> None:
    """2NN, FedAvg CNN: McMahan et al.; 6,603,710 and 817,872: LEAF; 1,626,442: pfl; 1,206,590: Reddi et al.

    The others are sums over the layers that the papers list, in (fan-in + 1)·fan-out for each: see the
    docstrings. Convolutions of VGG-11 (9 inputs a channel): 1,792 + 73,856 + 295,168 + 590,080 + 1,180,160 +
    3·2,359,808 = 9,220,480. ResNet-18 with biasless convolutions and two numbers a normalized channel: stem
    1,728 + 128; stages 147,968 + 525,568 + 2,099,712 + 8,393,728; linear 513·classes.
    """
    with torch.device("meta"):
        assert count(model.build(shape)) == published


def test_text_transformer_has_the_size_of_gpt2() -> None:
    """GPT-2 (small) has 124,439,808 parameters and no separate readout."""
    model = TextTransformer(width=768, heads=12, layers=12, pooling="none")
    with torch.device("meta"):
        module = model.build(ExampleShape((1024,), 50257, 50257))
    assert count(module) - 769 * 50257 == 124_439_808


@pytest.mark.parametrize("model", IMAGE_MODELS, ids=repr)
def test_gray_images_need_no_channel_axis(model: ImageModel) -> None:
    """(height, width) and (1, height, width) make the same model and the same outputs."""
    torch.manual_seed(0)
    with_axis = model.build(GREY_32).eval()
    torch.manual_seed(0)
    without = model.build(ExampleShape((32, 32), 10)).eval()
    images = torch.randn(2, 32, 32)
    torch.testing.assert_close(without(images), with_axis(images[:, None]), rtol=0, atol=0)


@pytest.mark.parametrize("model", IMAGE_MODELS, ids=repr)
def test_smallest_images_are_taken_and_smaller_ones_refused(model: ImageModel) -> None:
    smallest = max(model.smallest_side, 5)
    module = model.build(ExampleShape((3, smallest, smallest + 1), 4)).eval()
    assert module(torch.randn(2, 3, smallest, smallest + 1)).shape == (2, 4)
    below = ExampleShape((3, smallest, smallest - 1), 4)
    with pytest.raises(ClashError, match=rf"^{type(model).__name__} needs images of at least {smallest} x "):
        model.build(below)


@pytest.mark.parametrize("model", [m for m in IMAGE_MODELS if m.smallest_side > 5], ids=repr)
def test_smallest_side_is_not_larger_than_need_be(model: ImageModel) -> None:
    """One pixel less, and the layers themselves have nothing to work on."""
    side = model.smallest_side - 1
    with pytest.raises(RuntimeError, match=r"Output size is too small|Kernel size can't be greater"):
        nn.Sequential(*model.features(1))(torch.randn(1, 1, side, side))


@pytest.mark.parametrize("inputs", [(32, 32, 3), (8, 8), (64,), (2, 3, 32, 32)])
def test_what_is_no_image_is_refused_in_a_sentence(inputs: tuple[int, ...]) -> None:
    with pytest.raises(ClashError) as error:
        VGG11().build(ExampleShape(inputs, 10))
    assert str(error.value) == (
        "VGG11 needs images of at least 32 x 32 pixels, as (height, width) or (channels, height, width), got "
        f"inputs of shape {inputs}."
    )


@pytest.mark.parametrize("inputs", [(3, 3), (64,), (3, 64, 3)])
def test_what_is_no_window_is_refused_in_a_sentence(inputs: tuple[int, ...]) -> None:
    with pytest.raises(ClashError) as error:
        WindowCNN().build(ExampleShape(inputs, 6))
    assert str(error.value) == (
        f"WindowCNN needs windows of at least 4 moments, as (time, sensors), got inputs of shape {inputs}."
    )


@every_model
def test_the_start_depends_on_the_seed_alone(case: Case) -> None:
    task = Task(case.model)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = task.build(case.shape, Key.from_seed(0)).initial_params()
    torch.rand(7)
    torch.set_rng_state(before)
    again = task.build(case.shape, Key.from_seed(0)).initial_params()
    other = task.build(case.shape, Key.from_seed(1)).initial_params()
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), before)


@every_model
def test_specs_round_trip(case: Case) -> None:
    plain = to_plain(case.model, Model)
    assert plain["type"] == type(case.model).__name__
    assert from_plain(Model, plain) == case.model  # type: ignore[type-abstract]


def test_every_reference_is_known() -> None:
    keys = {key for case in SMALL.values() for key in case.model.references}
    assert all(reference(key).key == key for key in keys)


@pytest.mark.parametrize(
    ("model", "fields", "message"),
    [
        (FedAvgCNN, {"hidden": 0}, "FedAvgCNN.hidden must be a whole number of at least 1, got 0."),
        (FedAvgCNN, {"padding": "full"}, "FedAvgCNN.padding must be one of 'same', 'valid', got 'full'."),
        (FiveLayerCNN, {"hidden": 1.5}, "FiveLayerCNN.hidden must be a whole number of at least 1, got 1.5."),
        (PooledCNN, {"channels": []}, "PooledCNN.channels must be at least one number of channels, got ()."),
        (PooledCNN, {"hidden": [8, 0]}, "PooledCNN.hidden must be widths of at least 1, got (8, 0)."),
        (PooledCNN, {"hidden": 8}, "PooledCNN.hidden must be widths of at least 1, got 8."),
        (
            UnpooledCNN,
            {"dropout": 1.0},
            "UnpooledCNN.dropout must be a finite number of at least 0 and below 1, got 1.0.",
        ),
        (VGG11, {"width": 0}, "VGG11.width must be a whole number of at least 1, got 0."),
        (ResNet18, {"width": 48}, "ResNet18.width must be a multiple of groups=32, got 48."),
        (
            WindowCNN,
            {"kernel": 4},
            "WindowCNN.kernel must be odd, so that a window keeps its length, got 4.",
        ),
        (CharLSTM, {"layers": 0}, "CharLSTM.layers must be a whole number of at least 1, got 0."),
        (CharLSTM, {"padding": -1}, "CharLSTM.padding must be a whole number of at least 0, got -1."),
        (
            TextTransformer,
            {"pooling": "max"},
            "TextTransformer.pooling must be one of 'last', 'mean', 'none', got 'max'.",
        ),
        (TextTransformer, {"heads": 3}, "TextTransformer.width must be a multiple of heads=3, got 128."),
    ],
)
def test_bad_fields_are_refused_in_a_sentence(
    model: type[Model], fields: dict[str, object], message: str
) -> None:
    with pytest.raises(FieldError) as error:
        model(**fields)
    assert str(error.value) == message


def test_the_unpooled_cnn_is_affine_and_the_pooled_one_is_not() -> None:
    """f(x) + f(y) = f(x + y) + f(0) for affine f; dropout is off outside training."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn((2, 1, 8, 8), generator=generator, dtype=torch.float64)
    gaps = []
    for model in (UnpooledCNN(), PooledCNN((10, 20), (50,), 0.2)):
        torch.manual_seed(0)
        f = model.build(ExampleShape((8, 8), 4)).double().eval()
        gaps.append(float((f(x) + f(y) - f(x + y) - f(torch.zeros_like(x))).detach().abs().max()))
    assert gaps[0] < 1e-14
    assert gaps[1] > 1e-3


def test_starts_are_those_of_the_published_code() -> None:
    """He's normal and N(0, 0.01²) in the 5-layer CNN, Glorot's uniform in the dropout CNN, no biases."""
    torch.manual_seed(0)
    five, dropout = FiveLayerCNN().build(CIFAR10), DropoutCNN().build(CIFAR10)
    convolutions = [layer for layer in five.modules() if isinstance(layer, nn.Conv2d)]
    for layer in convolutions:
        expected = (2 / (9 * layer.out_channels)) ** 0.5
        assert float(layer.weight.detach().std()) == pytest.approx(expected, rel=0.06)
    hidden = next(layer for layer in five.modules() if isinstance(layer, nn.Linear))
    assert float(hidden.weight.detach().std()) == pytest.approx(0.01, rel=0.02)
    wide = next(layer for layer in dropout.modules() if isinstance(layer, nn.Linear))
    bound = (6 / (14 * 14 * 64 + 128)) ** 0.5
    assert 0.999 * bound < float(wide.weight.detach().abs().max()) <= bound
    for module in (five, dropout):
        biases = [value for name, value in module.named_parameters() if name.endswith("bias")]
        assert biases
        assert all(not bool(bias.any()) for bias in biases)


def test_residual_stages_halve_the_image_and_double_the_channels() -> None:
    module = ResNet18(groups=2, width=4).build(ExampleShape((3, 32, 32), 10))
    assert isinstance(module, nn.Sequential)
    hidden, seen = torch.randn(1, 3, 32, 32), []
    for layer in module:
        hidden = layer(hidden)
        if type(layer).__name__ == "_Residual":
            seen.append(tuple(hidden.shape[1:]))
    assert seen == [(4, 32, 32)] * 2 + [(8, 16, 16)] * 2 + [(16, 8, 8)] * 2 + [(32, 4, 4)] * 2
