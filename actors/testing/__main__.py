"""``python -m atrio.actors.testing``: a small scripted model on loopback, for a first try of any client."""

from __future__ import annotations

import argparse
import sys

import trio

from atrio.runtime.messages import JsonObject

from .pairing import blocks_of
from .scripted import ScriptedModel
from .turns import Turn, text, tool

COMMAND = "echo hello from a tool"


def scenario(request: JsonObject) -> Turn:
    """Call Bash once, where the client has it, and sum up; where it hasn't, just talk."""
    last = request["messages"][-1]
    if any(item.get("type") == "tool_result" for item in blocks_of(last)):
        return Turn(text("The command has run; its output is above. Done."), pace=0.02)
    names = {item.get("name") for item in request.get("tools", ())}
    if "Bash" in names:
        call = tool("Bash", {"command": COMMAND, "description": "Say hello"})
        return Turn(text("I will run one command."), call, pace=0.02)
    return Turn(text("Hello! I am a scripted model: I say the same to everybody."), pace=0.02)


async def serve(port: int) -> None:
    """Serve until cancelled; prints the base URL first."""
    async with ScriptedModel(by=scenario).serve(port=port) as url:
        print(url, flush=True)
        await trio.sleep_forever()


def main() -> int:
    """Returns the exit status: 130 after an interrupt from the keyboard, 2 where the port is taken."""
    parser = argparse.ArgumentParser(prog="python -m atrio.actors.testing", description="A scripted model on loopback.")
    parser.add_argument("--port", type=int, default=0, help="port to listen on (default: a free one)")
    port = parser.parse_args().port
    try:
        trio.run(serve, port)
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        print(f"can't listen on port {port}: {error}; give another --port", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
