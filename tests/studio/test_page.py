"""The studio's page for demanding users: errors in sight, limits, keyboard, grey scale, a server that goes away."""

import pytest

from messages import says
from studio.page import choose, sample, settled, text

pytestmark = pytest.mark.slow

CONTROLS = {"button", "combobox", "textbox", "spinbutton", "slider", "radio"}


def few_steps(page, steps="2"):
    page.locator("#count").fill("1")
    for low in ("a", "b"):
        page.locator(f"#steps-{low}").fill(steps)
        page.locator(f"#steps-{low}").press("Tab")


def focused(page):
    """Name of the focused control, and the width of its focus ring."""
    return page.evaluate("""() => {
      const node = document.activeElement?.shadowRoot?.activeElement;
      return node ? [node.id || node.className, parseFloat(getComputedStyle(node).outlineWidth)] : null;
    }""")


def test_an_error_is_in_sight_and_ends_with_the_next_action(visit, server):
    """Oracle: the box of the message is inside the window, from the top of a page that is far longer."""
    page = visit(width=390, expected=("400",))
    page.evaluate("scrollTo(0, 0)")
    page.locator("#model").select_option(server[1]["broken"])
    page.locator('[data-value="error"]').wait_for()
    box = page.locator(".alert").bounding_box()
    assert 0 <= box["y"] < box["y"] + box["height"] <= 900
    assert 0 <= box["x"] < box["x"] + box["width"] <= 390
    settled(page, lambda: choose(page, "preset", "cascade"))
    assert page.locator('[data-value="error"]').count() == 0


def test_numbers_out_of_range_say_the_range(visit):
    page = visit()
    for given, kept in (("1000", "64"), ("-3", "1"), ("2.4", "2"), ("", "2")):
        page.locator("#count").fill(given)
        page.locator("#count").press("Tab")
        assert page.locator("#count").input_value() == kept
        assert says(1, 64).search(page.locator("#count + .limit").text_content())
    page.locator("#count").fill("7")
    page.locator("#count").press("Tab")
    assert page.locator(".limit").count() == 0


def test_progress_and_cancel_are_where_the_computation_was_started(visit):
    page = visit()
    few_steps(page)
    sample(page)
    assert page.locator("#compare [data-value=report]").text_content() == ""
    page.locator("#smooth").click()
    page.locator("#draw [data-value=report]").get_by_text("done", exact=True).wait_for()
    assert page.locator("#sample [data-value=report]").text_content() == ""


def test_choosing_another_model_cancels_and_the_next_computation_runs(visit, server):
    page = visit()
    few_steps(page, "250")
    page.locator("#count").fill("64")
    page.locator("#draw-both").click()
    page.get_by_text("drawing 64 images").first.wait_for()
    page.locator("#model").select_option(server[1]["three"])
    page.wait_for_selector(f".main[data-ready='{server[1]['three']}']")
    assert page.locator("#results.hidden").count() == 1
    few_steps(page)
    sample(page, "draw-a")
    assert page.locator("[data-clock]").count() == 3


def test_a_server_that_is_gone_is_said(visit):
    page = visit(expected=("ERR_FAILED",))
    page.route("**/studio/curve", lambda route: route.abort())
    choose(page, "preset", "cascade")
    page.locator('[data-value="error"]').wait_for()
    assert "lwd studio" in text(page, "error")


def test_everything_can_be_done_with_the_keyboard(visit):
    """Oracle: Tab reaches every enabled control once, each with a ring; keys draw, cancel and scrub."""
    page = visit()
    few_steps(page)
    page.locator("#model").focus()
    seen = ["model"]
    while len(seen) < 99:
        page.keyboard.press("Tab")
        now = focused(page)
        if now is None:
            break
        assert now[1] >= 2, now
        seen.append(now[0])
    assert {"model", "lambda", "add", "count", "guide-b", "draw-both", "compare-go", "download", "link"} <= set(seen)
    assert seen.count("knot") == 7
    assert "upload" not in seen  # the button that opens it is there
    page.locator("#draw-a").focus()
    page.keyboard.press("Enter")
    page.locator("#results:not(.hidden)").wait_for()
    page.locator("#tau").focus()
    page.keyboard.press("Home")
    assert page.locator("[data-clock=texture-A]").text_content() == "0.00"
    page.locator("[data-image=A-0]").focus()
    assert focused(page)[1] >= 2


def test_controls_have_names(visit):
    """Oracle: the browser's own accessibility tree, with guidance and results open."""
    page = visit()
    few_steps(page)
    page.locator("#guide-a").select_option("null")
    sample(page, "draw-a")
    tree = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")
    names = {}
    for node in tree["nodes"]:
        role = node.get("role", {}).get("value")
        if role in CONTROLS and not node.get("ignored"):
            names.setdefault(role, []).append(node.get("name", {}).get("value", "").strip())
    assert set(names) == CONTROLS
    assert all(all(found) for found in names.values())


def test_a_and_b_differ_in_more_than_colour(visit):
    """Oracle: rings on the clocks of B only, also in its legend; dashes on the map."""
    page = visit()
    settled(page, lambda: choose(page, "preset", "synchronous"))  # A now hides B's lines
    marks = page.locator(".beside .plot circle")
    assert marks.count() == 2 * 4
    assert len(page.locator(".beside .legend li:has(circle)").all_text_contents()) == 1
    assert page.locator(".curve-B").first.get_attribute("stroke-dasharray")
    assert page.locator(".curve-A").first.get_attribute("stroke-dasharray") is None


def test_a_late_answer_does_not_replace_a_newer_one(visit):
    """Oracle: the answer for the first seed is held back until that for the second is shown."""
    page, held = visit(), []
    page.locator('[data-value="command"]:not(:empty)').wait_for()
    page.route("**/studio/takeaway", lambda route: route.continue_() if held else held.append(route))
    page.locator("#seed").fill("11")
    with page.expect_request("**/studio/takeaway"):
        page.locator("#seed").press("Tab")
    page.locator("#seed").fill("12")
    page.locator("#seed").press("Tab")
    page.locator('[data-value="command"]', has_text="--seed 12").wait_for()
    with page.expect_response("**/studio/takeaway"):
        held[0].continue_()
    page.wait_for_timeout(500)
    assert "--seed 12" in text(page, "command")


def test_the_link_button_says_that_it_copied(visit):
    page = visit(permissions=["clipboard-read", "clipboard-write"])
    page.locator("#copy-link").click()
    page.locator("[data-value=copied]:not(:empty)").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == page.locator("#link").input_value()
