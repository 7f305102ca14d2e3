"""The page's requests over HTTP, without a browser: errors, limits, confinement, users."""

import json
import sys
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="it comes with gradio: pip install 'lwd[studio]'")

from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

import lwd
from lwd.assets import FASHION
from lwd.errors import InputError
from lwd.studio.app import FILES, LOOPBACK, POLICY, Guard, Routes
from lwd.studio.models import Catalog
from lwd.studio.service import Studio
from lwd.studio.settings import LETTERS
from messages import says
from studio.made import broken, probe, settings, state
from studio.test_state import JSON

USERS = ["0" * 32, "1" * 32]
OPENED: list[str] = []
WATCHING = [False]


def _hook(event, arguments):
    if WATCHING and WATCHING[0] and event == "open" and isinstance(arguments[0], str | bytes | Path):
        OPENED.append(str(arguments[0]))


sys.addaudithook(_hook)


def client_of(studio):
    app = Starlette(routes=Routes(studio).all(), middleware=[Middleware(Guard, policy=POLICY)])
    return TestClient(app, raise_server_exceptions=False)


@pytest.fixture(scope="module")
def client(studio):
    return client_of(studio)


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost:7860", 200), ("127.0.0.1", 200), ("[::1]:7860", 200), ("evil.example:7860", 403), ("", 403)],
)
def test_a_local_studio_does_not_answer_under_other_names(studio, host, status):
    """DNS rebinding: a foreign page whose name was pointed at this machine sends its own name as Host."""
    guard = Middleware(Guard, policy=POLICY, hosts=LOOPBACK)
    client = TestClient(Starlette(routes=Routes(studio).all(), middleware=[guard]))
    assert client.get("/studio/draw.js", headers={"host": host}).status_code == status


def run(client, name, value, user=USERS[0]):
    """All reports of a computation."""
    answer = client.post(f"/studio/run/{name}", json=value, headers={"x-studio-user": user})
    return [json.loads(line) for line in answer.text.splitlines()]


def test_a_model_opens_with_a_state_that_samples(client):
    opened = client.post("/studio/open", json={}).json()
    assert opened["model"] == "fashion"
    assert opened["groups"] == ["texture", "semantic"]
    assert opened["guides"] == ["null", "fashion-weak", *opened["models"][1:]]
    small = opened["state"] | {"count": 1, "a": opened["state"]["a"] | {"steps": 2}}
    reports = run(client, "sample", {"state": small, "sides": ["A"]})
    assert reports[-1]["result"]["labels"] == [opened["state"]["label"]]
    took = client.post("/studio/takeaway", json={"state": small}).json()
    again = client.post("/studio/reopen", json={"link": took["link"]}).json()
    assert again["state"] == small | {"b": again["state"]["b"]}


def test_presets_are_the_librarys(client, studio):
    """Oracle: the schedules themselves, and the point of the path for the learned one."""
    learned = studio.catalog.open("fashion").landscape.found.points[1]
    wanted = {
        "synchronous": ({}, lwd.Synchronous()),
        "offset": ({"delta": 0.45}, lwd.Offset(0.45)),
        "cascade": ({}, lwd.Cascade()),
        "learned": ({"lambda": learned.kinetic}, learned.schedule),
        "model": ({}, lwd.LWDPipeline.from_pretrained("fashion").checkpoint.schedule),
    }
    for name, (values, schedule) in wanted.items():
        found = client.post("/studio/curve", json={"model": "fashion", "preset": name, **values}).json()
        assert found["schedule"] == schedule.to_dict()
        assert found["trained"] is (name == "model")
    drawn = client.post("/studio/curve", json={"model": "fashion", "schedule": lwd.Offset(0.2).to_dict()}).json()
    assert drawn["knots"] == {"tau": list(lwd.Offset(0.2).knots()[0]), "times": drawn["knots"]["times"]}


@pytest.mark.slow
def test_a_smooth_curve_replaces_a_drawn_one(client):
    """Oracle: no kinks are left, and the curve is near the drawn one."""
    drawn = lwd.PiecewiseLinear((0, 0.4, 0.8, 1), {"texture": (0, 0.2, 0.5, 1), "semantic": (0, 0.4, 0.8, 1)})
    result = run(client, "smooth", {"model": "fashion", "schedule": drawn.to_dict()})[-1]["result"]
    smooth = lwd.schedule_from_dict(result)
    assert smooth.breakpoints == ()
    assert float((smooth.times(0.8) - drawn.times(0.8)).abs().max()) < 0.05


