"""Keys: streams that depend on what they are for, and on nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import fairlead as fl
from fairlead.randomness import Key

KEY = Key.from_seed(0)


def test_folding_a_path_is_folding_its_parts() -> None:
    assert KEY.fold("batches", 3, 7) == KEY.fold("batches").fold(3).fold(7)


def test_different_paths_give_different_keys() -> None:
    paths: list[tuple[int | str, ...]] = [
        *((purpose, round, client) for purpose in "ab" for round in range(5) for client in range(5)),
        *((), ("1",), (1,), ("a",), ("a", 1), (1, "a"), (-1,), (11,), (1, 1), ("11",)),
    ]
    assert len({KEY.fold(*path).name for path in paths}) == len(paths)


def test_whole_numbers_of_any_kind_name_the_same_stream() -> None:
    """A client's id may come out of a tensor or an array: the text of either would be another name."""
    numbers: list[Any] = [3, np.int64(3), np.uint8(3), torch.tensor(3)]
    assert {KEY.fold("batches", number).name for number in numbers} == {KEY.fold("batches", 3).name}
    with pytest.raises(TypeError):
        KEY.fold(3.0)  # type: ignore[arg-type]


def test_different_seeds_give_different_keys() -> None:
    seeds = [*range(-50, 50), 2**31, 2**32, 2**63, 2**64, -(2**40)]
    assert len({Key.from_seed(seed).name for seed in seeds}) == len(seeds)


def test_draws_of_a_client_do_not_depend_on_who_else_draws() -> None:
    everyone = KEY.uniform(torch.arange(1000))
    some = torch.tensor([999, 3, 500, 3])
    assert torch.equal(KEY.uniform(some), everyone[some])


def test_the_numbers_are_fixed_for_ever() -> None:
    """Recorded once: runs of old versions must repeat. SplitMix64 and Philox are specified bit by bit."""
    assert KEY.fold("x").name.hex() == Key(KEY.name).fold("x").name.hex()
    assert Key(bytes(16)).words(np.arange(2)).tolist() == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4]
    ascending = Key(bytes(range(16)))
    own, stock = ascending.generator(), np.random.Philox(key=int.from_bytes(range(16), "little"))
    assert own.integers(2**63, size=3).tolist() == np.random.Generator(stock).integers(2**63, size=3).tolist()
    assert ascending.generator().integers(1000, size=5).tolist() == [267, 776, 896, 961, 327]


def test_uniform_numbers_are_uniform() -> None:
    """Mean ½ and variance 1/12 of 100,000 draws within 4.5 standard errors; none reaches 1."""
    draws = KEY.uniform(torch.arange(100_000))
    assert abs(float(draws.mean()) - 0.5) < 4.5 * (1 / 12 / 100_000) ** 0.5
    assert abs(float(draws.var()) - 1 / 12) < 4.5 * (1 / 180 / 100_000) ** 0.5
    assert float(draws.min()) >= 0.0
    assert float(draws.max()) < 1.0


def test_neighboring_ids_and_rounds_are_uncorrelated() -> None:
    table = torch.stack([KEY.fold("link", round).uniform(torch.arange(300)) for round in range(300)])
    centered = table - 0.5
    for other in (centered.roll(1, 0), centered.roll(1, 1)):
        assert abs(float((centered * other).mean())) * 12 < 4.5 / 300


@pytest.mark.parametrize(("low", "high"), [(1, 1), (2, 5), (-3, 3), (0, 1000)])
def test_integers_include_both_ends_equally(low: int, high: int) -> None:
    draws = KEY.integers(torch.arange(20_000), low, high)
    counts = torch.bincount(draws - low, minlength=high - low + 1).double()
    share = 1 / (high - low + 1)
    assert len(counts) == high - low + 1
    assert float((counts / 20_000 - share).abs().max()) < 5 * (share * (1 - share) / 20_000) ** 0.5 + 1e-12


def test_integers_take_bounds_per_client() -> None:
    low, high = torch.tensor([1, 5, 9]), torch.tensor([1, 6, 9])
    draws = KEY.integers(torch.arange(3), low, high)
    assert bool(((draws >= low) & (draws <= high)).all())


def test_nobody_draws_nothing() -> None:
    assert KEY.uniform(torch.tensor([], dtype=torch.int64)).shape == (0,)


def test_a_generator_starts_anew_each_time() -> None:
    assert KEY.generator().random(3).tolist() == KEY.generator().random(3).tolist()
    assert KEY.generator().random() != KEY.fold(1).generator().random()


def test_the_seed_for_torch_is_a_valid_one() -> None:
    seeds = [Key.from_seed(seed).torch_seed() for seed in range(100)]
    assert len(set(seeds)) == 100
    assert all(0 <= seed < 2**63 for seed in seeds)
    torch.Generator().manual_seed(seeds[0])


@pytest.mark.parametrize("seed", ["1", 1.5, None])
def test_data_are_drawn_from_a_whole_number_or_a_key(seed: Any) -> None:
    digits = fl.Digits(3, fl.IidPartitioner())
    assert torch.equal(digits.load(1).train.inputs, digits.load(Key.from_seed(1)).train.inputs)
    with pytest.raises(fl.errors.FieldError, match=r"A seed must be a whole number or a Key, got"):
        digits.load(seed)
