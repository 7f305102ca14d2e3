import json

import pytest
import torch
from torch.testing import assert_close

import lwd
from lwd.representations.pca import TENSORS, PCAFit, load_pca, save_pca
from messages import says


def features(count=30, d=12, seed=0):
    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(d, d, generator=generator) * torch.linspace(3, 0.1, d)
    return torch.einsum("de,behw->bdhw", mix, torch.randn(count, d, 3, 2, generator=generator)) + 5


@pytest.mark.parametrize("chunk", [1, 4, 7, 30])
def test_streamed_pca_is_the_svd_of_everything(chunk):
    """Oracle: torch.linalg.svd of the whole centred matrix (<= 1e-5), for chunks of 1 to all."""
    data = features()
    fit = PCAFit()
    for part in data.split(chunk):
        fit.update(part)
    pca = fit.finish(5)
    rows = data.transpose(0, 1).flatten(1).T.double()
    _, s, v = torch.linalg.svd(rows - rows.mean(0), full_matrices=False)
    assert_close(pca.variances, s[:5] ** 2 / (len(rows) - 1), rtol=1e-5, atol=0)
    assert_close((pca.components @ v[:5].T).abs(), torch.eye(5).double(), atol=1e-5, rtol=0)
    assert_close(pca.explained, float((s[:5] ** 2).sum() / (s**2).sum()), atol=1e-9, rtol=0)
    assert (pca.components.gather(1, pca.components.abs().argmax(1, keepdim=True)) > 0).all()


def test_chunks_and_merging_change_nothing():
    data = features()
    whole = PCAFit().update(data).finish(4)
    merged = PCAFit().update(data[:11]).merge(PCAFit().update(data[11:])).finish(4)
    assert_close(merged.components, whole.components, atol=1e-10, rtol=0)


def test_encode_and_decode():
    """Oracle: all directions lose nothing; fewer lose exactly the variance that is left out."""
    data = features()
    full, few = PCAFit().update(data).finish(12), PCAFit().update(data).finish(3)
    assert_close(full.decode(full.encode(data)), data, atol=1e-4, rtol=0)
    assert few.encode(data).shape == (30, 3, 3, 2)
    assert_close(few.explained_on(data), few.explained, atol=1e-5, rtol=0)
    latents = few.encode(data).transpose(0, 1).flatten(1)
    assert_close(latents.cov().double(), torch.diag(few.variances), atol=1e-3, rtol=1e-4)
    assert few.explained_on(features(seed=3)) < 1


def test_files(tmp_path):
    pca = PCAFit().update(features()).finish(3)
    save_pca(pca, tmp_path / "pca")
    again = load_pca(tmp_path / "pca")
    config = json.loads((tmp_path / "pca" / "config.json").read_text())
    assert all(torch.equal(getattr(pca, name), getattr(again, name)) for name in TENSORS)
    (tmp_path / "pca" / "config.json").write_text(json.dumps(config | {"features": 5}))
    with pytest.raises(lwd.InputError, match=says("components", "(3, 12)", "(3, 5)")):
        load_pca(tmp_path / "pca")
    (tmp_path / "pca" / "config.json").write_text("{}")
    with pytest.raises(lwd.InputError, match=says("config.json", "lwd.pca")):
        load_pca(tmp_path / "pca")


def test_what_cannot_be_fitted_is_refused():
    with pytest.raises(lwd.InputError, match=says(12)):
        PCAFit().update(features()).finish(13)
    with pytest.raises(lwd.InputError, match=says(8)):
        PCAFit().update(features(1)).finish(8)
    with pytest.raises(lwd.InputError, match=says("NaN")):
        PCAFit().update(torch.full((1, 2, 1, 1), torch.nan))
