"""Feature skew: noise and rotation by client, keyed, applied after dealing."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import Tensor

import fairlead as fl
from fairlead.clients.feature_skew import OwnedRows
from fairlead.errors import ClashError, FieldError

KEY = fl.Key.from_seed(0)


def clients(inputs: Tensor, num_clients: int) -> fl.ClientData:
    """The same inputs for every client."""
    return fl.ClientData.from_lists([inputs] * num_clients, [torch.zeros(len(inputs))] * num_clients)


class TestGaussianNoise:
    def test_levels_rise_by_client(self) -> None:
        """Client i of N adds noise of deviation σ·i/(N − 1): 0, σ/2 and σ for three."""
        data = fl.GaussianNoise(0.4).apply(clients(torch.zeros(4000, 5), 3), KEY)
        deviations = [float(data.inputs[data.rows_of(client)].std()) for client in range(3)]
        assert deviations[0] == 0.0
        # The deviation of n normal draws errs by σ/√(2n): 0.5 % for 20,000.
        assert deviations[1] == pytest.approx(0.2, rel=0.02)
        assert deviations[2] == pytest.approx(0.4, rel=0.02)

    def test_given_levels(self) -> None:
        data = fl.GaussianNoise((0.3, 0.0)).apply(clients(torch.zeros(4000, 5), 2), KEY)
        assert float(data.inputs[data.rows_of(0)].std()) == pytest.approx(0.3, rel=0.02)
        assert not bool(data.inputs[data.rows_of(1)].any())
        with pytest.raises(ClashError, match=r"GaussianNoise.level has 2 numbers for 3 clients"):
            fl.GaussianNoise((0.3, 0.0)).apply(clients(torch.zeros(4, 5), 3), KEY)

    def test_a_clients_noise_is_its_own(self) -> None:
        """It depends on key and client alone: not on how many examples other clients have."""
        skew = fl.GaussianNoise((0.0, 1.0))
        small = fl.ClientData.from_lists([torch.zeros(1, 3), torch.zeros(2, 3)], [[0], [0, 0]])
        large = fl.ClientData.from_lists([torch.zeros(9, 3), torch.zeros(2, 3)], [[0] * 9, [0, 0]])
        own = [skew.apply(data, KEY).inputs[data.rows_of(1)] for data in (small, large)]
        assert torch.equal(own[0], own[1])
        assert not torch.equal(own[0], skew.apply(small, fl.Key.from_seed(1)).inputs[1:])

    def test_noise_is_standard_normal_and_nobody_shares_it(self) -> None:
        """100,000 draws of 10,000 clients: moments within five standard errors, no two clients alike.

        Standard errors of mean, variance and fourth moment of n normal draws: 1/√n, √(2/n), √(96/n). Draws
        next to each other, in a row and from client to client, correlate by at most 5/√n.
        """
        levels = (1.0,) * 10_000
        data = fl.GaussianNoise(levels).apply(clients(torch.zeros(2, 5, dtype=torch.float64), 10_000), KEY)
        draws, n = data.inputs.flatten().numpy(), 100_000
        assert abs(draws.mean()) < 5 / np.sqrt(n)
        assert abs(draws.var() - 1) < 5 * np.sqrt(2 / n)
        assert abs((draws**4).mean() - 3) < 5 * np.sqrt(96 / n)
        for lag in (1, 5, 10):
            assert abs((draws[lag:] * draws[:-lag]).mean()) < 5 / np.sqrt(n - lag)
        assert len(np.unique(draws)) == n

    def test_blocks_do_not_show(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Changing a few rows at a time gives the same as all at once."""
        data = fl.ClientData.from_owners(torch.rand(50, 3), torch.zeros(50), torch.arange(50) % 7, 7)
        whole = fl.GaussianNoise(0.5).apply(data, KEY).inputs
        monkeypatch.setattr("fairlead.clients.feature_skew._VALUES_AT_ONCE", 12)
        assert torch.equal(fl.GaussianNoise(0.5).apply(data, KEY).inputs, whole)

    def test_no_noise_is_no_change(self) -> None:
        data = clients(torch.rand(5, 3), 2)
        assert torch.equal(fl.GaussianNoise(0.0).apply(data, KEY).inputs, data.inputs)

    @pytest.mark.parametrize("level", [-0.1, float("nan"), 1e31, (), (0.1, -1.0)])
    def test_levels_out_of_range(self, level: float) -> None:
        with pytest.raises(
            FieldError, match=r"GaussianNoise.level must be a number from 0 to 1e\+30, or one per"
        ):
            fl.GaussianNoise(level)


