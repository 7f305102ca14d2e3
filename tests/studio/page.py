"""What tests do with the studio's page, and read from it."""

import lwd


def text(page, name):
    return page.locator(f'[data-value="{name}"]').first.text_content()


def number(page, name):
    return float(text(page, name).replace("\u2212", "-"))


def numbers(page, side="A"):
    return {key: number(page, f"{key}-{side}") for key in ("flow", "energy", "above", "error")}


def knots(page):
    """Where the points are drawn, as local times (semantic, texture)."""
    return page.locator(".knot").evaluate_all(
        "all => all.map(k => [parseFloat(k.style.left) / 100, 1 - parseFloat(k.style.top) / 100])"
    )


def settled(page, work):
    """Do something and wait for its numbers."""
    work()
    page.wait_for_selector("[data-asking='0']")
    page.wait_for_timeout(50)
    page.wait_for_selector("[data-asking='0']")


def at_rest(page, index, still=5):
    """The middle of a point, once it is in view and stays in place: a busy page moves its parts late."""
    knot, seen = page.locator(".knot").nth(index), []
    for _ in range(300):
        knot.scroll_into_view_if_needed()
        box = knot.bounding_box()
        middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        seen = [*seen[-still:], middle]
        if len(seen) > still and len(set(seen)) == 1:
            return middle
        page.wait_for_timeout(100)
    raise AssertionError(f"point {index} does not come to rest: {seen}, {page.viewport_size}")


def drag(page, index, dx, dy):
    page.wait_for_selector("[data-asking='0']")
    x, y = at_rest(page, index)
    before = page.locator(".knot").nth(index).get_attribute("style")
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + dx, y + dy, steps=5)
    page.mouse.up()
    for _ in range(200):
        if page.locator(".knot").nth(index).get_attribute("style") != before:
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"point {index} did not move")


def expected_numbers(page, studio, tau_of=None):
    """What the library computes for the curve that is drawn."""
    places = [(0.0, 0.0), *knots(page), (1.0, 1.0)]
    tau = [x for x, _ in places] if tau_of is None else tau_of
    curve = lwd.PiecewiseLinear(tau, {"texture": [y for _, y in places], "semantic": [x for x, _ in places]})
    return studio.catalog.open("fashion").landscape.numbers(curve, number(page, "lambda"), 10, 2)


def choose(page, group, value):
    page.locator(f"#{group} input[value={value}]").check()


def sample(page, which="draw-both"):
    page.locator(f"#{which}").click()
    page.locator("#results:not(.hidden)").wait_for()
    page.get_by_text("done", exact=True).first.wait_for()
