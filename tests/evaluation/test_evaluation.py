"""Evaluation end to end on images that are made here, with a small network in Inception's place."""

import itertools
import json

import numpy as np
import pytest
import torch
from PIL import Image
from torch.testing import assert_close

from evaluation.made_images import Colours, folder, images, manifest, source
from lwd.cli import main
from lwd.compute.devices import threads
from lwd.evaluation import evaluate as room
from lwd.evaluation.compare import comparison_table, read_evaluations
from lwd.evaluation.features import POOL, SPATIAL, FeatureSet, _folder, discard, extract, given_moments
from lwd.evaluation.metrics import (
    Moments,
    frechet_distance,
    frechet_from_moments,
    inception_score,
    kid,
    precision_recall,
)
from lwd.evaluation.score import Reference, looks_sorted, score, spaced, table
from lwd.images.pictures import ArrayFile, open_pictures
from lwd.report.comparison import plot_comparison
from messages import says


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LWD_CACHE", str(tmp_path / "cache"))
    with threads(1):  # the matrices are small: two threads would wait for each other
        yield


@pytest.fixture
def colours(monkeypatch):
    """`lwd evaluate` with the small network in Inception's place."""
    monkeypatch.setattr(room, "InceptionNetwork", lambda *_: Colours())


def test_all_metrics_are_those_of_the_functions():
    """Oracle: the public functions on the features of all images at once."""
    ref, sample = images(640), images(530, 1, 9)
    network = Colours()
    seen, other = extract(source(sample), [network]), extract(source(ref), [network])
    scores = score(seen, Reference.of(other, {}, "ref"))
    a, b = (network(torch.from_numpy(pixels)) for pixels in (ref, sample))
    expected = {
        "fid": frechet_distance(a[POOL], b[POOL]),
        "sfid": frechet_distance(a[SPATIAL], b[SPATIAL]),
        "kid": kid(a[POOL], b[POOL]),
        "inception_score": inception_score(b["probabilities"]),
        "precision": precision_recall(a[POOL], b[POOL])[0],
        "recall": precision_recall(a[POOL], b[POOL])[1],
    }
    for name, value in expected.items():
        assert_close(scores.metrics[name].value, value, rtol=1e-9, atol=1e-12)
    assert not scores.unavailable
    assert len(scores.warnings) == 1
    assert says(530).search(scores.warnings[0])


def test_standard_errors_are_the_spread_over_draws():
    """Oracle: the standard deviation of each metric over 30 sets of samples; the estimate is within a factor of 1.6."""
    network, ref = Colours(), extract(source(images(600)), [Colours()])
    reference = Reference.of(ref, {}, "ref")
    found = []
    for seed in range(30):
        seen = extract(source(images(300, 100 + seed, 9)), [network])
        found.append(score(seen, reference).metrics)
    for name in ("fid", "sfid", "kid", "inception_score", "precision", "recall", "density", "coverage"):
        values = torch.tensor([m[name].value for m in found])
        errors = torch.tensor([m[name].error for m in found])
        assert 1 / 1.6 < float(errors.square().mean().sqrt() / values.std()) < 1.6, name


def test_one_pass_in_any_batch_and_after_a_kill(tmp_path):
    """Oracle: the network's own count of images; equal features for any batch; a broken block is looked at again."""
    pixels = images(1203)
    Colours.calls = 0
    whole = extract(source(pixels), [Colours()], batch=50)
    assert Colours.calls == 1203
    blocks = sorted((tmp_path / "cache" / "features").glob("*/*.safetensors"))
    assert len(blocks) == 3
    again = extract(source(pixels), [Colours()], batch=7)
    assert Colours.calls == 1203
    blocks[1].write_bytes(blocks[1].read_bytes()[:100])
    mended = extract(source(pixels), [Colours()], batch=7)
    assert Colours.calls == 1203 + 703
    for other in (again, mended):
        assert torch.equal(other.rows[POOL], whole.rows[POOL])
        for feature in (POOL, SPATIAL):
            assert torch.equal(other.moments(feature).scatter, whole.moments(feature).scatter)
    direct = Moments().update(Colours()(torch.from_numpy(pixels))[SPATIAL])
    assert_close(whole.moments(SPATIAL).covariance, direct.covariance, rtol=1e-10, atol=1e-12)
    assert whole.moments(POOL, without=3).count == 1203 - len(range(3, 1203, 10))
    discard(source(pixels), [Colours()])
    assert not list((tmp_path / "cache" / "features").glob("*/*"))


