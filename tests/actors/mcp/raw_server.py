"""
An MCP server that speaks raw lines, with faults to order: ``python raw_server.py [fault ...]``.

Faults: ``garbage`` (noise on stdout before each answer), ``flood`` (256 KB of stderr before each answer), ``silent``
(never answers anything), ``exit`` (ends at once with a text on stderr), ``probe-dies`` (ends at the first request that
is not initialize), ``bad-tools`` (a list with broken entries), ``stubborn`` (ignores the end of stdin and SIGTERM),
``child`` (leaves a grandchild in a session of its own), ``changing`` (a further tool with each call of grow),
``roots`` (asks for roots when a call of roots comes).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

Json = dict[str, Any]

FAULTS = set(sys.argv[1:])
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
OBJECT: Json = {"type": "object"}
lock = threading.Lock()
cancelled: set[object] = set()
waiting: list[object] = []
grown = 0


def send(message: Json) -> None:
    with lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def answer(id: object, result: Json) -> None:
    if "garbage" in FAULTS:
        with lock:
            sys.stdout.buffer.write(b'INFO a line for people\n{"broken": \n\xff\xfe\n\n[]\n')
            sys.stdout.buffer.flush()
        send({"method": "notifications/unheard_of", "params": {}})
        send({"id": 987654, "result": {}})
    if "flood" in FAULTS:
        sys.stderr.write("x" * 256 * 1024)
        sys.stderr.flush()
    send({"id": id, "result": result})


def text(value: str, **more: object) -> Json:
    return {"content": [{"type": "text", "text": value}], **more}


def tools() -> list[Any]:
    if "bad-tools" in FAULTS:
        return [
            {"name": "good", "inputSchema": {"type": "object", "properties": {"a": {"type": "string"}}}},
            {
                "name": "union",
                "inputSchema": {
                    "oneOf": [
                        {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
                        {"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"]},
                    ]
                },
            },
            {
                "name": "old",
                "inputSchema": {
                    "type": "object",
                    "properties": {"n": {"type": "number", "minimum": 0, "exclusiveMinimum": True}},
                },
            },
            {"name": "text", "inputSchema": {"type": "string"}},
            {"name": "none"},
            {"inputSchema": OBJECT},
            "nonsense",
            {"name": "out", "inputSchema": OBJECT, "outputSchema": {"type": 7}, "annotations": "loud"},
            {"name": "a b!", "description": 3, "inputSchema": {"type": "object", "required": True}},
        ]
    names = [
        "echo",
        "crash",
        "hang",
        "slow",
        "image",
        "fail",
        "error",
        "pid",
        "child",
        "huge",
        "roots",
        "grow",
        "count",
    ]
    listed: list[Json] = [{"name": name, "description": f"the {name} tool", "inputSchema": OBJECT} for name in names]
    listed[0]["inputSchema"] = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    listed[0]["annotations"] = {"readOnlyHint": True}
    listed[-1]["annotations"] = {"destructiveHint": False, "idempotentHint": True}
    return [*listed, *({"name": f"grown{n}", "inputSchema": OBJECT} for n in range(grown))]


def call(id: object, name: str, arguments: Json, meta: Json) -> None:
    global grown
    if name == "echo":
        answer(id, text(arguments["text"]))
    elif name == "crash":
        sys.stderr.write("about to crash\n")
        sys.stderr.flush()
        os._exit(3)
    elif name == "hang":
        send(
            {"method": "notifications/progress", "params": {"progressToken": meta.get("progressToken"), "progress": 1}}
        )
        while id not in cancelled:
            time.sleep(0.01)
        Path(arguments["file"]).touch()
    elif name == "slow":
        for step in range(3):
            params = {"progressToken": meta.get("progressToken"), "progress": step, "total": 3, "message": "at work"}
            send({"method": "notifications/progress", "params": params})
        answer(id, text("done"))
    elif name == "image":
        answer(
            id,
            {
                "content": [
                    {"type": "text", "text": "look"},
                    {"type": "image", "data": PNG, "mimeType": "image/jpeg"},
                    {"type": "image", "data": "bm8gaW1hZ2U=", "mimeType": "image/png"},
                    {"type": "resource", "resource": {"uri": "x://y", "text": "inner"}},
                    {"type": "resource_link", "uri": "x://z", "name": "zed"},
                ]
            },
        )
    elif name == "fail":
        answer(id, text("it went wrong", isError=True))
    elif name == "error":
        send({"id": id, "error": {"code": -32000, "message": "no such thing"}})
    elif name == "pid":
        answer(id, {"content": [], "structuredContent": {"pid": os.getpid()}})
    elif name == "child":
        child = subprocess.Popen(["sleep", "300"], start_new_session=True)
        answer(id, text(str(child.pid)))
    elif name == "huge":
        answer(id, text("y" * arguments["size"]))
    elif name == "roots":
        send({"id": "r1", "method": "roots/list"})
        waiting.append(id)
    elif name == "grow":
        grown += 1
        send({"method": "notifications/tools/list_changed"})
        answer(id, text("grown"))
    else:
        send({"id": id, "error": {"code": -32602, "message": f"Unknown tool: {name}"}})


def handle(message: Json) -> None:
    id, method, params = message.get("id"), message.get("method"), message.get("params") or {}
    if method is None:
        if waiting:
            answer(waiting.pop(), text(json.dumps(message.get("result"))))
    elif method == "notifications/cancelled":
        cancelled.add(params.get("requestId"))
    elif id is None:
        pass
    elif method == "initialize":
        answer(
            id,
            {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {"listChanged": True}, "prompts": {}, "resources": {}},
                "serverInfo": {"name": "raw", "version": "1"},
                "instructions": "be kind",
            },
        )
    elif method == "tools/list":
        answer(id, {"tools": tools()})
    elif method == "tools/call":
        threading.Thread(
            target=call,
            args=(id, params["name"], params.get("arguments") or {}, params.get("_meta") or {}),
            daemon=True,
        ).start()
    elif method == "resources/list":
        answer(id, {"resources": [{"uri": "note://1", "name": "one", "mimeType": "text/plain"}]})
    elif method == "resources/templates/list":
        answer(id, {"resourceTemplates": [{"uriTemplate": "note://{n}", "name": "any"}]})
    elif method == "resources/read":
        answer(
            id,
            {
                "contents": [
                    {"uri": params["uri"], "text": "a note"},
                    {"uri": params["uri"], "mimeType": "application/zip", "blob": "UEsDBA=="},
                ]
            },
        )
    elif method == "prompts/list":
        arguments = [{"name": "who", "required": True}, {"name": "how"}]
        answer(id, {"prompts": [{"name": "greet", "description": "a greeting", "arguments": arguments}]})
    elif method == "prompts/get":
        content = {"type": "text", "text": f"Greet {params['arguments']}"}
        answer(id, {"messages": [{"role": "user", "content": content}]})
    else:
        if "probe-dies" in FAULTS:
            os._exit(1)
        send({"id": id, "error": {"code": -32601, "message": "Method not found"}})


if "exit" in FAULTS:
    sys.exit("the key is missing")
if "stubborn" in FAULTS:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
for line in sys.stdin:
    if "silent" not in FAULTS:
        handle(json.loads(line))
while "stubborn" in FAULTS:
    time.sleep(1)
