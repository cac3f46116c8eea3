"""A server with W&B's protocol: GraphQL, the stream of a run's files, and storage of files.

The server keeps the data that the real client sends, and can return failures. ``WandbServer()`` starts it.
Clients with the variables of ``environment`` use it.
"""

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from command_line import ROOT, TIMEOUT_SECONDS

ENTITY = "someone"
_OPERATION = re.compile(r"\b(?:query|mutation)\s+(\w+)")
_FIRST_FIELD = re.compile(r"[{]\s*(\w+)")
Fields = dict[str, Any]
VIEWER = {"id": "viewer", "entity": ENTITY, "username": ENTITY, "email": "someone@example.org"}
CONSTANT: dict[str, Fields] = {  # answers to operations that concern no run
    "Viewer": {"viewer": VIEWER | {"flags": "{}", "teams": {"edges": []}}},
    "ServerFeaturesQuery": {"serverInfo": {"features": []}},
    "OrganizationCoreWeaveOrganizationID": {"entity": None},
    "ArtifactType": {"project": {"artifact": None}},
    "ProjectInternalId": {"project": {"id": "project", "internalId": "1"}},
    "GetProjects": {
        "models": {
            "pageInfo": {"__typename": "PageInfo", "endCursor": None, "hasNextPage": False},
            "edges": [],
        }
    },
}


@dataclass
class StoredRun:
    """The data of one run on the server."""

    name: str
    fields: Fields = field(default_factory=dict)  # of all upserts, without null values
    config: Fields = field(default_factory=dict)
    lines: dict[str, dict[int, str]] = field(default_factory=dict)  # of streamed files, by line number
    files: dict[str, bytes] = field(default_factory=dict)
    exit_code: int | None = None
    starts: int = 0

    def rows(self, name: str = "wandb-history.jsonl") -> list[Fields]:
        """The records of a streamed file, in order."""
        return [json.loads(line) for _, line in sorted(self.lines.get(name, {}).items())]

    @property
    def summary(self) -> Fields:
        last = sorted(self.lines.get("wandb-summary.json", {}).items())
        return json.loads(last[-1][1]) if last else {}

    @property
    def settings(self) -> Fields:
        """The config without W&B's own part."""
        return {key: entry["value"] for key, entry in self.config.items() if key != "_wandb"}

    @property
    def metrics(self) -> list[Fields]:
        """The definitions of metrics, whose keys are numbers of fields."""
        return self.config["_wandb"]["value"].get("m", [])


@dataclass
class StoredArtifact:
    name: str
    type: str
    run: str
    aliases: list[str]
    metadata: Fields
    files: dict[str, bytes] = field(default_factory=dict)
    is_committed: bool = False


@dataclass
class Answer:
    """A response, sent after ``hang_seconds``."""

    status: int = 200
    body: bytes = b"{}"
    headers: Mapping[str, str] = field(default_factory=dict)
    hang_seconds: float = 0.0
    closes: bool = False  # whether to close the connection without a response


Fault = Callable[[str, str], Answer | None]  # of method, and path or operation; None: no fault