@pytest.mark.parametrize(
    ("name", "value", "facts"),
    [
        ("open", {"model": "../../etc"}, ("../../etc", "fashion")),
        ("open", {"model": ["fashion"]}, ("fashion",)),
        ("open", [], ("list",)),
        ("curve", {"model": "fashion", "preset": "offset", "delta": 7}, (7.0,)),
        ("curve", {"model": "fashion", "preset": "/etc/passwd"}, ("/etc/passwd", "offset")),
        ("curve", {"model": "fashion", "preset": "learned", "lambda": "x"}, ("lambda",)),
        ("curve", {"model": "fashion", "schedule": "/etc/passwd"}, ("str",)),
        ("curve", {"model": "fashion", "preset": "cascade", "lambda": 1e308}, ("lambda",)),
        ("takeaway", {"state": state() | {"lambda": 1e308}}, ("lambda",)),
        ("maps", {"model": "fashion", "held": 2}, (2,)),
        ("reopen", {"link": "/etc/passwd"}, ("link",)),
        ("takeaway", {"state": {"format": "lwd.studio"}}, ("version",)),
        ("nothing", {}, ("nothing", "curve")),
    ],
)
def test_bad_requests_get_one_line(client, name, value, facts):
    answer = client.post(f"/studio/{name}", json=value)
    assert answer.status_code == 400
    assert says(facts).search(answer.json()["error"])
    assert "\n" not in answer.json()["error"]


def test_a_huge_request_is_not_read(client):
    answer = client.post("/studio/curve", json={"schedule": "x" * LETTERS})
    assert says(LETTERS).search(answer.json()["error"])
    assert "JSON" in client.post("/studio/curve", content="a=1").json()["error"]
    assert "JSON" in client.post("/studio/curve", content="[" * 9999, headers={"content-type": "application/json"}).text


@given(
    st.sampled_from(("open", "reopen", "curve", "maps", "takeaway")),
    st.dictionaries(
        st.sampled_from(("model", "schedule", "preset", "lambda", "steps", "solver", "delta", "held", "state", "link")),
        JSON,
    ),
)
def test_no_request_is_an_internal_error(studio, name, value):
    """Oracle: an answer, or an InputError."""
    for given_ in (value, {"model": "fashion", **value}):
        with suppress(InputError):
            json.dumps(studio.answer(name, given_), allow_nan=False)


@given(
    st.sampled_from(("sample", "compare", "smooth", "solve")),
    JSON,
    st.sampled_from(("state", "count", "model", "schedule")),
)
def test_no_computation_starts_on_a_bad_request(studio, name, value, key):
    base = {"state": state(a={"schedule": 1}), "count": 20, "model": "nothing", "schedule": {}}
    with pytest.raises(InputError):
        list(studio.run(name, USERS[0], base | {key: value}))


@pytest.mark.parametrize(
    "path",
    [
        "/gradio_api/file=/etc/passwd",
        "/file=/etc/passwd",
        "/gradio_api/upload",
        "/gradio_api/proxy=http://example.org",
        "/studio/../../../../etc/passwd",
        "/studio/%2e%2e/%2e%2e/etc/passwd",
        "/studio/service.py",
        "/monitoring",
        "/gradio_api/run/x",
        "/docs",
        "/openapi.json",
    ],
)
def test_nothing_else_is_served(client, path):
    assert client.get(path).status_code == 404


def test_numbers_that_json_does_not_have(client):
    """Oracle: Python writes and reads them, so a request can hold them."""
    for number in ("NaN", "Infinity", "-Infinity", "1e999", "9" * 5000):
        for key in ("lambda", "delta", "steps"):
            content = f'{{"model": "fashion", "preset": "offset", "delta": 0.2, "{key}": {number}}}'
            answer = client.post("/studio/curve", content=content, headers={"content-type": "application/json"})
            assert answer.status_code == 400
            assert "internal" not in answer.json()["error"]


def test_web_sockets_are_closed(client):
    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/"):
        pass


def test_the_pages_files_are_served_with_a_policy(client):
    for name in FILES:
        answer = client.get(f"/studio/{name}")
        assert answer.status_code == 200
        assert "default-src 'self'" in answer.headers["content-security-policy"]


