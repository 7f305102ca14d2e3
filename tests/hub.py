"""A hub on 127.0.0.1 for the real huggingface_hub client: the few answers it needs, and what can go wrong."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "c0ffee" + "0" * 34


class LocalHub:
    """Repositories are folders root/owner/name; every revision in `revisions` has the same files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.revisions = {"main": COMMIT, COMMIT: COMMIT}
        self.cut: dict[str, int] = {}
        """Connections break after this many bytes of a file."""
        self.claimed: dict[str, dict[str, Any]] = {}
        """What the listing says about a file, instead of the truth."""
        self.denied: dict[str, tuple[int, str]] = {}
        """Status and error code instead of a listing ("list") or of files ("file")."""
        self.tokens: dict[str, set[str | None]] = {"hub": set(), "cdn": set()}
        """Authorization headers that arrived."""
        self.sent: list[tuple[str, int, int]] = []
        """Each answer with content: file, first byte, number of bytes."""
        self.url = ""

    def put(self, repository: str, path: str, content: bytes) -> Path:
        place = self.root / repository / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        return place

    @contextmanager
    def serving(self) -> Iterator["LocalHub"]:
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        self.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def listing(self, repository: str, commit: str) -> dict[str, Any]:
        root, siblings = self.root / repository, []
        for path in sorted(p for p in root.rglob("*") if p.is_file()):
            name, content = path.relative_to(root).as_posix(), path.read_bytes()
            about = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()} | self.claimed.get(name, {})
            siblings.append({"rfilename": name, "size": about["size"], "lfs": {**about, "pointerSize": 130}})
        return {"id": repository, "sha": commit, "siblings": siblings, "private": False, "tags": [], "downloads": 0}


def _handler(hub: LocalHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def answer(self, status: int, headers: dict[str, Any], content: bytes = b"", upto: int | None = None) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": len(content), "Connection": "close", **headers}.items():
                self.send_header(name, str(value))
            self.end_headers()
            self.wfile.write(content[:upto])
            self.close_connection = True

        def do_GET(self) -> None:
            parts = unquote(urlsplit(self.path).path).strip("/").split("/")
            hub.tokens["cdn" if parts[0] == "cdn" else "hub"].add(self.headers.get("Authorization"))
            if parts[0] == "cdn":
                self.content("/".join(parts[1:3]), "/".join(parts[3:]))
            elif parts[:2] == ["api", "models"]:
                self.list("/".join(parts[2:4]), parts[5] if parts[4:5] == ["revision"] else "main")
            else:
                self.file("/".join(parts[:2]), parts[3], "/".join(parts[4:]))

        def refuse(self, status: int, code: str) -> None:
            self.answer(status, {"X-Error-Code": code, "X-Error-Message": code})

        def list(self, repository: str, revision: str) -> None:
            if "list" in hub.denied:
                self.refuse(*hub.denied["list"])
            elif not (hub.root / repository).is_dir():
                self.refuse(404, "RepoNotFound")
            elif revision not in hub.revisions:
                self.refuse(404, "RevisionNotFound")
            else:
                content = json.dumps(hub.listing(repository, hub.revisions[revision])).encode()
                self.answer(200, {"Content-Type": "application/json"}, content)

        def file(self, repository: str, revision: str, path: str) -> None:
            """Large files are elsewhere: the hub redirects to another host."""
            if "file" in hub.denied:
                self.refuse(*hub.denied["file"])
            elif not (hub.root / repository / path).is_file():
                self.refuse(404, "EntryNotFound")
            else:
                place = f"{hub.url.replace('127.0.0.1', 'localhost')}/cdn/{repository}/{path}"
                self.answer(302, {"Location": place, "X-Repo-Commit": hub.revisions.get(revision, revision)})

        def content(self, repository: str, path: str) -> None:
            content = (hub.root / repository / path).read_bytes()
            headers: dict[str, Any] = {"ETag": f'"{hashlib.sha256(content).hexdigest()}"'}
            first = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").split("-")[0])
            if first:
                headers["Content-Range"] = f"bytes {first}-{len(content) - 1}/{len(content)}"
            end = min(hub.cut.get(path, len(content)), len(content))
            hub.sent.append((path, first, max(end - first, 0)))
            self.answer(206 if first else 200, headers, content[first:], max(end - first, 0))

    return Handler
