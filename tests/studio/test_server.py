"""The whole server with Gradio's own routes, over HTTP: what is served, and clients that go away."""

import http.client
import json
import threading
import time
from urllib.parse import urlsplit

import pytest

from studio.made import state

pytestmark = pytest.mark.slow

SECRET = "only for the owner of this machine"
USER = "2" * 32


def ask(address, path, value=None, method=None, user=USER):
    """Status and body; the path is sent as it is written."""
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=120)
    body = None if value is None else json.dumps(value)
    headers = {"content-type": "application/json", "x-studio-user": user}
    connection.request(method or ("GET" if body is None else "POST"), path, body, headers)
    answer = connection.getresponse()
    found = answer.status, answer.read().decode(errors="replace")
    connection.close()
    return found


@pytest.fixture(scope="module")
def secret(tmp_path_factory):
    path = tmp_path_factory.mktemp("secret") / "secret.json"
    path.write_text(json.dumps({"secret": SECRET}))
    return str(path)


def test_no_route_reads_a_file(server, secret):
    """Oracle: a file beside the models, asked for on every route of Gradio that takes a path."""
    dots = "/.." * 12
    for start in ("/static", "/assets", "/svelte", "/studio", "/gradio_api/file=", "/file=", "/custom_component/a/b"):
        for path in (f"{start}{secret}", f"{start}/{secret}", f"{start}{dots}{secret}"):
            for one in (path, path.replace("..", "%2e%2e"), path.replace("/..", "/..%2f")):
                status, body = ask(server[0], one)
                assert status in (403, 404), one
                assert SECRET not in body


def test_gradios_own_computations_and_uploads_are_closed(server):
    for path in ("upload", "run/predict", "call/predict", "queue/join", "reset", "cancel", "component_server", "mcp"):
        assert ask(server[0], f"/gradio_api/{path}", {"data": ["/etc/passwd"], "fn_index": 0})[0] == 404
    for path in ("queue/data?session_hash=a", "upload_progress?upload_id=a", "proxy=http://127.0.0.1/"):
        assert ask(server[0], f"/gradio_api/{path}")[0] == 404


def test_the_page_opens(server):
    """Oracle: what is closed above is closed by choice; the page itself is served."""
    assert ask(server[0], "/")[0] == ask(server[0], "/config")[0] == ask(server[0], "/studio/draw.js")[0] == 200


def test_a_client_that_goes_away_frees_its_place(server):
    """Oracle: the same user may compute again, which is refused while a computation runs."""
    long = {"state": state(count=64, a={"steps": 250, "solver": "rk4"}), "sides": ["A"]}
    small = {"state": state(count=1, a={"steps": 1}), "sides": ["A"]}
    connection = http.client.HTTPConnection(urlsplit(server[0]).netloc, timeout=120)
    headers = {"content-type": "application/json", "x-studio-user": USER}
    connection.request("POST", "/studio/run/sample", json.dumps(long), headers)
    answer = connection.getresponse()
    assert "share" in json.loads(answer.readline())
    assert "error" in json.loads(ask(server[0], "/studio/run/sample", small)[1].splitlines()[-1])
    answer.close()
    connection.close()
    for _ in range(600):
        last = json.loads(ask(server[0], "/studio/run/sample", small)[1].splitlines()[-1])
        if "result" in last:
            break
        time.sleep(0.1)
    assert "result" in last


def test_two_users_at_once_get_their_own_images(server):
    """Oracle: the same request alone."""
    asked = [{"state": state(count=1, seed=seed), "sides": ["A"]} for seed in (1, 2)]
    found: dict[int, str] = {}

    def one(k):
        found[k] = ask(server[0], "/studio/run/sample", asked[k], user=str(k + 3) * 32)[1].splitlines()[-1]

    workers = [threading.Thread(target=one, args=(k,)) for k in (0, 1)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    alone = [ask(server[0], "/studio/run/sample", value)[1].splitlines()[-1] for value in asked]
    assert [found[0], found[1]] == alone
    assert alone[0] != alone[1]
