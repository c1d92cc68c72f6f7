"""What a journal's line says to somebody who only looks through it: when, who, what. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

from .messages import JsonObject

__all__ = ["is_response", "prompt_of", "time_of", "title_of"]


def time_of(line: JsonObject) -> datetime | None:
    """When it was written."""
    text = line.get("timestamp")
    if not isinstance(text, str):
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def title_of(line: JsonObject) -> str | None:
    """The title that it gives the session."""
    title = line.get("customTitle") if line.get("type") == "custom-title" else None
    return title if isinstance(title, str) else None


def is_response(line: JsonObject) -> str | None:
    """The id of the response that it is a part of."""
    message = line.get("message")
    if line.get("type") != "assistant" or not isinstance(message, dict) or line.get("isSidechain") is True:
        return None
    return str(message.get("id") or line.get("uuid"))


def prompt_of(line: JsonObject) -> str | None:
    """The text that a person wrote in it; None if nobody did."""
    if line.get("type") != "user" or line.get("isMeta") is True or line.get("isSidechain") is True:
        return None
    message = line.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
        content = "\n".join(text for text in texts if isinstance(text, str))
    return content.strip() or None if isinstance(content, str) else None
