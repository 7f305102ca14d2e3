"""The studio in a real browser: sampling, comparing, cancelling."""

import re

import pytest

import lwd
from messages import says
from studio.page import choose, drag, numbers, sample, settled, text

pytestmark = pytest.mark.slow


def test_sampling_and_scrubbing(visit):
    """Oracle: the times of the schedule at the shown state; A and B start from the same noise."""
    page = visit()
    page.locator("#count").fill("3")
    page.locator("#seed").fill("7")
    for low in ("a", "b"):
        page.locator(f"#steps-{low}").fill("4")
        page.locator(f"#steps-{low}").press("Tab")
    sample(page)
    assert page.locator("[data-image^=A] img").count() == page.locator("[data-image^=B] img").count() == 3
    assert page.locator("[data-image=A-0] img").evaluate("i => i.decode().then(() => i.naturalWidth)") == 28
    assert float(text(page, "tau")) == 1
    page.locator("#tau").fill("20")
    assert page.locator("[data-clock=semantic-B]").text_content() == "0.50"
    assert page.locator("[data-state=texture-B]").get_attribute("data-frame") == "2"
    own = lwd.LWDPipeline.from_pretrained("fashion").checkpoint.schedule
    shown = float(page.locator("[data-clock=texture-A]").text_content())
    assert shown == pytest.approx(float(own.times(0.5)[0].detach()), abs=0.006)
    page.locator("#tau").fill("0")
    pictures = [page.locator(f"[data-state=texture-{s}]").evaluate("n => n.style.backgroundImage") for s in "AB"]
    assert pictures[0] != pictures[1]
    page.locator("[data-image=B-2]").click()
    assert page.locator("[data-image=A-2]").get_attribute("aria-pressed") == "true"
    page.locator("#play").click()
    page.get_by_role("button", name="Pause").wait_for()
    page.locator("#play").click()


def test_comparing_two_settings(visit):
    """Oracle: equal settings differ by exactly nothing."""
    page = visit()
    settled(page, lambda: choose(page, "preset", "synchronous"))
    for low in ("a", "b"):
        page.locator(f"#steps-{low}").fill("2")
        page.locator(f"#steps-{low}").press("Tab")
    page.locator("#compared").fill("20")
    page.locator("#compared").press("Tab")
    page.locator("#compare-go").click()
    page.locator("#compare table").wait_for()
    cells = page.locator("#compare td").all_text_contents()
    assert len(cells) == 6
    assert cells[0] == cells[2]
    assert [float(re.split(r"\s*\u00b1\s*", cell)[0]) for cell in cells[4:]] == [0, 0]
    assert "Neither" in text(page, "verdict")


def test_cancel_stops_a_computation_and_the_next_one_runs(visit):
    page = visit()
    page.locator("#count").fill("64")
    for low in ("a", "b"):
        page.locator(f"#steps-{low}").fill("250")
        page.locator(f"#steps-{low}").press("Tab")
    page.locator("#draw-both").click()
    page.get_by_text("drawing 64 images").first.wait_for()
    page.locator("#sample .cancel").click()
    page.get_by_text("cancelled", exact=True).first.wait_for()
    assert page.locator("#results.hidden").count() == 1
    page.locator("#count").fill("1")
    for low in ("a", "b"):
        page.locator(f"#steps-{low}").fill("2")
        page.locator(f"#steps-{low}").press("Tab")
    sample(page)


def test_two_users_do_not_see_each_others_state(visit):
    first, second = visit(), visit()
    before = numbers(second)
    settled(first, lambda: drag(first, 3, 20, 50))
    second.reload()
    second.wait_for_selector(".main[data-ready]")
    assert numbers(second) == before


def test_a_broken_model_shows_its_one_line(visit, server):
    page = visit(expected=("400",))
    page.locator("#model").select_option(server[1]["broken"])
    page.locator('[data-value="error"]').wait_for()
    assert says("config.json").search(text(page, "error"))
    assert page.locator("#model").input_value() == "fashion"
    settled(page, lambda: choose(page, "preset", "cascade"))


def test_three_groups(visit, server):
    page = visit()
    page.locator("#model").select_option(server[1]["three"])
    page.wait_for_selector(f".main[data-ready='{server[1]['three']}']")
    assert page.locator("#draw canvas").count() == 3
    settled(page, lambda: choose(page, "preset", "cascade"))
    assert page.locator(".knot").count() == 3 * 2
    settled(page, lambda: page.locator(".knot").nth(0).press("ArrowUp"))
    page.locator("#count").fill("2")
    page.locator("#steps-a").fill("4")
    page.locator("#steps-a").press("Tab")
    sample(page, "draw-a")
    assert page.locator("[data-clock]").count() == 3
