"""One studio for the tests of a file: it keeps no state of a request; and the page in a browser."""

import gc
import socket
import warnings
from contextlib import contextmanager

import pytest

from browsers import start_browser
from lwd.studio.service import Studio
from studio.made import THREE, broken, probe, settings

PATIENCE = 120_000
"""Milliseconds; only a hang takes that long."""


@pytest.fixture(scope="session")
def three(tmp_path_factory):
    return probe(tmp_path_factory.mktemp("three") / "probe", THREE)


@pytest.fixture(scope="session")
def studio(three, tmp_path_factory):
    two = probe(tmp_path_factory.mktemp("two") / "probe", ("texture", "semantic"), decoder=True)
    found = Studio(settings("fashion", three, two))
    yield found
    found.desk.close()


@pytest.fixture(scope="module")
def browser():
    yield from start_browser()


def free_port():
    """Gradio's own search for one would race with other tests."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextmanager
def forgotten_loops():
    """Gradio leaves event loops open, whose warnings would be errors of whatever test is running then."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("studio")
    models = ["fashion", probe(folder / "three", THREE), broken(folder / "broken")]
    pytest.importorskip("gradio", reason="gradio is not installed: pip install 'lwd[studio]'")
    from lwd.studio.app import launch

    with pytest.MonkeyPatch.context() as patch, forgotten_loops():
        asked, look_up = [], socket.getaddrinfo

        def noted(host, *arguments, **options):
            asked.append(host)
            return look_up(host, *arguments, **options)

        patch.setattr(socket, "getaddrinfo", noted)
        blocks, address = launch(settings(*models, port=free_port()), block=False)
    assert set(asked) <= {"127.0.0.1", "localhost", b"127.0.0.1", b"localhost"}  # starting asks no other machine
    yield address, dict(zip(("fashion", "three", "broken"), map(str, models), strict=True))
    with forgotten_loops():
        blocks.close()


@pytest.fixture
def visit(browser, server):
    """Opens the page; at the end no script may have failed, and no other machine been asked for anything."""
    troubles, contexts = [], []

    def open_page(fragment="", width=1280, expected=(), **options):
        contexts.append(browser.new_context(viewport={"width": width, "height": 900}, **options))
        page = contexts[-1].new_page()
        page.set_default_timeout(PATIENCE)

        def note(text):
            if not any(one in text for one in expected):
                troubles.append(text)

        page.on("console", lambda message: note(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: note(f"error: {error}"))

        def only_here(route):
            url = route.request.url
            if url.startswith((server[0], "data:", "blob:")):
                return route.continue_()
            troubles.append(f"request: {url}")
            return route.abort()

        page.route("**/*", only_here)
        page.goto(server[0] + fragment)
        page.wait_for_selector(".main[data-ready]")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not troubles