def test_the_sides_of_an_evaluation_agree(tmp_path):
    """Oracle: the same pixels as .npz (stored and compressed), folder and data set give the same features."""
    pixels = images(23)
    np.savez(tmp_path / "a.npz", pixels)
    np.savez_compressed(tmp_path / "b.npz", arr_0=pixels)
    sets = [open_pictures(tmp_path / name) for name in ("a.npz", "b.npz")]
    sets += [open_pictures(folder(tmp_path / "png", pixels)), source(pixels)]
    for one in sets:
        assert len(one) == 23
        for size, start in itertools.product((4, 23, 50), (0, 20)):
            parts = list(one.batches(size, start))
            assert np.array_equal(np.concatenate(parts), pixels[start:])
    assert len({one.digest for one in sets}) == 4  # content of files, not of pixels
    assert open_pictures(tmp_path / "png").digest == sets[2].digest
    Image.fromarray(pixels[0]).save(tmp_path / "png" / "0001.png")
    assert open_pictures(tmp_path / "png").digest != sets[2].digest
    assert open_pictures("fashion/test").name == "fashion/test"


def test_moments_of_an_adm_reference_are_used(tmp_path):
    """Oracle: FID and sFID against the file's own moments, the others against its images; without images, said so."""
    pixels, generator = images(40), torch.Generator().manual_seed(0)
    root = torch.randn(12, 12, generator=generator, dtype=torch.float64)
    mu, sigma = torch.randn(12, generator=generator, dtype=torch.float64), root @ root.T
    moments = {"mu": mu.numpy(), "sigma": sigma.numpy(), "mu_s": mu[:5].numpy(), "sigma_s": sigma[:5, :5].numpy()}
    np.savez(tmp_path / "ref.npz", pixels, **moments)
    np.savez(tmp_path / "bare.npz", **moments)
    ref = ArrayFile(tmp_path / "ref.npz")
    seen = extract(source(images(50, 1)), [Colours()])
    scores = score(seen, Reference.of(extract(ref, [Colours()]), given_moments(ref), "ref"))
    own = seen.moments(POOL)
    assert_close(scores.metrics["fid"].value, frechet_from_moments(mu, sigma, own.mean, own.covariance))
    spatial = seen.moments(SPATIAL)
    expected = frechet_from_moments(mu[:5], sigma[:5, :5], spatial.mean, spatial.covariance)
    assert_close(scores.metrics["sfid"].value, expected)
    assert (
        scores.metrics["precision"].value
        == precision_recall(Colours()(torch.from_numpy(pixels))[POOL], seen.rows[POOL])[0]
    )
    bare = score(seen, Reference.of(None, given_moments(ArrayFile(tmp_path / "bare.npz")), "bare"))
    assert bare.metrics["fid"] == scores.metrics["fid"]
    assert says("moments", "images").search(bare.unavailable["precision"])


def test_a_metric_without_its_weights_says_so():
    seen = extract(source(images(40)), [Colours(head=False)])
    scores = score(seen, Reference.of(seen, {}, "itself"))
    assert says("classifier").search(scores.unavailable["inception_score"])
    assert scores.unavailable["inception_score"] in table(scores)
    assert scores.metrics["fid"].value < 1e-9


def test_sorted_samples_are_noticed_and_shuffled():
    """Oracle: rows of ten classes, sorted, shuffled and going round; the score of a shuffled set."""
    classes = np.repeat(np.arange(10), 60)
    rows = torch.from_numpy(np.random.default_rng(0).normal(size=(600, 8)) + 2 * classes[:, None] * np.eye(8)[0])
    shuffled = rows[torch.randperm(600, generator=torch.Generator().manual_seed(1))]
    assert looks_sorted(rows)
    assert not looks_sorted(shuffled)
    assert not looks_sorted(rows.reshape(10, 60, 8).transpose(0, 1).reshape(600, 8))
    assert not looks_sorted(torch.randn(600, 8, generator=torch.Generator().manual_seed(2)))
    probabilities = torch.nn.functional.one_hot(torch.from_numpy(np.repeat([0, 1], 5000)), 2).float()
    parts = {POOL: [Moments().update(probabilities[i::10]) for i in range(10)]}
    seen = FeatureSet("two", 10_000, {"probabilities": probabilities, POOL: probabilities}, parts)
    reference = Reference.of(seen, {}, "itself")
    # Two splits of one class each: a score of 1 where two perfectly told classes deserve 2.
    assert_close(score(_light(seen), reference).metrics["inception_score"].value, 1.0)
    assert_close(score(_light(seen), reference, shuffle=True).metrics["inception_score"].value, 2.0, atol=2e-3, rtol=0)


def test_no_advice_to_shuffle_what_is_shuffled():
    rows = torch.arange(600)[:, None] / 60 + torch.rand(600, 3, generator=torch.Generator().manual_seed(0))
    seen = FeatureSet("sorted", 600, {POOL: rows}, {POOL: [Moments().update(rows[i::10]) for i in range(10)]})
    reference = Reference("itself", 0, {}, {})
    assert "shuffle" in " ".join(score(seen, reference).warnings)
    assert "shuffle" not in " ".join(score(seen, reference, shuffle=True).warnings)