class TestRotation:
    def test_right_angles_move_pixels(self) -> None:
        """[[1, 2], [3, 4]] turned counter-clockwise: 2 4 / 1 3, then 4 3 / 2 1, then 3 1 / 4 2."""
        data = fl.Rotation().apply(clients(torch.tensor([[[1.0, 2.0], [3.0, 4.0]]]), 5), KEY)
        assert data.inputs.tolist() == [
            [[1.0, 2.0], [3.0, 4.0]],
            [[2.0, 4.0], [1.0, 3.0]],
            [[4.0, 3.0], [2.0, 1.0]],
            [[3.0, 1.0], [4.0, 2.0]],
            [[1.0, 2.0], [3.0, 4.0]],
        ]

    @pytest.mark.parametrize("angle", [90.0, 180.0, 270.0])
    def test_interpolation_agrees_with_right_angles(self, angle: float) -> None:
        """A ten-millionth of a degree off, the interpolated image is the exact one to seven digits."""
        images = torch.rand(3, 2, 9, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        exact = fl.Rotation((angle,)).apply(clients(images, 1), KEY).inputs
        near = fl.Rotation((angle + 1e-7,)).apply(clients(images, 1), KEY).inputs
        # Towards the edge a turn by δ moves a pixel by up to 6δ, and δ is 2e-9 here.
        torch.testing.assert_close(near, exact, rtol=0, atol=1e-7)

    def test_interpolation_between_pixels(self) -> None:
        """Turned by 45°, a pixel on the axis to the right of the center appears up and to the right of it.

        With a 5 × 5 image and its center at (2, 2), row 2 column 3 goes to (2 − √½, 2 + √½): the four
        pixels around share it, and most of it lies at (1, 3), whose source is 1 − √2 columns off: its
        bilinear weight is (1 − |√2 − 1|)·1.
        """
        image = torch.zeros(1, 5, 5, dtype=torch.float64)
        image[0, 2, 3] = 1.0
        turned = fl.Rotation((45.0,)).apply(clients(image, 1), KEY).inputs[0]
        assert float(turned[1, 3]) == pytest.approx(2 - np.sqrt(2))
        assert int(turned.argmax()) == 1 * 5 + 3

    def test_an_oblong_keeps_its_scale(self) -> None:
        """A dot two rows above the center of a 9 × 5 image turns by 90° to two columns left of it."""
        image = torch.zeros(1, 1, 9, 5, dtype=torch.float64)
        image[0, 0, 2, 2] = 1.0
        turned = fl.Rotation((90.0,)).apply(clients(image, 1), KEY).inputs[0, 0]
        assert turned.shape == (9, 5)
        assert float(turned[4, 0]) == pytest.approx(1.0)
        assert float(turned.sum()) == pytest.approx(1.0)

    def test_many_angles_at_once_are_one_after_another(self) -> None:
        """Exact and interpolated turns side by side, and a client without images."""
        angles = (0.0, 90.0, 33.0, 270.0, 200.5)
        images = torch.rand(12, 1, 6, 6, generator=torch.Generator().manual_seed(0))
        owner = torch.tensor([0, 0, 1, 1, 2, 2, 2, 4, 4, 5, 6, 7])
        data = fl.ClientData.from_owners(images, torch.zeros(12), owner, 8)
        turned = fl.Rotation(angles).apply(data, KEY)
        for client in range(8):
            own = images[owner == client]
            alone = fl.Rotation((angles[client % 5],)).apply(clients(own, 1), KEY).inputs
            torch.testing.assert_close(turned.inputs[turned.rows_of(client)], alone)

    def test_bytes_become_reals(self) -> None:
        data = clients(torch.tensor([[[0, 255], [51, 0]]], dtype=torch.uint8), 1)
        turned = fl.Rotation((180.0,)).apply(data, KEY).inputs
        torch.testing.assert_close(turned, torch.tensor([[[0.0, 0.2], [1.0, 0.0]]]))

    def test_what_is_no_image(self) -> None:
        with pytest.raises(ClashError, match=r"Rotation needs images.*got inputs of shape \(3,\)"):
            fl.Rotation((10.0,)).apply(clients(torch.zeros(2, 3), 1), KEY)
        with pytest.raises(ClashError, match="Rotation needs inputs of real numbers, got token ids"):
            fl.Rotation().apply(clients(torch.zeros(2, 3, dtype=torch.int64), 1), KEY)

    @pytest.mark.parametrize("angles", [(), (float("inf"),), 90.0])
    def test_angles_out_of_range(self, angles: tuple[float, ...]) -> None:
        with pytest.raises(FieldError, match=r"Rotation.angles must be one or more numbers of degrees"):
            fl.Rotation(angles)


@dataclass(frozen=True)
class _Squares(fl.PooledSource):
    """Eight images of two natural clients, with a test set of theirs."""

    own_test: bool = False

    def pool(self) -> fl.Pool:
        images = torch.arange(32.0).reshape(8, 2, 2)
        pool = fl.Pool.from_arrays(images, [0, 1] * 4, ["a", "b"] * 4)
        return pool.hold_out(torch.arange(8) >= 6) if self.own_test else pool

    def default_task(self) -> fl.Task:
        return fl.Task(fl.LogisticRegression())


def test_a_hundred_thousand_clients_change_without_a_call_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is called once per block of rows cannot depend on how many clients share them."""
    calls: list[int] = []
    plain = fl.GaussianNoise.skewed

    def counted(skew: fl.GaussianNoise, rows: OwnedRows, key: fl.Key) -> Tensor:
        calls.append(len(rows.inputs))
        return plain(skew, rows, key)

    monkeypatch.setattr(fl.GaussianNoise, "skewed", counted)
    count = 100_000
    data = fl.ClientData(torch.zeros(count, 2), torch.zeros(count), torch.arange(count + 1))
    assert bool(fl.GaussianNoise(0.1).apply(data, KEY).inputs[1:].all())
    assert calls == [count]


class TestSources:
    def test_skews_apply_in_order_after_dealing(self) -> None:
        plain = _Squares(test_fraction=0.25).load(KEY)
        skewed = _Squares(
            test_fraction=0.25,
            feature_skew=[fl.Rotation((90.0, 0.0)), fl.Rotation((90.0, 0.0))],  # type: ignore[arg-type]
        ).load(KEY)
        assert torch.equal(skewed.train.offsets, plain.train.offsets)
        assert torch.equal(skewed.train.targets, plain.train.targets)
        first, second = (plain.train.inputs[plain.train.rows_of(client)] for client in (0, 1))
        assert torch.equal(skewed.train.inputs[skewed.train.rows_of(0)], first.flip(-1, -2))
        assert torch.equal(skewed.train.inputs[skewed.train.rows_of(1)], second)

    def test_a_common_test_set_stays_a_divided_one_turns(self) -> None:
        skew = (fl.Rotation((90.0, 0.0)),)
        dealt = _Squares(test_fraction=0.25, num_clients=2, partition=fl.IidPartitioner())
        common, plain = replace(dealt, feature_skew=skew).load(KEY).test, dealt.load(KEY).test
        assert common is not None
        assert plain is not None
        assert torch.equal(common.inputs, plain.inputs)
        divided = _Squares(own_test=True, feature_skew=skew).load(KEY).test
        assert divided is not None
        assert divided.inputs[0].tolist() == [[25.0, 27.0], [24.0, 26.0]]
        assert divided.inputs[1].tolist() == [[28.0, 29.0], [30.0, 31.0]]

    @pytest.mark.parametrize("skew", [fl.GaussianNoise(0.3), fl.Rotation((0.0, 30.0))])
    def test_a_deal_and_its_skew_repeat_with_the_key(self, skew: fl.FeatureSkew) -> None:
        source = fl.Digits(num_clients=5, feature_skew=(skew,))
        first, again, other = (source.load(fl.Key.from_seed(seed)).train.inputs for seed in (0, 0, 1))
        assert torch.equal(first, again)
        assert not torch.equal(first, other)
