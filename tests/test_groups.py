import pytest
import torch
from torch.testing import assert_close

from lwd import Group, InputError, Layout
from messages import says

LAYOUT = Layout.of(texture=3, semantic=2, depth=1)


def test_join_undoes_split_and_slices_agree():
    """Oracle: round trip."""
    z = torch.randn(4, 6, 2, 5)
    parts = LAYOUT.split(z)
    assert [part.shape[1] for part in parts.values()] == [3, 2, 1]
    assert torch.equal(LAYOUT.join(parts), z)
    for name, part in parts.items():
        assert torch.equal(z[:, LAYOUT.slice(name)], part)


def test_expand_repeats_each_groups_value_over_its_channels():
    """Oracle: written out by hand."""
    values = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    expected = torch.tensor([[1.0, 1, 1, 2, 2, 3], [4.0, 4, 4, 5, 5, 6]])
    assert torch.equal(LAYOUT.expand(values), expected[:, :, None, None])
    assert torch.equal(LAYOUT.expand(values, ndim=2), expected)


def test_means_are_the_papers_component_norms():
    """Oracle: |a^g|^2 / d_g by definition."""
    z = torch.randn(4, 6, 2, 5, dtype=torch.float64)
    by_hand = torch.stack([z[:, :3].square().sum((1, 2, 3)) / 30, z[:, 3:5].square().sum((1, 2, 3)) / 20,
                           z[:, 5:].square().sum((1, 2, 3)) / 10], 1)  # fmt: skip
    assert_close(LAYOUT.means(z.square()), by_hand)


def test_layouts_are_values():
    assert Layout.parse("texture=3, semantic=2,depth=1") == LAYOUT == Layout(tuple(LAYOUT))
    assert str(LAYOUT) == "texture=3,semantic=2,depth=1"
    assert len({LAYOUT, Layout.parse(str(LAYOUT))}) == 1
    assert (LAYOUT.channels, LAYOUT.names, len(LAYOUT)) == (6, ("texture", "semantic", "depth"), 3)


@pytest.mark.parametrize(
    ("make", "facts"),
    [
        (lambda: Group("texture", 0), ("texture", 0)),
        (lambda: Group("a b", 1), "a b"),
        (lambda: Layout(()), "group"),
        (lambda: Layout.of(), "group"),
        (lambda: Layout((Group("texture", 1), Group("texture", 2))), "texture"),
        (lambda: Layout.parse("texture:3"), "texture:3"),
        (lambda: LAYOUT.index("semantics"), ("semantics", "texture", "semantic", "depth")),
        (lambda: LAYOUT.split(torch.zeros(2, 7, 1, 1)), (6, "(2, 7, 1, 1)")),
        (lambda: LAYOUT.expand(torch.zeros(2, 2)), ("texture", "semantic", "depth", 3, "(2, 2)")),
        (lambda: LAYOUT.join({"texture": torch.zeros(1, 3)}), ("texture", "semantic", "depth")),
        (lambda: LAYOUT.join(dict.fromkeys(LAYOUT.names, torch.zeros(1, 3))), ("semantic", 2, "(1, 3)")),
    ],
)
def test_bad_layouts_are_refused_with_a_sentence(make, facts):
    with pytest.raises(InputError, match=says(facts)):
        make()
