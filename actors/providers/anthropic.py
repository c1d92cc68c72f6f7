"""The Anthropic Messages API: requests out, failures in. Pure; the streamer moves the bytes."""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version

import attrs
import httpx
import orjson

from atrio.runtime.apierrors import error_object, failure_from_error, kind_of_status
from atrio.runtime.assembler import MessageAssembler
from atrio.runtime.config import Config
from atrio.runtime.errors import ConfigError
from atrio.runtime.messages import JsonObject
from atrio.runtime.model import FailureKind, HttpRequest, ModelFailure, ModelRequest, StreamItem
from atrio.runtime.whole import body_items
from atrio.runtime.wirejson import without_surrogates

from .waits import asked_wait

__all__ = ["DEFAULT_BASE_URL", "AnthropicProvider"]

DEFAULT_BASE_URL = "https://api.anthropic.com"
API_VERSION = "2023-06-01"

_CACHE = {"type": "ephemeral"}
_EXCERPT = 300
_MAX_PORT = 65_535


@functools.cache
def _user_agent() -> str:
    try:
        return f"atrio/{version('atrio')}"
    except PackageNotFoundError:
        return "atrio"


@attrs.frozen(kw_only=True)
class AnthropicProvider:
    """
    One endpoint and one key.

    Args:
        base_url: with or without ``/v1`` or ``/v1/messages``; the default is the public API.
        api_key: sent as ``x-api-key``.
        auth_token: sent as a bearer token (gateways). Both may be set.
        caching: set the four cache breakpoints.
    """

    base_url: str = DEFAULT_BASE_URL
    api_key: str | None = attrs.field(default=None, repr=False)
    auth_token: str | None = attrs.field(default=None, repr=False)
    betas: tuple[str, ...] = ()
    caching: bool = True
    name: str = "anthropic"
    url: str = attrs.field(init=False)
    endpoint: str = attrs.field(init=False)
    _headers: Mapping[str, str] = attrs.field(init=False, repr=False)

    @url.default
    def _join_url(self) -> str:
        base = self.base_url.rstrip("/").removesuffix("/messages").removesuffix("/v1")
        return f"{base}/v1/messages"

    @endpoint.default
    def _name_endpoint(self) -> str:
        key = hashlib.sha256(f"{self.api_key}\0{self.auth_token}".encode()).hexdigest()[:16]
        return f"{self.url}#{key}"

    @_headers.default
    def _fixed_headers(self) -> Mapping[str, str]:
        headers = {
            "accept": "application/json",
            # A compressor between us and the model holds back small events.
            "accept-encoding": "identity",
            "anthropic-version": API_VERSION,
            "content-type": "application/json",
            "user-agent": _user_agent(),
        }
        if self.api_key:
            headers["x-api-key"] = self.api_key
        if self.auth_token:
            headers["authorization"] = f"Bearer {self.auth_token}"
        return headers

    @classmethod
    def from_config(cls, config: Config, *, needs_key: bool = True) -> AnthropicProvider:
        """
        The provider that the configuration names. Where nothing goes over a network, it ``needs_key`` no more.

        Raises:
            ConfigError: no key for the public API, or an address that is none.
        """
        base = config.base_url or DEFAULT_BASE_URL
        _check_url(base)
        if needs_key and not config.base_url and not (config.api_key or config.auth_token):
            raise ConfigError(
                "ANTHROPIC_API_KEY",
                "no key for the model API is set",
                "set ANTHROPIC_API_KEY, or point ANTHROPIC_BASE_URL at a compatible server, "
                "or try atrio without any key: atrio demo",
            )
        for variable, key in (("ANTHROPIC_API_KEY", config.api_key), ("ANTHROPIC_AUTH_TOKEN", config.auth_token)):
            if key and not re.fullmatch(r"[\x21-\x7e]+", key):
                raise ConfigError(variable, "it holds characters that no key has", "copy the key again, without spaces")
        return cls(base_url=base, api_key=config.api_key, auth_token=config.auth_token)

    # --- out --------------------------------------------------------------------------------------

    def http_request(self, request: ModelRequest, *, stream: bool) -> HttpRequest:
        """The request as bytes."""
        body = self._body(request, stream)
        headers = dict(self._headers)
        betas = dict.fromkeys((*self.betas, *request.betas))
        if betas:
            headers["anthropic-beta"] = ",".join(betas)
        return HttpRequest(url=self.url, headers=headers, body=_encode(body))

    def _body(self, request: ModelRequest, stream: bool) -> JsonObject:
        body: JsonObject = {"model": request.model, "max_tokens": request.max_tokens}
        system: list[JsonObject] = [{"type": "text", "text": part} for part in request.system if part.strip()]
        if system:
            body["system"] = self._marked(system)
        if request.tools:
            body["tools"] = self._marked(request.tools)
        body["messages"] = self._messages(request.messages)
        if request.thinking is not None:
            body["thinking"] = request.thinking
        body.update(request.extra)
        if stream:
            body["stream"] = True
        return body

    def _messages(self, messages: Sequence[JsonObject]) -> list[JsonObject]:
        """
        Breakpoints on the last two user messages: the last so that the next request finds all of this one, the one
        before since a long turn may lie farther back than the API looks.
        """
        if not self.caching:
            return list(messages)
        users = [position for position, message in enumerate(messages) if message["role"] == "user"]
        return [_with_marks(message, position in users[-2:]) for position, message in enumerate(messages)]

    def _marked(self, blocks: Sequence[JsonObject]) -> list[JsonObject]:
        return _mark(blocks, last=True) if self.caching else list(blocks)

    # --- in ---------------------------------------------------------------------------------------

    def assembler(self) -> MessageAssembler:
        return MessageAssembler()

    def parse_body(self, body: bytes) -> Sequence[StreamItem]:
        return body_items(body)

    def classify(self, status: int, headers: Mapping[str, str], body: bytes, *, now: float) -> ModelFailure:
        """What an HTTP error means."""
        request_id = headers.get("request-id") or headers.get("x-request-id")
        if 300 <= status < 400:
            return ModelFailure(
                kind=FailureKind.INVALID_REQUEST,
                message=f"{self.url} redirects to {headers.get('location', 'nowhere')}; put the final address into "
                "ANTHROPIC_BASE_URL",
                retryable=False,
                status=status,
                request_id=request_id,
            )
        error = _error_in(body)
        type_name, message = error if error is not None else ("", self._describe(status, body))
        wanted = headers.get("x-should-retry", "").strip().lower()
        failure = failure_from_error(
            type_name,
            message,
            status=status,
            retry_after=asked_wait(status, headers, now),
            request_id=request_id,
            should_retry={"true": True, "false": False}.get(wanted),
        )
        return attrs.evolve(failure, kind=FailureKind.MALFORMED) if status == 200 and error is None else failure

    def _describe(self, status: int, body: bytes) -> str:
        text = _plain(body.decode("utf-8", "replace"))
        excerpt = f": {text[:_EXCERPT]}" if text else " and no text"
        if kind_of_status(status) is FailureKind.NOT_FOUND:
            return f"there is no Messages API at {self.url} (HTTP 404{excerpt}); check ANTHROPIC_BASE_URL"
        return f"the model server answered HTTP {status}{excerpt}"


