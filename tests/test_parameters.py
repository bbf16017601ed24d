"""`FlatModule`: any module as a pure function of one vector."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fairlead.parameters import FlatModule


def small() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1, bias=False))


def test_the_vector_holds_parameters_in_the_modules_order() -> None:
    flat = FlatModule(small())
    assert flat.layout == {"0.weight": 6, "0.bias": 3, "1.weight": 3, "1.bias": 3, "2.weight": 3}
    expected = nn.utils.parameters_to_vector(flat.module.parameters())
    assert torch.equal(flat.initial_params(), expected)


def test_unflattening_shares_memory_and_shapes() -> None:
    flat = FlatModule(small())
    params = flat.initial_params()
    named = flat.unflatten(params)
    assert {name: tuple(value.shape) for name, value in named.items()} == {
        "0.weight": (3, 2),
        "0.bias": (3,),
        "1.weight": (3,),
        "1.bias": (3,),
        "2.weight": (1, 3),
    }
    named["0.bias"].fill_(7.0)
    assert params[6:9].tolist() == [7.0] * 3


def test_a_call_is_what_the_module_computes() -> None:
    module = small().eval()
    flat = FlatModule(module)
    flat.module.eval()
    inputs = torch.randn(4, 2)
    outputs = flat.call(flat.initial_params(), flat.initial_buffers(), inputs, None)
    assert torch.equal(outputs, module(inputs))


def test_a_call_leaves_the_module_alone() -> None:
    """Running statistics go into the given buffers, counters nowhere: two clients must not share either."""
    flat = FlatModule(small())
    before = {name: value.clone() for name, value in flat.module.state_dict().items()}
    buffers = flat.initial_buffers()
    flat.module.train()
    flat.call(flat.initial_params() + 1.0, buffers, torch.randn(4, 2), None)
    assert not torch.equal(buffers, flat.initial_buffers())
    after = flat.module.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_frozen_parameters_are_not_in_the_vector() -> None:
    module = small()
    module[0].weight.requires_grad_(False)  # type: ignore[index]
    assert "0.weight" not in FlatModule(module).layout


def test_tied_parameters_stand_in_the_vector_once() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
            self.second.weight = self.first.weight

        def forward(self, inputs: Tensor) -> Tensor:
            twice: Tensor = self.second(self.first(inputs))
            return twice

    flat = FlatModule(Tied())
    assert flat.layout == {"first.weight": 9}
    outputs = flat.call(2.0 * torch.eye(3).flatten(), flat.initial_buffers(), torch.ones(1, 3), None)
    assert outputs.tolist() == [[4.0] * 3]


def test_the_gradient_reaches_every_entry_of_the_vector() -> None:
    flat = FlatModule(nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)))
    params = flat.initial_params().requires_grad_()
    inputs = torch.randn(5, 2)
    (gradient,) = torch.autograd.grad(flat.call(params, None, inputs, None).sum(), params)
    flat.module(inputs).sum().backward()
    expected = torch.cat([parameter.grad.flatten() for parameter in flat.module.parameters()])  # type: ignore[union-attr]
    assert torch.allclose(gradient, expected)


def test_a_copy_in_another_type_leaves_the_original() -> None:
    flat = FlatModule(small())
    other = flat.to(torch.device("cpu"), torch.float64)
    assert other.initial_params().dtype == torch.float64
    assert flat.initial_params().dtype == torch.float32
    assert other.initial_buffers().dtype == torch.float64
    assert other.initial_params().tolist() == pytest.approx(flat.initial_params().tolist())


def test_the_users_module_is_never_touched() -> None:
    module = small()
    flat = FlatModule(module)
    flat.module.train()
    flat.call(flat.initial_params(), flat.initial_buffers(), torch.randn(4, 2), None)
    assert flat.module is not module
    assert int(module[1].num_batches_tracked) == 0  # type: ignore[index]
