"""The metric functions against stored reference values, closed forms and invariances."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from lwd.errors import InputError
from lwd.evaluation import metrics
from lwd.evaluation.manifold import overlap
from messages import says

FIXTURES = Path(__file__).parents[1] / "fixtures"
EXPECTED = json.loads((FIXTURES / "metrics_small.json").read_text())
TENSORS = load_file(FIXTURES / "metrics_small.safetensors")
REF, SAMPLE = TENSORS["reference"], TENSORS["sample"]


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """The matrices are small: two threads would wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_the_fixture():
    """Oracle: values of the reference implementations."""
    assert metrics.frechet_distance(REF, SAMPLE) == pytest.approx(EXPECTED["frechet"], rel=1e-6)
    assert metrics.precision_recall(REF, SAMPLE, k=3) == (EXPECTED["precision_k3"], EXPECTED["recall_k3"])
    density, coverage = metrics.density_coverage(REF, SAMPLE, k=5)
    assert density == pytest.approx(EXPECTED["density_k5"], abs=1e-12)
    assert coverage == EXPECTED["coverage_k5"]
    assert metrics.kid(REF, SAMPLE) == pytest.approx(EXPECTED["kid_unbiased_poly3"], abs=1e-9)
    score = metrics.inception_score(TENSORS["probabilities"], split=100)
    assert score == pytest.approx(EXPECTED["inception_score_split100"], abs=1e-9)


def test_commuting_covariances_in_closed_form():
    """Oracle: sum (sqrt a_i - sqrt b_i)^2 + |m1 - m2|^2 for covariances with common eigenvectors."""
    generator = torch.Generator().manual_seed(0)
    basis = torch.linalg.qr(torch.randn(30, 30, dtype=torch.float64, generator=generator)).Q
    a, b = (torch.rand(30, dtype=torch.float64, generator=generator) for _ in range(2))
    m1, m2 = (torch.randn(30, dtype=torch.float64, generator=generator) for _ in range(2))
    found = metrics.frechet_from_moments(m1, basis * a @ basis.T, m2, basis * b @ basis.T)
    expected = (m1 - m2).square().sum() + (a.sqrt() - b.sqrt()).square().sum()
    assert found == pytest.approx(float(expected), rel=1e-10)


@settings(deadline=None, max_examples=25, derandomize=True)
@given(st.integers(2, 30), st.integers(0, 1000))
def test_singular_covariances(rows, seed):
    """Oracles: tr (S1 S2)^(1/2) is the nuclear norm of the centred X Y^T / sqrt((n - 1)(m - 1)), whatever the rank;
    and scipy's sqrtm where it does not call itself unstable."""
    generator = torch.Generator().manual_seed(seed)
    x, y = (torch.randn(n, 10, dtype=torch.float64, generator=generator) for n in (rows, 40))
    found = metrics.frechet_distance(x, y)
    a, b = x - x.mean(0), y - y.mean(0)
    s1, s2 = a.T @ a / (rows - 1), b.T @ b / 39
    means = float((x.mean(0) - y.mean(0)).square().sum() + s1.trace() + s2.trace())
    nuclear = torch.linalg.matrix_norm(a @ b.T, "nuc") / (39 * (rows - 1)) ** 0.5
    assert found == pytest.approx(means - 2 * float(nuclear), abs=1e-7)
    assert 0 <= metrics.frechet_distance(x, x) < 1e-6
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            root = scipy.linalg.sqrtm((s1 @ s2).numpy())
        except scipy.linalg.LinAlgWarning:
            assert rows <= 10
            return
    assert found == pytest.approx(means - 2 * np.trace(root).real, rel=1e-6)


@settings(deadline=None, max_examples=25, derandomize=True)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.floats(0, 1e4))
def test_streaming_and_merging_equal_one_shot(sizes, offset):
    """Oracle: numpy on the whole matrix, far from the origin too."""
    x = (
        torch.randn(sum(sizes) + 2, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(len(sizes)))
        + offset
    )
    streamed = metrics.Moments()
    for part in x.split([*sizes, 2]):
        streamed.merge(metrics.Moments().update(part))
    np.testing.assert_allclose(streamed.mean, x.numpy().mean(0), rtol=1e-10)
    np.testing.assert_allclose(streamed.covariance, np.cov(x.numpy().T), atol=1e-10 * max(1, offset))


def test_manifold_metrics_do_not_depend_on_blocks(monkeypatch):
    """Oracle: distances one block of one row at a time; brute force over pairs."""
    whole = metrics.precision_recall(REF, SAMPLE), metrics.density_coverage(REF, SAMPLE)
    monkeypatch.setattr("lwd.evaluation.manifold.CHUNK", 1)
    assert whole == (metrics.precision_recall(REF, SAMPLE), metrics.density_coverage(REF, SAMPLE))
    far = 1e4 + REF.double(), 1e4 + SAMPLE.double()
    assert metrics.precision_recall(*far) == whole[0]
    distances = torch.cdist(REF.double(), SAMPLE.double(), compute_mode="donot_use_mm_for_euclid_dist")
    own = torch.cdist(REF.double(), REF.double(), compute_mode="donot_use_mm_for_euclid_dist")
    radius = own.sort(1).values[:, 3]
    assert float((distances <= radius[:, None]).any(0).double().mean()) == whole[0][0]


