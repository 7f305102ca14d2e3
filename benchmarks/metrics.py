"""Speed of the Fréchet distance against scipy.linalg.sqrtm, and memory of precision and recall.

    python benchmarks/metrics.py [--json] [--dimension 2048] [--points 10000]

Both distances in one process, from the same two covariances of features with a decaying spectrum; the ratio is of
times. Memory is the growth of the process's peak while precision and recall of `points` x `points` x `dimension`
features are computed.
"""

import argparse
import json
import resource
import time
import warnings

import numpy as np
import scipy.linalg
import torch

from lwd.evaluation.metrics import Moments, frechet_from_moments, precision_recall


def features(count: int, dimension: int, seed: int) -> torch.Tensor:
    """Draw correlated features with a spectrum like Inception's."""
    generator = torch.Generator().manual_seed(seed)
    scale = torch.linspace(0, 6, dimension).neg().exp()
    mixing = torch.randn(dimension, dimension, generator=torch.Generator().manual_seed(99)) / dimension**0.5
    return (torch.randn(count, dimension, generator=generator) * scale) @ mixing + 0.1 * seed


def frechet_ratio(dimension: int) -> tuple[float, float]:
    """Return the speed-up over sqrtm, and the relative difference of the values."""
    a, b = (Moments().update(features(2 * dimension, dimension, seed)) for seed in (0, 1))
    start = time.perf_counter()
    ours = frechet_from_moments(a.mean, a.covariance, b.mean, b.covariance)
    middle = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        root = scipy.linalg.sqrtm((a.covariance @ b.covariance).numpy())
    theirs = float(
        (a.mean - b.mean).square().sum() + a.covariance.trace() + b.covariance.trace() - 2 * np.trace(root).real
    )
    end = time.perf_counter()
    return (end - middle) / (middle - start), abs(ours - theirs) / abs(theirs)


def peak() -> float:
    """Peak resident memory of the process so far, GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the numbers as one JSON object on the last line")
    parser.add_argument("--dimension", type=int, default=2048, help="dimension of the features (default 2048)")
    parser.add_argument("--points", type=int, default=10_000, help="points in each set (default 10000)")
    arguments = parser.parse_args()
    reference, sample = (features(arguments.points, arguments.dimension, seed) for seed in (2, 3))
    before = peak()
    start = time.perf_counter()
    precision_recall(reference, sample)
    seconds, memory = time.perf_counter() - start, peak() - before
    print(f"precision and recall: {seconds:.1f} s, {memory:.2f} GiB in addition to the features")
    ratio, difference = frechet_ratio(arguments.dimension)
    print(f"Fréchet distance: {ratio:.1f} times as fast as sqrtm, relative difference {difference:.1e}")
    if arguments.json:
        print(json.dumps({"frechet over sqrtm": round(ratio, 2), "difference": difference, "GiB": round(memory, 2)}))


if __name__ == "__main__":
    main()
