import pytest
import torch
from torch.testing import assert_close

import lwd
from lwd import AutoGuidance, ClassifierFree, Layout
from messages import says
from strategies import small_mixture

LAYOUT = Layout.of(texture=2, semantic=1)
LABEL = torch.tensor([0, 1, 1])


class Counting:
    """A velocity that counts its calls."""

    def __init__(self, function):
        self.function, self.calls = function, 0

    def __call__(self, z, times, label):
        self.calls += 1
        return self.function(z, times, label)


def inputs(t_texture=0.4, t_semantic=0.6):
    z = torch.randn(3, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    return z, torch.tensor([[t_texture, t_semantic]]).expand(3, 2).double(), LABEL


def strong(z, times, label):
    return torch.sin(z) + times.sum(1).float()[:, None, None, None] + label[:, None, None, None]


def weak(z, times, label):  # noqa: ARG001
    return torch.cos(z)


def test_the_formula():
    """Oracle: v_weak + w (v_main - v_weak), written out."""
    z, times, label = inputs()
    main, guide = strong(z, times, label), weak(z, times, label)
    for w in (0.0, 0.5, 1.5, 3.0, -1.0):
        assert_close(AutoGuidance(strong, weak, w, LAYOUT)(z, times, label), guide + w * (main - guide))


@pytest.mark.parametrize("scale", [1, 1.0, {"texture": 1.0}, {}])
def test_scale_one_does_not_call_the_guide(scale):
    """Oracle: the call counter; the result is main's, bit for bit."""
    guide = Counting(weak)
    guided = AutoGuidance(strong, guide, scale, LAYOUT)
    assert torch.equal(guided(*inputs()), strong(*inputs()))
    assert guide.calls == 0
    assert guided.edges == {}
    main = Counting(strong)
    ClassifierFree(main, 9, scale, LAYOUT)(*inputs())
    assert main.calls == 1


@pytest.mark.parametrize("scale", [0.0, 0.7, 1.5, 40.0, {"semantic": -3.0}])
def test_guide_equal_to_main_gives_main(scale):
    """Oracle: equality, bit for bit."""
    assert torch.equal(AutoGuidance(strong, strong, scale, LAYOUT)(*inputs()), strong(*inputs()))


def test_a_scale_by_group_touches_only_its_channels():
    """Oracle: bits of the other group's channels."""
    guided = AutoGuidance(strong, weak, {"semantic": 2.5}, LAYOUT)(*inputs())
    everywhere = AutoGuidance(strong, weak, 2.5, LAYOUT)(*inputs())
    assert torch.equal(guided[:, :2], strong(*inputs())[:, :2])
    assert torch.equal(guided[:, 2:], everywhere[:, 2:])
    assert not torch.equal(guided[:, 2:], strong(*inputs())[:, 2:])


def test_a_guide_that_fails_where_it_is_not_asked_for_does_no_harm():
    """Oracle: a guide that is NaN in texture and of another dtype, with semantic guided alone."""

    def broken(z, times, label):
        return weak(z, times, label).double().index_fill(1, torch.tensor([0, 1]), torch.nan)

    out = AutoGuidance(strong, broken, {"semantic": 2.5}, LAYOUT)(*inputs())
    assert out.dtype == torch.float32
    assert torch.equal(out, AutoGuidance(strong, weak, {"semantic": 2.5}, LAYOUT)(*inputs()))


def test_intervals_act_on_each_groups_own_local_time():
    """Oracle: a table of local times and which channels may differ from main; [low, high), closed at 1."""
    interval = {"texture": (0.3, 0.5), "semantic": (0.8, 1.0)}
    for t_texture, t_semantic, texture_on, semantic_on in [
        (0.29, 0.79, False, False),
        (0.3, 0.79, True, False),
        (0.49, 0.8, True, True),
        (0.5, 1.0, False, True),
        (0.9, 0.4, False, False),
    ]:
        guide = Counting(weak)
        args = inputs(t_texture, t_semantic)
        out, main = AutoGuidance(strong, guide, 2.0, LAYOUT, interval)(*args), strong(*args)
        assert torch.equal(out[:, :2], main[:, :2]) != texture_on
        assert torch.equal(out[:, 2:], main[:, 2:]) != semantic_on
        assert guide.calls == int(texture_on or semantic_on)


def test_samples_of_a_batch_are_guided_by_their_own_times():
    """Oracle: each row alone."""
    z, _, label = inputs()
    times = torch.tensor([[0.1, 0.1], [0.4, 0.9], [0.9, 0.5]], dtype=torch.float64)
    guided = AutoGuidance(strong, weak, 3.0, LAYOUT, interval=(0.3, 0.6))
    together = guided(z, times, label)
    for row in range(3):
        one = slice(row, row + 1)
        assert torch.equal(together[one], guided(z[one], times[one], label[one]))


def test_classifier_free_forgets_the_label():
    """Oracle: the mixture's own unconditional velocity under its null label."""
    data = small_mixture([0, 1, 1])
    z = torch.randn(3, 3, 1, 1, dtype=torch.float64)
    times = torch.full((3, 2), 0.5, dtype=torch.float64)
    conditional, anyone = data(z, times, LABEL), data(z, times, torch.full((3,), data.null_label))
    guided = ClassifierFree(data, data.null_label, 1.7, LAYOUT)(z, times, LABEL)
    assert_close(guided, anyone + 1.7 * (conditional - anyone))


def test_guided_velocities_nest_and_sample():
    """Oracle: the contract: a guided velocity is a velocity."""
    data = small_mixture([0, 1, 1])
    inner = ClassifierFree(data, data.null_label, 1.5, LAYOUT, interval=(0.2, 0.6))
    outer = AutoGuidance(inner, data, {"semantic": 2.0}, LAYOUT, interval=(0.1, 1.0))
    assert outer.edges == {"texture": (0.2, 0.6), "semantic": (0.1, 0.2, 0.6)}
    z = lwd.sample(outer, lwd.Offset(0.3), LAYOUT, seeds=range(3), labels=LABEL, size=(1, 1)).z
    assert torch.isfinite(z).all()


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"scale": {"semantics": 2}}, ("semantics", "semantic")),
        ({"scale": float("nan")}, ("scale", "nan")),
        ({"scale": "2"}, ("scale", "'2'")),
        ({"scale": 2, "interval": (0.5, 0.2)}, ("interval", "(0.5, 0.2)")),
        ({"scale": 2, "interval": {"texture": (0.1, 1.4)}}, ("interval", "texture", "(0.1, 1.4)")),
        ({"scale": 2, "interval": {"depth": (0.1, 0.4)}}, ("interval", "depth")),
        ({"scale": 1, "interval": (0.1, 0.4)}, ("interval", "scale", 1)),
        ({"scale": {"texture": 2}, "interval": {"semantic": (0.1, 0.4)}}, ("interval", "semantic", 1)),
    ],
)
def test_bad_settings_are_refused_with_a_sentence(options, facts):
    with pytest.raises(lwd.InputError, match=says(facts)):
        AutoGuidance(strong, weak, layout=LAYOUT, **options)