def tied_features(kind):
    """Reference and samples whose distances tie: balls end on the other side's points."""
    generator = torch.Generator().manual_seed(3)
    if kind == "integers":
        return tuple(torch.randint(0, 4, (n, 5), generator=generator).float() for n in (120, 90))
    if kind == "duplicates":
        base = torch.randn(30, 7, generator=generator) * 100 + 1000
        return base.repeat(4, 1), base[torch.randint(0, 30, (90,), generator=generator)]
    ref = torch.randn(120, 64, generator=generator).clamp(min=0) * (torch.rand(120, 64, generator=generator) < 0.2)
    if kind == "sparse":
        other = torch.randn(90, 64, generator=generator).clamp(min=0) * (torch.rand(90, 64, generator=generator) < 0.2)
        return ref, torch.cat([other[:50], ref[:40]])
    return ref, ref[torch.randperm(120, generator=generator)]  # copies of the reference


def brute_force(ref, sample, k, wide):
    """All four from differences of all pairs."""
    ref, sample = ref.double(), sample.double()

    def squared(a, b):
        return (a[:, None] - b[None]).square().sum(-1)

    own, other = squared(ref, ref).fill_diagonal_(torch.inf), squared(sample, sample).fill_diagonal_(torch.inf)
    radius, wide_radius, sample_radius = (d.sort(1).values[:, n - 1] for d, n in ((own, k), (own, wide), (other, k)))
    cross = squared(ref, sample)
    hits = cross < wide_radius[:, None]
    precise, recalled = (cross <= radius[:, None]).any(0), (cross <= sample_radius).any(1)
    return precise.double(), recalled.double(), hits.double().sum(0) / wide, hits.any(1).double()


@pytest.mark.parametrize("kind", ["integers", "duplicates", "sparse", "copies"])
@pytest.mark.parametrize("shift", [0, 333.25])
def test_ties_are_decided_exactly(kind, shift):
    """Oracle: brute force over all pairs by direct differences; equality to the last point."""
    ref, sample = (x + shift for x in tied_features(kind))
    expected = brute_force(ref, sample, 3, 5)
    found = overlap(ref, sample, 3, 5)
    for one, other in zip((found.precise, found.recalled, found.dense, found.covered), expected, strict=True):
        assert torch.equal(one, other)
    assert metrics.precision_recall(ref, sample, 3) == tuple(float(x.mean()) for x in expected[:2])
    density, coverage = metrics.density_coverage(ref, sample, 5)
    assert (density, coverage) == (pytest.approx(float(expected[2].mean()), abs=1e-12), float(expected[3].mean()))


@pytest.mark.parametrize("kind", ["integers", "sparse", "copies"])
def test_parts_of_the_samples_are_left_out(kind):
    """Oracle: brute force on the samples without the part."""
    ref, sample = tied_features(kind)
    found = overlap(ref, sample, 3, 5, parts=10)
    for part in range(10):
        left = sample[torch.arange(len(sample)) % 10 != part]
        _, recalled, _, covered = brute_force(ref, left, 3, 5)
        assert found.recall_without[part] == float(recalled.mean())
        assert found.coverage_without[part] == float(covered.mean())


def test_kid_does_not_depend_on_blocks():
    """Oracle: the definition over all pairs at once."""
    x, y = REF.double(), SAMPLE.double()

    def kernel(a, b):
        return (a @ b.T / a.shape[1] + 1) ** 3

    n, m = len(x), len(y)
    within = (kernel(x, x).sum() - kernel(x, x).trace()) / (n * (n - 1))
    within += (kernel(y, y).sum() - kernel(y, y).trace()) / (m * (m - 1))
    expected = float(within - 2 * kernel(x, y).mean())
    for chunk in (100, 2000):
        assert metrics.kid(REF, SAMPLE, chunk=chunk) == pytest.approx(expected, rel=1e-10)


def test_inception_score_of_known_distributions():
    """Oracle: uniform predictions score 1; one-hot predictions over c classes score c; sorting wrecks the score."""
    assert metrics.inception_score(torch.full((50, 8), 1 / 8)) == pytest.approx(1)
    one_hot = torch.eye(8).repeat(20, 1)
    assert metrics.inception_score(one_hot, split=80) == pytest.approx(8)
    ordered = one_hot[one_hot.argmax(1).argsort()]
    assert metrics.inception_score(ordered, split=20) == pytest.approx(1)


@pytest.mark.parametrize(
    ("call", "facts"),
    [
        (lambda: metrics.frechet_distance(REF, SAMPLE[:, :5]), ("(24,)", "(5,)")),
        (lambda: metrics.frechet_distance(REF[:1], SAMPLE), 1),
        (lambda: metrics.kid(REF[:1], SAMPLE), "KID"),
        (lambda: metrics.kid(REF, SAMPLE[:, 1:]), (24, 23)),
        (lambda: metrics.precision_recall(REF, SAMPLE, k=250), ("k", 249, 250)),
        (lambda: metrics.density_coverage(REF, SAMPLE[:, 1:]), (24, 23)),
        (lambda: metrics.frechet_distance(REF * float("nan"), SAMPLE), "NaN"),
        (lambda: metrics.frechet_distance(REF[0], SAMPLE), "(24,)"),
        (lambda: metrics.inception_score(REF), ("probabilities", 1)),
        (lambda: metrics.inception_score(TENSORS["probabilities"], split=0), ("split", 0)),
    ],
)
def test_bad_features_are_named(call, facts):
    with pytest.raises(InputError, match=says(facts)):
        call()
