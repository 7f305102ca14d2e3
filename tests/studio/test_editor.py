"""The studio in a real browser: the curve editor, and what is taken away."""

import json
import re
from itertools import pairwise

import pytest

import lwd
from lwd.schedule.io import load_schedule, save_schedule
from messages import says
from studio.page import choose, drag, expected_numbers, knots, numbers, settled, text

pytestmark = pytest.mark.slow


def test_dragging_a_point_changes_the_numbers_to_those_of_the_library(visit, studio):
    """Oracle: the drawn curve as a PiecewiseLinear, on the shipped surfaces; four digits are shown."""
    page = visit()
    before = numbers(page)
    settled(page, lambda: drag(page, 3, 25, 60))
    after = numbers(page)
    assert after != before
    wanted = expected_numbers(page, studio)
    for key, value in after.items():
        assert value == pytest.approx(wanted[key], rel=2e-3, abs=2e-6), key
    assert page.locator("#preset input[value=drawn]").is_checked()
    assert "trained" in text(page, "trained-A").lower()


def test_keys_move_points_and_points_stay_in_order(visit, studio):
    page = visit()
    point = page.locator(".knot").nth(2)
    start = knots(page)
    settled(page, lambda: point.press("ArrowDown"))
    assert knots(page)[2][1] == pytest.approx(start[2][1] - 0.01, abs=1e-3)
    settled(page, lambda: point.press("Shift+ArrowRight"))
    assert knots(page)[2][0] == pytest.approx(min(start[2][0] + 0.1, start[3][0]), abs=3e-3)
    for _ in range(4):
        settled(page, lambda: point.press("Shift+ArrowUp"))
    found = knots(page)
    assert all(a[0] <= b[0] and a[1] <= b[1] for a, b in pairwise(found))
    assert numbers(page)["flow"] == pytest.approx(expected_numbers(page, studio)["flow"], rel=2e-3)
    settled(page, lambda: page.locator(".knot").nth(2).press("Delete"))
    assert len(knots(page)) == len(start) - 1
    settled(page, lambda: page.locator("#add").click())
    assert len(knots(page)) == len(start)
    assert "semantic" in page.locator(".knot").first.get_attribute("aria-valuetext")


def test_a_finger_drags_too(visit):
    """Oracle: the browser's own touch events on a phone."""
    page = visit(width=390, has_touch=True, is_mobile=True)
    before = knots(page)
    page.locator(".knot").nth(4).scroll_into_view_if_needed()
    box = page.locator(".knot").nth(4).bounding_box()
    assert box["width"] >= 44
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    session = page.context.new_cdp_session(page)
    touch = lambda kind, points: session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})  # noqa: E731
    touch("touchStart", [{"x": x, "y": y}])
    for k in range(1, 6):
        touch("touchMove", [{"x": x, "y": y + 6 * k}])
    touch("touchEnd", [])
    page.wait_for_timeout(1000)
    assert knots(page)[4][1] < before[4][1] - 0.02
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_presets_and_sliders(visit, studio):
    page = visit()
    landscape = studio.catalog.open("fashion").landscape
    for name, schedule in (("synchronous", lwd.Synchronous()), ("cascade", lwd.Cascade()), ("offset", lwd.Offset(0.3))):
        settled(page, lambda name=name: choose(page, "preset", name))
        assert numbers(page)["flow"] == pytest.approx(landscape.terms(schedule)[0], rel=1e-3)
    settled(page, lambda: page.locator("#delta").fill("9"))
    assert numbers(page)["energy"] == pytest.approx(landscape.terms(lwd.Offset(0.5))[1], rel=1e-3)
    settled(page, lambda: choose(page, "preset", "learned"))
    for place in (0, len(landscape.found.points) - 1):
        settled(page, lambda place=place: page.locator("#lambda").fill(str(place)))
        point = landscape.found.points[place]
        assert numbers(page)["above"] == pytest.approx(point.objective - point.floor, abs=2e-5)


def test_a_schedule_goes_out_and_comes_back(visit, tmp_path):
    page = visit()
    settled(page, lambda: drag(page, 3, 10, 40))
    before, drawn = numbers(page), knots(page)
    with page.expect_download() as got:
        page.locator("#download").click()
    got.value.save_as(tmp_path / "schedule.json")
    schedule = load_schedule(tmp_path / "schedule.json")
    assert len(schedule.knots()[0]) == len(drawn) + 2
    assert "--schedule schedule.json" in text(page, "command")
    other = visit(expected=("400",))  # of the bad files below
    settled(other, lambda: other.locator("#upload").set_input_files(tmp_path / "schedule.json"))
    assert numbers(other) == before
    assert knots(other) == drawn
    for name, content, facts in (
        ("bad.json", "{", ("bad.json",)),
        ("many.json", json.dumps({"tau": list(range(10**6))}), ("many.json", 200)),
        ("other.json", json.dumps(lwd.Synchronous(("a", "b")).to_dict()), ("texture", "semantic")),
    ):
        (tmp_path / name).write_text(content)
        visit_bad(other, tmp_path / name, facts)
    save_schedule(lwd.Offset(0.2), tmp_path / "good.json")
    settled(other, lambda: other.locator("#upload").set_input_files(tmp_path / "good.json"))
    assert len(knots(other)) == 2


def visit_bad(page, path, facts):
    page.locator("#upload").set_input_files(path)
    page.wait_for_timeout(800)
    assert says(facts).search(text(page, "error"))


def test_a_link_reopens_the_state(visit):
    page = visit()
    settled(page, lambda: drag(page, 4, 5, 30))
    page.locator("#label").select_option("sandal")
    page.locator("#guide-b").select_option("fashion-weak")
    page.locator("#scale-texture-b").fill("1.7")
    page.locator("#scale-texture-b").press("Tab")
    page.locator("#copy-link").click()
    page.wait_for_timeout(800)
    link = page.locator("#link").input_value()
    before = numbers(page)
    other = visit("#" + link.split("#")[1])
    assert numbers(other) == before
    assert other.locator("#label").input_value() == "sandal"
    assert other.locator("#scale-texture-b").input_value() == "1.7"
    assert text(other, "command") == text(page, "command")
    cut = visit("#" + link.split("#")[1][:-9], expected=("400",))
    assert "link" in text(cut, "error")


@pytest.mark.parametrize("width", [360, 768])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_narrow_screens_and_contrast(visit, width, scheme):
    """Oracle: no sideways scrolling; the contrast ratio of WCAG 2, at least 4.5."""
    page = visit(width=width, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    found = page.evaluate("""() => {
      const root = document.getElementById("studio").shadowRoot, style = s => getComputedStyle(root.querySelector(s));
      const texts = [".lead", ".help", "#numbers td", ".note", ".field", "select", "code", "button", ".tag.a"];
      return { back: style(".page").backgroundColor, text: texts.map(s => style(s).color) };
    }""")

    def luminance(colour):
        parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    back = luminance(found["back"])
    assert (back > 0.8) if scheme == "light" else (back < 0.05)
    for front in map(luminance, found["text"]):
        assert (max(front, back) + 0.05) / (min(front, back) + 0.05) >= 4.5