class WandbServer:
    """The server on a free port of the loopback interface, until ``close``."""

    def __init__(self) -> None:
        self.runs: dict[str, StoredRun] = {}
        self.artifacts: dict[str, StoredArtifact] = {}
        self.alerts: list[Fields] = []
        self.views: list[Fields] = []  # specifications of workspaces and reports, as sent
        self.requests: list[tuple[str, str]] = []  # method, and path or GraphQL operation
        self.connections: set[socket.socket] = set()
        self.unknown: list[str] = []  # queries that this server does not support
        self.fault: Fault | None = None
        self._lock = threading.Lock()
        self._numbers = count(1)
        handler = type("Handler", (_Handler,), {"wandb": self})
        self._http = _Quiet(("127.0.0.1", 0), handler)
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        """Stop listening and close all connections."""
        self._http.shutdown()
        self._http.server_close()
        for connection in self.connections:
            with suppress(OSError):  # the connection is closed
                connection.shutdown(socket.SHUT_RDWR)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables with which W&B's client uses this server."""
        return {
            "WANDB_BASE_URL": self.url,
            "WANDB_API_KEY": "0" * 40,
            "WANDB_ENTITY": ENTITY,
            "WANDB_ERROR_REPORTING": "false",
            "NO_PROXY": "127.0.0.1",
        }

    def run(self) -> StoredRun:
        """The only run."""
        (found,) = self.runs.values()
        return found

    def answer(self, method: str, path: str, body: bytes) -> Answer:
        path = unquote(urlsplit(path).path)
        operation = path
        asked: Fields = {}
        if path == "/graphql":
            asked = json.loads(body)
            operation = _operation(asked["query"])
        with self._lock:
            self.requests.append((method, operation))
        fault = self.fault(method, operation) if self.fault is not None else None
        if fault is not None:
            return fault
        with self._lock:
            if path == "/graphql":
                return Answer(body=json.dumps(self._graphql(operation, asked)).encode())
            if path.endswith("/file_stream"):
                return self._stream(path.split("/")[-2], json.loads(body))
            if path.startswith("/storage/"):
                return self._store(method, path.removeprefix("/storage/"), body)
        return Answer(404)

    def _graphql(self, operation: str, asked: Fields) -> Fields:
        if operation in CONSTANT:
            return {"data": CONSTANT[operation]}
        handler = getattr(self, f"_on_{operation}", None)
        if handler is None:
            self.unknown.append(asked["query"])
            return {"errors": [{"message": f"no answer to {operation}"}]}
        return {"data": handler(asked.get("variables") or {})}

    def _stream(self, name: str, body: Fields) -> Answer:
        run = self.runs[name]
        for file, part in body.get("files", {}).items():
            lines = run.lines.setdefault(file, {})
            lines.update({part["offset"] + i: line for i, line in enumerate(part["content"])})
        if body.get("complete"):
            run.exit_code = body.get("exitcode", 0)
        return Answer(body=b'{"exitcode": null, "limits": {}}')

    def _store(self, method: str, path: str, body: bytes) -> Answer:
        kind, owner, name = path.split("/", 2)
        files = self.runs[owner].files if kind == "run" else self.artifacts[owner].files
        if method == "PUT":
            files[name] = body
            return Answer()
        return Answer(body=files[name])

    def _on_UpsertBucket(self, variables: Fields) -> Fields:
        name = variables.get("name") or variables["id"].partition(":")[2]
        inserted = name not in self.runs
        run = self.runs.setdefault(name, StoredRun(name))
        run.fields |= {key: value for key, value in variables.items() if value is not None}
        if variables.get("config"):
            run.config = json.loads(variables["config"])
        run.starts += "host" in run.fields and variables.get("host") is not None
        return {"upsertBucket": {"bucket": self._bucket(run), "inserted": inserted}}

    def _on_RunResumeStatus(self, variables: Fields) -> Fields:
        run = self.runs.get(variables["name"])
        place = {"id": "project", "name": variables["project"], "entity": {"id": "e", "name": ENTITY}}
        if run is None:
            return {"model": {**place, "bucket": None}}
        history, events = run.rows(), run.rows("wandb-events.jsonl")
        bucket = {
            **self._bucket(run),
            "summaryMetrics": json.dumps(run.summary),
            "logLineCount": len(run.lines.get("output.log", {})),
            "historyLineCount": len(history),
            "eventsLineCount": len(events),
            "historyTail": json.dumps([json.dumps(row) for row in history[-1:]]),
            "eventsTail": json.dumps([json.dumps(row) for row in events[-1:]]),
            "config": json.dumps(run.config),
            "tags": run.fields.get("tags", []),
            "notes": run.fields.get("notes"),
            "wandbConfig": json.dumps({"t": run.config.get("_wandb", {}).get("value", {}).get("t", {})}),
        }
        return {"model": {**place, "bucket": bucket}}

    def _bucket(self, run: StoredRun) -> Fields:
        project = run.fields.get("project", "project")
        return {
            "id": f"id:{run.name}",
            "name": run.name,
            "displayName": run.fields.get("displayName", run.name),
            "description": None,
            "config": json.dumps(run.config),
            "sweepName": run.fields.get("sweep"),
            "project": {"id": "project", "name": project, "entity": {"id": "e", "name": ENTITY}},
            "historyLineCount": len(run.rows()),
        }

    def _on_CreateRunFiles(self, variables: Fields) -> Fields:
        run = variables["run"]
        files = [{"name": n, "uploadUrl": f"{self.url}/storage/run/{run}/{n}"} for n in variables["files"]]
        return {"createRunFiles": {"runID": f"id:{run}", "uploadHeaders": [], "files": files}}

    def _on_CreateArtifact(self, variables: Fields) -> Fields:
        given = variables["input"]
        name = f"artifact{next(self._numbers)}"
        self.artifacts[name] = StoredArtifact(
            given["artifactCollectionName"],
            given["artifactTypeName"],
            given["runName"],
            [alias["alias"] for alias in given.get("aliases") or []],
            json.loads(given.get("metadata") or "{}"),
        )
        made = {"id": name, "state": "PENDING", "artifactSequence": {"latestArtifact": None}}
        return {"createArtifact": {"artifact": made}}

    def _on_CreateArtifactManifest(self, variables: Fields) -> Fields:
        return {"createArtifactManifest": {"artifactManifest": self._manifest(variables["artifactID"])}}

    def _on_UpdateArtifactManifest(self, variables: Fields) -> Fields:
        owner = variables["artifactManifestID"].partition(":")[2]
        return {"updateArtifactManifest": {"artifactManifest": self._manifest(owner)}}

    def _manifest(self, owner: str) -> Fields:
        url = f"{self.url}/storage/artifact/{owner}/wandb_manifest.json"
        return {
            "id": f"manifest:{owner}",
            "file": {"id": f"file:{owner}", "uploadUrl": url, "uploadHeaders": []},
        }

    def _on_CreateArtifactFiles(self, variables: Fields) -> Fields:
        nodes = [
            {
                "storagePath": f"{one['artifactID']}/{one['name']}",
                "uploadUrl": f"{self.url}/storage/artifact/{one['artifactID']}/{one['name']}",
                "uploadHeaders": [],
                "uploadMultipartUrls": None,
                "artifact": {"id": one["artifactID"]},
            }
            for one in variables["input"]["artifactFiles"]
        ]
        return {"createArtifactFiles": {"files": {"edges": [{"node": node} for node in nodes]}}}

    def _on_CommitArtifact(self, variables: Fields) -> Fields:
        name = variables["artifactID"]
        self.artifacts[name].is_committed = True
        return {"commitArtifact": {"artifact": {"id": name, "digest": "digest"}}}

    def _on_UpsertView2(self, variables: Fields) -> Fields:
        self.views.append({**variables, "spec": json.loads(variables["spec"])})
        name = variables.get("name") or f"view{len(self.views)}"
        view = {"id": f"id:{name}", "name": name, "displayName": variables.get("displayName")}
        project = {"id": "project", "name": variables["projectName"], "entityName": ENTITY}
        rest = {"type": variables["type"], "description": "", "project": project, "updatedAt": "2026-01-01"}
        return {"upsertView": {"view": {**view, **rest, "spec": variables["spec"]}, "inserted": True}}

    _on_upsertView = _on_UpsertView2

    def _on_CreateProject(self, variables: Fields) -> Fields:
        made = {"id": "project", "name": variables["input"]["name"], "entityName": ENTITY}
        return {"result": {"project": made, "model": made, "inserted": True}}

    def _on_NotifyScriptableRunAlert(self, variables: Fields) -> Fields:
        self.alerts.append(variables)
        return {"notifyScriptableRunAlert": {"success": True}}


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Print nothing: a killed client resets its connections."""


class _Handler(BaseHTTPRequestHandler):
    wandb: WandbServer
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.wandb.connections.add(self.connection)

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        answer = self.wandb.answer(self.command, self.path, body)
        time.sleep(answer.hang_seconds)
        if answer.closes:
            self.close_connection = True
            return
        try:
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)
        except OSError:  # the client has closed the connection
            self.close_connection = True

    do_GET = do_POST = do_PUT = _serve

    def log_message(self, *_: object) -> None:
        pass


def _operation(query: str) -> str:
    """The name of a query or, without a name, its first field."""
    found = _OPERATION.search(query) or _FIRST_FIELD.search(query)
    assert found is not None
    return found[1]


def wandb(server: WandbServer, *words: str, home: Path) -> tuple[int, str]:
    """Run W&B's command ``wandb`` with its files in ``home``; returns exit status and output."""
    variables = os.environ | server.environment | {"HOME": str(home), "WANDB_DIR": str(home)}
    variables["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-m", "wandb", *words],
        cwd=ROOT,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_SECONDS,
    )
    return done.returncode, done.stdout
