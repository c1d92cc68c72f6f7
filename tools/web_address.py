"""Which URLs and network addresses a fetch may go to: public ones, and what is allowed by name. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Final, TypeAlias

import attrs
import httpx

from atrio.runtime.errors import ConfigError, ToolRejected

__all__ = ["AllowedHosts", "Target", "parse_url", "why_not_public"]

MAX_URL_CHARS: Final = 8_000

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_HOST: Final = re.compile(r"[a-z0-9_.-]{1,253}|[0-9a-f:.]+")
"""What a host may be made of, once it is in ASCII: nothing that different programs would read differently."""

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")


@attrs.frozen(kw_only=True)
class Target:
    """A URL taken apart. ``host`` is in lower case and ASCII, an IPv6 address without brackets."""

    scheme: str
    host: str
    port: int
    path: bytes

    @property
    def authority(self) -> str:
        """Host and, if it is an unusual one, port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path.decode('ascii', 'replace')}"


def parse_url(text: str) -> Target:
    """The parts of a URL. Raises `ToolRejected` for all but whole http and https URLs without a password in them."""
    text = text.strip()
    shown = text if len(text) <= 200 else f"{text[:197]}..."
    if len(text) > MAX_URL_CHARS:
        raise ToolRejected(f"The URL {shown} is longer than {MAX_URL_CHARS:,} characters; use a shorter one.")
    try:
        url = httpx.URL(text)
        host, port = url.raw_host.decode("ascii").lower().rstrip("."), url.port
    except (httpx.InvalidURL, ValueError) as error:
        raise ToolRejected(
            f"{shown!r} is no URL: {error}. Give a whole one, such as https://example.com/page."
        ) from None
    if url.scheme not in _DEFAULT_PORTS:
        raise ToolRejected(f"{shown!r} is no http or https URL; WebFetch takes no others. Read files with Read.")
    if not host:
        raise ToolRejected(f"The URL {shown!r} names no host. Give a whole one, such as https://example.com/page.")
    if not _HOST.fullmatch(host):
        raise ToolRejected(f"{shown!r} names a host that can't be, {host[:100]!r}; correct the URL.")
    if url.userinfo:
        raise ToolRejected("The URL holds a user name or password, which WebFetch doesn't send; leave that out.")
    if port is not None and not 0 < port < 65_536:
        raise ToolRejected(f"{shown!r} names port {port}, which can't be; ports go from 1 to 65535.")
    return Target(scheme=url.scheme, host=host, port=port or _DEFAULT_PORTS[url.scheme], path=url.raw_path or b"/")


def why_not_public(address: Address) -> str | None:
    """What kind of address it is, if not a public one. Those within IPv6 that stand for IPv4 count as these."""
    inner = _embedded(address)
    if inner is not None:
        return why_not_public(inner)
    if address.is_loopback:
        return "a loopback address"
    if address.is_link_local:
        return "a link-local address"
    if address.is_multicast:
        return "a multicast address"
    if address.is_unspecified or address.is_reserved:
        return "a reserved address"
    site_local = isinstance(address, ipaddress.IPv6Address) and address.is_site_local
    return "a private address" if site_local or not address.is_global else None


def _embedded(address: Address) -> ipaddress.IPv4Address | None:
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)


@attrs.frozen
class AllowedHosts:
    """
    What may be fetched although it isn't public: host names, which may then be anywhere, addresses and networks.

    `of` raises `ConfigError` for an empty entry.
    """

    names: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()

    @classmethod
    def of(cls, entries: Iterable[str]) -> AllowedHosts:
        names: set[str] = set()
        networks: list[Network] = []
        for entry in entries:
            plain = entry.strip().lower().strip("[]").rstrip(".")
            if not plain:
                raise ConfigError("allowed hosts of WebFetch", "an entry is empty", "name a host, address or network")
            try:
                networks.append(ipaddress.ip_network(plain, strict=False))
            except ValueError:
                names.add(plain)
        return cls(frozenset(names), tuple(networks))

    def objection(self, host: str, address: Address) -> str | None:
        """Why this address of the host must not be reached, if so."""
        if host in self.names or any(address in network for network in self.networks):
            return None
        return why_not_public(address)
