"""Random numbers against NumPy's Philox and SciPy's distributions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from support.effort import examples

from spillway._core.sim import Draws, philox4x64

if TYPE_CHECKING:
    from collections.abc import Callable

WORD = st.integers(0, 2**64 - 1)
# Carries run through words of which all bits are set.
WORD_OR_EDGE = WORD | st.sampled_from((0, 1, 2**63, 2**64 - 2, 2**64 - 1))

# With fixed seeds a failure is no fluke but a change; a true distribution would be refused once in
# 10,000 cases.
SMALLEST_P = 1e-4
SAMPLE = 50_000


def reference(seed: int, stream: int, entity: int, sub_entity: int) -> np.random.Philox:
    """NumPy's generator in the state that `Draws` documents."""
    return np.random.Philox(
        key=np.array([seed, stream], dtype=np.uint64),
        counter=np.array([0, entity, sub_entity, 0], dtype=np.uint64),
    )


def draws(stream: int = 1) -> Draws:
    return Draws(seed=2025, stream=stream, entity=7, sub_entity=11)


def sample(draw: Callable[[], float], size: int = SAMPLE) -> np.ndarray:
    return np.array([draw() for _ in range(size)])


# Bits


# The known answers that the authors of Philox publish with their code (Random123, kat_vectors).
@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        (
            [0, 0, 0, 0],
            [0, 0],
            [0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B],
        ),
        (
            [2**64 - 1] * 4,
            [2**64 - 1] * 2,
            [0x87B092C3013FE90B, 0x438C3C67BE8D0224, 0x9CC7D7C69CD777B6, 0xA09CAEBF594F0BA0],
        ),
        (
            [0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0, 0x082EFA98EC4E6C89],
            [0x452821E638D01377, 0xBE5466CF34E90C6C],
            [0xA528F45403E61D95, 0x38C72DBD566E9788, 0xA5A1610E72FD18B5, 0x57BD43B5E52B7FE6],
        ),
    ],
)
def test_philox_gives_the_published_answers(
    counter: list[int], key: list[int], expected: list[int]
) -> None:
    assert philox4x64(counter=counter, key=key) == expected


@examples(300)
@given(counter=st.lists(WORD_OR_EDGE, min_size=4, max_size=4), key=st.tuples(WORD, WORD))
def test_philox_equals_numpys(counter: list[int], key: tuple[int, int]) -> None:
    # NumPy increments the counter, a number of 256 bits, before it generates.
    position = sum(word << (64 * i) for i, word in enumerate(counter))
    before = (position - 1) % 2**256
    words = [(before >> (64 * i)) & (2**64 - 1) for i in range(4)]
    numpys = np.random.Philox(
        key=np.array(key, dtype=np.uint64), counter=np.array(words, dtype=np.uint64)
    )
    assert philox4x64(counter=counter, key=list(key)) == numpys.random_raw(4).tolist()


@examples(300)
@given(seed=WORD, stream=WORD, entity=WORD_OR_EDGE, sub_entity=WORD_OR_EDGE, n=st.integers(1, 30))
def test_bits_equal_numpys(seed: int, stream: int, entity: int, sub_entity: int, n: int) -> None:
    ours = Draws(seed=seed, stream=stream, entity=entity, sub_entity=sub_entity)
    numpys = reference(seed, stream, entity, sub_entity)
    assert [ours.bits() for _ in range(n)] == numpys.random_raw(n).tolist()


@examples(300)
@given(seed=WORD, stream=WORD, entity=WORD, sub_entity=WORD, n=st.integers(1, 30))
def test_uniform_is_numpys(seed: int, stream: int, entity: int, sub_entity: int, n: int) -> None:
    ours = Draws(seed=seed, stream=stream, entity=entity, sub_entity=sub_entity)
    numpys = np.random.Generator(reference(seed, stream, entity, sub_entity))
    assert [ours.uniform() for _ in range(n)] == numpys.random(n).tolist()


def test_every_coordinate_opens_a_sequence_of_its_own() -> None:
    base = {"seed": 1, "stream": 1, "entity": 1, "sub_entity": 1}
    variants = [base] + [base | {name: 2} for name in base]
    first = {tuple(draws.bits() for _ in range(4)) for draws in (Draws(**v) for v in variants)}
    assert len(first) == len(variants)