def test_requests_open_no_file_outside_the_models(client, three):
    """Oracle: every file that is opened while hostile requests are answered, by Python's own audit events."""
    hostile = [
        "/etc/passwd",
        "../../../etc/passwd",
        "file:///etc/passwd",
        "~/.ssh/id_rsa",
        str(three / "../secret.json"),
    ]
    client.post("/studio/open", json={"model": "fashion"})
    OPENED.clear()
    WATCHING[0] = True
    try:
        for text in hostile:
            for name in ("open", "curve", "maps", "reopen"):
                client.post(f"/studio/{name}", json={"model": text, "schedule": text, "link": text, "preset": text})
            client.post("/studio/curve", json={"model": "fashion", "schedule": text, "preset": None})
            for field in ("label", "model"):
                run(client, "sample", {"state": state(**{field: text}) if field != "model" else state(text)})
            for field in ("guide", "placement", "solver"):
                run(client, "sample", {"state": state(a={field: text, "scale": {"texture": 2.0}})})
    finally:
        WATCHING[0] = False
    allowed = (str(FASHION), str(three), sys.prefix, sys.base_prefix, str(Path(lwd.__file__).parent))
    assert [path for path in OPENED if not path.startswith(allowed)] == []


def test_users_do_not_share_computations(client, studio):
    """Oracle: a job of one user cannot be cancelled, or be seen to run, by another."""
    jobs = studio.desk.run(USERS[0], lambda job: [job.report(0.1) for _ in iter(int, 1)])
    next(jobs)
    assert client.post("/studio/cancel", json={}, headers={"x-studio-user": USERS[1]}).json() == {"cancelled": False}
    again = client.post(
        "/studio/run/smooth",
        json={"model": "fashion", "schedule": lwd.Cascade().to_dict()},
        headers={"x-studio-user": USERS[0]},
    )
    assert "running" in again.text
    assert client.post("/studio/cancel", json={}, headers={"x-studio-user": USERS[0]}).json() == {"cancelled": True}
    assert list(jobs)[-1] == {"cancelled": True}
    assert "key" in client.post("/studio/cancel", json={}, headers={"x-studio-user": "me"}).json()["error"]


def test_a_broken_model_is_one_line_and_the_others_open(tmp_path):
    client = client_of(Studio(settings(broken(tmp_path / "broken"), "fashion")))
    answer = client.post("/studio/open", json={})
    assert answer.status_code == 400
    assert says("config.json").search(answer.json()["error"])
    assert client.post("/studio/names", json={}).json()["models"] == [str(tmp_path / "broken"), "fashion"]
    assert client.post("/studio/open", json={"model": "fashion"}).json()["model"] == "fashion"


def test_models_that_do_not_exist_are_refused_at_the_start(tmp_path):
    with pytest.raises(InputError, match=says("fashion")):
        Catalog(settings(tmp_path / "nothing"))


def test_trained_under_one_schedule_or_at_all_times(tmp_path, studio):
    """Oracle: the offset it was trained with, another one, and a probe that knows every schedule."""
    names = ("texture", "semantic")
    single = Catalog(settings(probe(tmp_path / "one", names, any_schedule=False))).open(str(tmp_path / "one"))
    assert single.trained(lwd.Synchronous())[0]
    assert single.trained(lwd.PiecewiseLinear((0, 0.9, 1), ((0, 0.5, 1), (0, 0.5, 1))))[0]  # the same path, later
    trained, text = single.trained(lwd.Offset(0.4))
    assert not trained
    assert says("0.20").search(text)
    two = studio.catalog.names[2]
    assert studio.catalog.open(two).trained(lwd.Cascade())[0]


def test_a_demo_offers_its_probe_and_its_models(tmp_path):
    """Oracle: the directories that `lwd demo` writes; all share the surfaces and the path of the probe."""
    (tmp_path / "demo.json").write_text("{}")
    for name in ("surface", "train/synchronous", "train/learned"):
        (tmp_path / name).mkdir(parents=True)
    found = Catalog(settings(tmp_path))
    assert found.names == [str(tmp_path / name) for name in ("surface", "train/synchronous", "train/learned")]
    for entry in found.entries.values():
        assert entry.surfaces == tmp_path / "surface"
        assert entry.path == tmp_path / "path" / "path.json"
        assert entry.decoder is not None