def test_a_large_reference_is_thinned_for_pairs(monkeypatch):
    """Oracle: the functions on every third row; FID is of all rows."""
    monkeypatch.setattr("lwd.evaluation.score.spaced", lambda rows: spaced(rows, 100))
    ref, seen = extract(source(images(300)), [Colours()]), extract(source(images(90, 1)), [Colours()])
    metrics = score(seen, Reference.of(ref, {}, "ref")).metrics
    thin = ref.rows[POOL][::3]
    assert (metrics["precision"].value, metrics["recall"].value) == precision_recall(thin, seen.rows[POOL])
    assert_close(metrics["kid"].value, kid(thin, seen.rows[POOL]))
    assert_close(metrics["fid"].value, frechet_distance(ref.rows[POOL], seen.rows[POOL]))
    assert torch.equal(spaced(torch.arange(25_000)), torch.arange(10_000) * 25_000 // 10_000)


def _light(seen):
    """Without rows, so that the test does not compute ten thousand neighbours."""
    return FeatureSet(seen.name, seen.count, {"probabilities": seen.rows["probabilities"]}, seen.parts)


def test_the_command_writes_a_table_and_a_file(tmp_path, capsys, colours):
    """Oracle: the function's numbers in the file and on the screen; what lwd sample wrote goes along."""
    del colours
    pixels = images(60)
    for name, step, nfe in (("first", 100, 20.0), ("second", 200, 40.0)):
        run = tmp_path / name
        folder(run / "images", pixels)
        (run / "manifest.json").write_text(json.dumps(manifest(60, step, nfe)))
        np.savez(run / "samples.npz", images(60, step, step // 20))
        assert main(["evaluate", str(run), "--reference", str(folder(tmp_path / "ref", images(80, 7)))]) == 0
    shown = capsys.readouterr().out
    result = json.loads((tmp_path / "second" / "evaluation.json").read_text())
    assert f"{result['metrics']['fid']['value']:.4f}" in shown
    assert says("warning", 60).search(shown)
    assert result["samples"]["model"]["step"] == 200
    assert (result["samples"]["nfe"], result["samples"]["settings"]) == (40.0, {"solver": "heun"})
    kept = _folder(open_pictures(tmp_path / "ref"), [Colours()], None)  # the reference's stay, the samples' go
    assert [path for path in (tmp_path / "cache" / "features").iterdir() if path.is_dir()] == [kept]
    assert [path.name for path in kept.glob("*.safetensors")] == ["00000.safetensors"]
    runs = [str(tmp_path / "first"), str(tmp_path / "second")]
    assert main(["compare", *runs, "--out", str(tmp_path / "c")]) == 0
    text = capsys.readouterr().out
    assert f"{result['metrics']['fid']['value']:.4g}" in text
    assert "| second | 60 | 200 | 40 |" in text
    assert (tmp_path / "c" / "comparison.md").read_text().strip() in text
    evaluations = read_evaluations([tmp_path])
    assert list(evaluations) == ["first", "second"]
    axes = plot_comparison(evaluations).axes
    assert [axis.get_xlabel() for axis in axes[:2]] == ["training steps", "evaluations per sample"]
    drawn = [float(container.lines[0].get_xdata()[0]) for container in axes[0].containers]
    assert drawn == [100, 200]
    first = evaluations["first"]
    other = first.changed(reference=first.reference.changed(digest="x"), samples=first.samples.changed(count=5))
    same, different = (comparison_table({"a": first, "b": one}).splitlines() for one in (first, other))
    assert len(different) == len(same) + 2  # two notes instead of the ratios, each after a blank line
    assert "b over a: FID 1.000 ± 0.000" in same[-1]


def bad_folder(path, kind):
    pixels = images(12)
    folder(path, pixels)
    if kind == "mixed":
        Image.fromarray(pixels[0][:5]).save(path / "0005.png")
    elif kind == "grey":
        Image.fromarray(pixels[0][..., 0]).save(path / "0005.png")
    elif kind == "corrupt":
        (path / "0005.png").write_bytes((path / "0004.png").read_bytes()[:60])
    elif kind == "few":
        for extra in sorted(path.iterdir())[5:]:
            extra.unlink()
    elif kind == "empty":
        for file in path.iterdir():
            file.unlink()
    return path


@pytest.mark.parametrize(
    ("kind", "facts"),
    [
        ("mixed", ("0005.png", "12x5", "12x12")),
        ("grey", ("0005.png", "RGB")),
        ("corrupt", "0005.png"),
        ("few", ("bad", 5, 10)),
        ("empty", "bad"),
    ],
)
@pytest.mark.parametrize("side", ["samples", "reference"])
def test_bad_folders_get_one_line(tmp_path, capsys, colours, kind, facts, side):
    del colours
    good, bad = folder(tmp_path / "good", images(20)), bad_folder(tmp_path / "bad", kind)
    pair = (bad, good) if side == "samples" else (good, bad)
    code = main(["evaluate", str(pair[0]), "--reference", str(pair[1])])
    error = capsys.readouterr().err.strip().splitlines()
    assert (code, len(error)) == (2, 1), error
    assert says(facts).search(error[0]), error


@pytest.mark.parametrize(
    ("write", "facts"),
    [
        (lambda p: np.savez(p, other=images(12)), ("bad.npz", "arr_0", "other")),
        (lambda p: np.savez(p, images(12)[..., :1]), ("bad.npz", "arr_0", "(12, 12, 12, 1)")),
        (lambda p: np.savez(p, images(12).astype(np.float32)), ("bad.npz", "arr_0", "float32")),
        (lambda p: np.savez(p, np.array([{}], dtype=object)), ("bad.npz", "arr_0", "object")),
        (lambda p: np.savez(p, images(12)[:0]), ("bad.npz", "arr_0", "(0, 12, 12, 3)")),
        (lambda p: np.savez(p, mu=np.zeros(3), sigma=np.eye(3)), "bad.npz"),
        (lambda p: p.write_bytes(b"PK\x03\x04 nonsense"), "bad.npz"),
        (lambda p: p.write_bytes(b""), "bad.npz"),
    ],
)
def test_bad_arrays_get_one_line(tmp_path, capsys, colours, write, facts):
    del colours
    path = tmp_path / "bad.npz"
    write(path)
    code = main(["evaluate", str(path), "--reference", str(folder(tmp_path / "good", images(20)))])
    error = capsys.readouterr().err.strip().splitlines()
    assert (code, len(error)) == (2, 1), error
    assert says(facts).search(error[0]), error


def test_other_bad_input_gets_one_line(tmp_path, capsys, colours):
    del colours
    good = str(folder(tmp_path / "good", images(20)))
    np.savez(tmp_path / "ref.npz", images(12), mu=np.zeros(3), sigma=np.eye(2))
    (tmp_path / "junk.json").write_text('{"format": "lwd.evaluation", "version": 1, "metrics": {"fid": 3}}')
    for arguments, facts in (
        (["evaluate", "nowhere", "--reference", good], "nowhere"),
        (["evaluate", good, "--reference", str(tmp_path / "ref.npz")], ("mu", "(3,)", "(2, 2)")),
        (["evaluate", good, "--reference", str(tmp_path / "ref.npz"), "--size", "8"], ("--size", "ref.npz")),
        (["evaluate", good, "--reference", good, "--skip-inception"], ("Inception", "encoder")),
        (["evaluate", good, "--reference", good, "--out", "/proc/x.json"], "/proc"),
        (["compare", good], ("good", "evaluation.json", "lwd evaluate")),
        (["compare", str(tmp_path / "junk.json")], ("junk.json", "metrics")),
        (["compare", str(tmp_path / "ref.npz")], ("ref.npz", "JSON")),
    ):
        code = main(arguments)
        error = capsys.readouterr().err.strip().splitlines()
        assert (code, len(error)) == (2, 1), error
        assert says(facts).search(error[0]), error


def test_without_weights_the_way_to_them_is_said(tmp_path, capsys):
    good = str(folder(tmp_path / "good", images(20)))
    assert main(["evaluate", good, "--reference", good]) == 2
    assert says("lwd data fetch inception").search(capsys.readouterr().err)


def test_an_encoder_gives_its_own_distance(tmp_path, monkeypatch):
    """Oracle: the Fréchet distance of the encoder's features, averaged over positions by hand."""

    class Encoder:
        identity = "made"

        def __call__(self, pixels):
            return pixels[:, :2, ::4, ::4] * 3

    from lwd.evaluation import features

    monkeypatch.setattr(features, "load_encoder", lambda *_: Encoder())
    a, b = images(40), images(50, 1)
    settings = room.EvaluateSettings(encoder="made", skip_inception=True)
    scores, path = room.evaluate(
        folder(tmp_path / "a", a), folder(tmp_path / "b", b), settings, out=tmp_path / "result.json"
    )
    means = [Encoder()(torch.from_numpy(x).permute(0, 3, 1, 2) / 127.5 - 1).mean((2, 3)) for x in (b, a)]
    assert_close(scores.metrics["frechet"].value, frechet_distance(*means), rtol=1e-4, atol=1e-9)
    assert json.loads(path.read_text())["unavailable"]["fid"]