def test_entities_are_independent() -> None:
    # As the simulator uses them: a request's first draw, then the next request's.
    size = SAMPLE
    first = np.array([Draws(seed=1, stream=1, entity=i).uniform() for i in range(size)])
    assert stats.kstest(first, "uniform").pvalue > SMALLEST_P
    other = np.array([Draws(seed=1, stream=2, entity=i).uniform() for i in range(size)])
    # A correlation of independent numbers is normal with variance 1/n.
    for a, b in ((first[1:], first[:-1]), (first, other)):
        assert abs(np.corrcoef(a, b)[0, 1]) < 4 / math.sqrt(size)


# Distributions


def open_uniform(size: int) -> np.ndarray:
    """The numbers in (0, 1) that distributions are made from: the middles of 2**52 equal parts."""
    generator = draws()
    return np.array([((generator.bits() >> 12) + 0.5) * 2.0**-52 for _ in range(size)])


def test_normal_is_the_quantile_of_its_uniform() -> None:
    ours = sample(draws().normal)
    np.testing.assert_allclose(ours, stats.norm.ppf(open_uniform(SAMPLE)), rtol=1e-14, atol=0)
    # The algorithm's center and its flanks; its far tail occurs once in 10**11 draws.
    assert (np.abs(ours) < 1.4).any()
    assert (np.abs(ours) > 3.5).any()


def test_exponential_is_the_quantile_of_its_uniform() -> None:
    expected = -np.log(open_uniform(SAMPLE))
    np.testing.assert_allclose(sample(draws().exponential), expected, rtol=1e-15, atol=0)


@pytest.mark.parametrize("stream", [1, 2, 3])
def test_exponential_and_normal_have_their_distributions(stream: int) -> None:
    assert stats.kstest(sample(draws(stream).exponential), "expon").pvalue > SMALLEST_P
    assert stats.kstest(sample(draws(stream).normal), "norm").pvalue > SMALLEST_P


@pytest.mark.parametrize("shape", [0.01, 0.1, 0.5, 0.99, 1.0, 2.5, 100.0, 2500.0])
def test_gamma_has_its_distribution(shape: float) -> None:
    generator = draws()
    ours = sample(lambda: generator.gamma(shape=shape))
    assert stats.kstest(ours, stats.gamma(shape).cdf).pvalue > SMALLEST_P


@pytest.mark.parametrize("n", [1, 2, 3, 7, 16, 1000])
def test_below_is_uniform(n: int) -> None:
    generator = draws()
    ours = sample(lambda: generator.below(n=n)).astype(int)
    counts = np.bincount(ours, minlength=n)
    assert len(counts) == n
    if n > 1:
        assert stats.chisquare(counts).pvalue > SMALLEST_P


@pytest.mark.parametrize("n", [2**63, 2**63 + 1, 3 * 2**62, 2**64 - 1])
def test_below_is_uniform_for_large_ranges(n: int) -> None:
    # Where every second or fourth draw must be drawn again, a method that skips that is far off.
    generator = draws()
    ours = [generator.below(n=n) for _ in range(SAMPLE)]
    assert max(ours) < n
    assert stats.kstest(np.array(ours, dtype=float) / n, "uniform").pvalue > SMALLEST_P
    # Multiplying without redrawing would hit some residues twice as often.
    thirds = np.bincount([value % 3 for value in ours], minlength=3)
    assert stats.chisquare(thirds).pvalue > SMALLEST_P


@examples(300)
@given(n=st.integers(1, 2**64 - 1), seed=WORD)
def test_below_stays_below(n: int, seed: int) -> None:
    generator = Draws(seed=seed, stream=1)
    assert all(generator.below(n=n) < n for _ in range(20))


def test_same_name_same_numbers() -> None:
    ours, again = draws(), draws()
    for name, arguments in (
        ("bits", ()),
        ("uniform", ()),
        ("normal", ()),
        ("exponential", ()),
        ("gamma", (0.7,)),
        ("below", (10,)),
    ):
        assert getattr(ours, name)(*arguments) == getattr(again, name)(*arguments)
