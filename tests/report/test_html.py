"""The report page: what a story must hold, and what the file may hold."""

import json
import re
from html.parser import HTMLParser

import pytest

from lwd.errors import InputError
from lwd.report.html import render, script, write_report
from messages import says
from report.made_story import SECTIONS, changed, hostile


class Elements(HTMLParser):
    """Tags with their attributes, and the text of each script and style element."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.texts = [], {"script": [], "style": []}
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag in self.texts:
            self.texts[tag].append("")

    def handle_data(self, data):
        if self.tags and self.tags[-1][0] in self.texts:
            self.texts[self.tags[-1][0]][-1] += data


@pytest.mark.parametrize(
    "place",
    [
        ("title",),
        ("lead_group",),
        ("curves",),
        ("table",),
        ("curves", "tau"),
        ("curves", "schedules", 1, "times", "texture"),
        ("path", "points", 2, "energy"),
        ("path", "threshold"),
        ("surfaces", "axis"),
        ("trajectory", "runs", 0, "semantic"),
        ("grids", "items", 3, "alt"),
        ("losses", "y"),
        ("table", "columns", 0, "help"),
        ("commands", 0, "text"),
    ],
    ids=lambda place: ".".join(map(str, place)),
)
def test_a_missing_key_is_named_with_its_place(story, place):
    where = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in place[:-1])
    with pytest.raises(InputError, match=says(f"story{where}", place[-1])):
        render(changed(story, place, drop=True))


@pytest.mark.parametrize(
    ("place", "value", "facts"),
    [
        (("trajektory",), None, ("trajektory", "trajectory")),
        (("version",), 2, ("version", 2, 1)),
        (("groups",), ["texture"], ("texture", "semantic")),
        (("findings",), "one", ("story.findings", "one")),
        (("title",), 3, ("story.title", 3)),
        (
            ("path", "points", 0, "objective"),
            float("nan"),
            ("story.path.points[0].objective", "nan"),
        ),
        (("curves", "tau"), [0.0, 1.0], ("story.curves.schedules[0].times.texture", 41, 2)),
        (("surfaces", "panels", 1, "values"), [[1.0]], ("story.surfaces.panels[1].values", 1, 11)),
        (("grids", "items", 0, "image"), "https://example.org/a.png", "story.grids.items[0].image"),
        (("trajectory", "runs", 1, "texture"), ["a.png"], "story.trajectory.runs[1].texture[0]"),
        (("path", "points"), [], "story.path.points"),
        (("losses", "runs"), [], "story.losses.runs"),
        (("about", "seed"), 0, ("story.about.seed", 0)),
    ],
)
def test_what_cannot_be_drawn_is_refused(story, place, value, facts):
    with pytest.raises(InputError, match=says(facts)):
        render(changed(story, place, value))


def test_the_story_comes_back_from_the_page(story):
    """Oracle: round trip, for every string hostile; and the page has the two scripts that the template has."""
    for given in (story, hostile(story)):
        elements = Elements(render(given))
        assert [tag for tag, _ in elements.tags].count("script") == 2
        assert json.loads(elements.texts["script"][0]) == given
        assert elements.texts["script"][1].strip() == script().strip()


def test_nothing_in_the_page_can_be_fetched(story):
    elements = Elements(render(story))
    for tag, attributes in elements.tags:
        for name in {"src", "href", "srcset", "action", "data", "poster"} & set(attributes):
            assert attributes[name].startswith("data:"), (tag, attributes)
    metas = [a["content"] for tag, a in elements.tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert metas
    assert metas[0].startswith("default-src 'none'; img-src data:;")
    ours = elements.texts["style"][0] + elements.texts["script"][1]
    assert not re.search(r"https?:|@import|@font-face|[\"'`(]//", ours)
    assert not re.search(r"\b(fetch|import|XMLHttpRequest|WebSocket|EventSource|sendBeacon|Worker)\b\s*\(", ours)
    assert re.findall(r"url\([^)]*\)", ours) == ["url(#hatch)"] * ours.count("url(")


def test_the_script_never_parses_text_as_markup_or_code():
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|srcdoc", script()
    )


def test_sections_may_be_null_or_absent(story):
    for name in SECTIONS:
        assert f'"{name}":null' in render(changed(story, (name,)))
        render(changed(story, (name,), drop=True))


def test_a_refused_story_leaves_the_old_report(story, tmp_path):
    path = tmp_path / "new" / "report.html"
    write_report(story, path)
    assert path.read_text("utf-8") == render(story)
    with pytest.raises(InputError):
        write_report(changed(story, ("lead",), drop=True), path)
    assert path.read_text("utf-8") == render(story)
    assert [p.name for p in path.parent.iterdir()] == ["report.html"]