def _with_marks(message: JsonObject, last: bool) -> JsonObject:
    content = message["content"]
    if isinstance(content, str):
        if not last:
            return message
        content = [{"type": "text", "text": content}]
    return {**message, "content": _mark(content, last=last)}


def _mark(blocks: Sequence[JsonObject], *, last: bool) -> list[JsonObject]:
    """
    The blocks with a breakpoint on the last one, or none at all. Those that came along (a host's own, those of a
    session that another program wrote) would make more than the API takes.
    """
    marked = [_unmarked(block) for block in blocks]
    if last and marked:
        marked[-1] = {**marked[-1], "cache_control": blocks[-1].get("cache_control") or _CACHE}
    return marked


def _unmarked(block: JsonObject) -> JsonObject:
    inner = block.get("content")
    if isinstance(inner, list) and any(isinstance(part, dict) and "cache_control" in part for part in inner):
        block = {**block, "content": [_unmarked(part) if isinstance(part, dict) else part for part in inner]}
    if "cache_control" in block:
        return {key: value for key, value in block.items() if key != "cache_control"}
    return block


def _check_url(text: str) -> None:
    remedy = "give an address such as http://127.0.0.1:8000"
    try:
        url = httpx.URL(text)
        host, port = url.host, url.port or 0
    except (httpx.InvalidURL, ValueError) as error:
        raise ConfigError("ANTHROPIC_BASE_URL", f"{text!r} is no address: {error}", remedy) from None
    if url.scheme not in ("http", "https") or not host or port > _MAX_PORT or re.search(r"\s", text):
        raise ConfigError("ANTHROPIC_BASE_URL", f"{text!r} is no http or https address", remedy)
    if url.userinfo:
        raise ConfigError(
            "ANTHROPIC_BASE_URL",
            f"the address of {host} holds a name or a password, which logs and errors would show",
            "put the key into ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN",
        )
    if url.query or url.fragment:
        raise ConfigError("ANTHROPIC_BASE_URL", f"{text!r} has more behind its path than an API's address has", remedy)


def _encode(body: JsonObject) -> bytes:
    try:
        return orjson.dumps(body)
    except TypeError:
        # Half surrogate pairs (a tool's file name, a prompt's bytes) can't be encoded; lose the half, not the request.
        body = without_surrogates(body)
    try:
        return orjson.dumps(body)
    except TypeError:
        # Numbers over 64 bits or deep nesting (another program's tool schema): the slow encoder knows no such limit.
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def _error_in(body: bytes) -> tuple[str, str] | None:
    try:
        return error_object(orjson.loads(body))
    except orjson.JSONDecodeError:
        return None


def _plain(text: str) -> str:
    """The words of an HTML error page."""
    if "<" in text:
        text = re.sub(r"(?is)<(script|style).*?</\1>|<[^>]*>", " ", text[:20_000])
    return " ".join(text.split())
