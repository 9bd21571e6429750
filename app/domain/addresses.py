"""Where outgoing calls may go: which URLs, and which addresses behind their names. Pure: nothing is resolved here.

A URL is held to one plain spelling, so that nobody can read a host in it that another reader does not see. An address
is held to what it reaches in the end: an IPv6 address that carries an IPv4 one counts as that one.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import SplitResult, urlsplit

from app.domain.errors import DeadLetter

MAXIMUM_URL_CHARACTERS = 4096
_MAXIMUM_HOST_CHARACTERS = 253
_PRINTABLE = re.compile(r"[\x21-\x7e]+", re.ASCII)
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
_NUMBER = re.compile(r"(?:[0-9]+|0x[0-9a-f]*)", re.ASCII)
_DOTTED = re.compile(r"(?:0|[1-9][0-9]{0,2})(?:\.(?:0|[1-9][0-9]{0,2})){3}", re.ASCII)
_LOCAL_NAMES = frozenset({"localhost", "localdomain", "ip6-localhost", "ip6-loopback", "broadcasthost"})
_METADATA_NAMES = frozenset({"metadata", "metadata.google.internal", "metadata.goog", "instance-data"})

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


def _networks(*texts: str) -> tuple[Network, ...]:
    return tuple(ip_network(text) for text in texts)


# What no setting opens: nobody's single host is meant by these, or it is the machine's own control plane.
_NEVER = _networks("0.0.0.0/8", "224.0.0.0/4", "255.255.255.255/32", "::/128", "ff00::/8")
# Where clouds and containers answer with credentials. Opened only by a network that is named in the setting.
_CONTROL = _networks(
    "169.254.0.0/16",
    "fe80::/10",
    "100.100.100.200/32",  # Alibaba Cloud
    "168.63.129.16/32",  # Azure's host agent: a public address, and yet local
    "192.0.0.192/32",  # Oracle Cloud
    "fd00:ec2::/32",  # AWS over IPv6
    "fd20:ce::/32",  # Google Cloud over IPv6
)
_LOCAL = _networks(
    "127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "::1/128", "fc00::/7"
)
# IANA's special-purpose registries (RFC 6890 and its successors), beside the above.
_RESERVED = _networks(
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.31.196.0/24",
    "192.52.193.0/24",
    "192.88.99.0/24",
    "192.175.48.0/24",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "240.0.0.0/4",
    "2001::/23",  # Teredo, ORCHID, benchmarking …
    "2001:db8::/32",
    "3fff::/20",
)
_GLOBAL_UNICAST = IPv6Network("2000::/3")
_MAPPED = IPv6Network("::ffff:0:0/96")
_TRANSLATED = IPv6Network("::ffff:0:0:0/96")
_COMPATIBLE = IPv6Network("::/96")
_NAT64 = IPv6Network("64:ff9b::/96")
_SIX_TO_FOUR = IPv6Network("2002::/16")
_ISATAP = frozenset({0x00005EFE, 0x02005EFE})


class AddressForbidden(DeadLetter):
    """A call was refused because of where it leads; the message never has the URL's path or query."""

    def __init__(self, message: str) -> None:
        super().__init__("forbidden_address", message)

    def __reduce__(self) -> tuple[type["AddressForbidden"], tuple[str]]:  # type: ignore[override]
        return type(self), (self.message,)


@dataclass(frozen=True, slots=True)
class Allowed:
    """What the operator opened beyond the public internet: networks, and hosts by name (`.x` means all below `x`).

    A name opens private and loopback addresses; metadata services and link-local addresses open by network only.
    """

    networks: tuple[Network, ...] = ()
    hosts: frozenset[str] = field(default_factory=frozenset)

    def host(self, name: str) -> bool:
        """Say whether this very name, or a parent written with a leading dot, was opened."""
        labels = name.split(".")
        return name in self.hosts or any("." + ".".join(labels[at:]) in self.hosts for at in range(1, len(labels)))


NOTHING_ALLOWED = Allowed()


@dataclass(frozen=True, slots=True)
class Target:
    """Where a URL leads. `host` is in one spelling: an address, or a name in lower case without a dot at its end."""

    scheme: str
    host: str
    port: int


def parse_allowed(entries: Iterable[str]) -> Allowed:
    """Read the setting's entries: networks (`10.1.0.0/16`), addresses, or host names. Raises ValueError."""
    networks: list[Network] = []
    hosts: set[str] = set()
    for number, entry in enumerate(entries, start=1):
        text = entry.strip().lower()
        try:
            networks.append(ip_network(text.strip("[]"), strict=False))
            continue
        except ValueError:
            name = text.removesuffix(".")
        if _is_numeric(name) or not _is_name(name.removeprefix(".")):
            raise ValueError(f"entry {number} should be a network such as 10.1.0.0/16, an address, or a host name")
        hosts.add(name)
    return Allowed(tuple(networks), frozenset(hosts))


def check_url(url: str, allowed: Allowed = NOTHING_ALLOWED) -> Target:
    """Say where a URL leads. Raises AddressForbidden where the text alone shows that it may not be called."""
    if not _PRINTABLE.fullmatch(url) or len(url) > MAXIMUM_URL_CHARACTERS or "\\" in url:
        raise AddressForbidden(
            f"the URL should be 1 to {MAXIMUM_URL_CHARACTERS} printable ASCII characters without \\"
            " (an internationalized host is written as xn--…)"
        )
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise AddressForbidden("the URL's host or port cannot be read; the port should be from 1 to 65535") from None
    if parts.scheme not in ("http", "https"):
        raise AddressForbidden("the URL should start with http:// or https://")
    if "@" in parts.netloc:
        raise AddressForbidden("the URL should not have a user or password in it: use a header and a declared secret")
    if port == 0 or parts.netloc.endswith(":"):
        raise AddressForbidden("the URL's port should be from 1 to 65535")
    host = check_host(_host_of(parts), allowed)
    return Target(parts.scheme, host, port or (443 if parts.scheme == "https" else 80))


def check_host(host: str, allowed: Allowed = NOTHING_ALLOWED) -> str:
    """Give a host in its one spelling. Raises AddressForbidden where it is badly spelt or a forbidden address."""
    text = host.lower()
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    if ":" in text:
        return _check_literal(_ipv6(text), allowed)
    name = text.removesuffix(".")
    if _is_numeric(name):
        if not _DOTTED.fullmatch(text) or any(int(part) > 255 for part in text.split(".")):
            raise AddressForbidden("an IPv4 address should be written as four decimal numbers, such as 192.0.2.1")
        return _check_literal(IPv4Address(text), allowed)
    if not _is_name(name):
        raise AddressForbidden("the URL's host should be a name of ASCII letters, digits and hyphens, or an address")
    if _is_local(name) and not allowed.host(name):
        raise AddressForbidden("the URL's host is a name of this machine or of its network")
    return name


def check_address(text: str, *, host: str = "", allowed: Allowed = NOTHING_ALLOWED) -> Address:
    """Give the address that was resolved for `host`. Raises AddressForbidden where it must not be connected to."""
    try:
        address = ip_address(text)
    except ValueError:
        raise AddressForbidden("the URL's host was resolved to something that is no address") from None
    if why := _forbidden(address, opened=bool(host) and allowed.host(host), allowed=allowed):
        raise AddressForbidden(f"the URL's host leads to {why}")
    return address


def _host_of(parts: SplitResult) -> str:
    """Cut the host out of the authority as it is written: `hostname` would drop what follows a bracket."""
    netloc = parts.netloc
    if netloc.startswith("["):
        host, bracket, rest = netloc.partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise AddressForbidden("the URL's host cannot be read")
        return host + bracket
    return netloc.partition(":")[0]


def _ipv6(text: str) -> IPv6Address:
    try:
        address = IPv6Address(text)
    except ValueError:
        raise AddressForbidden("the URL's host is no IPv6 address") from None
    if address.scope_id is not None:
        raise AddressForbidden("the URL's IPv6 address should have no zone")
    if any(_carried(address)):
        # One spelling for one address, also where it is opened: else a list of some other reader would miss it.
        raise AddressForbidden("an IPv4 address should be written as four decimal numbers, such as 192.0.2.1")
    return address


def _check_literal(address: Address, allowed: Allowed) -> str:
    if why := _forbidden(address, opened=False, allowed=allowed):
        raise AddressForbidden(f"the URL's host is {why}")
    return str(address)


def _forbidden(address: Address, *, opened: bool, allowed: Allowed) -> str:
    """Say what is wrong with an address; the empty text where nothing is."""
    if isinstance(address, IPv6Address) and address.scope_id is not None:
        return "an address with a zone"
    carried = list(_carried(address))
    named = any(_inside(one, allowed.networks) for one in (address, *carried))
    for one in (address, *carried):
        if why := _kind(one, named=named, opened=opened, carries=bool(carried)):
            return why
    return ""


def _kind(one: Address, *, named: bool, opened: bool, carries: bool) -> str:
    if _inside(one, _NEVER):
        return "no single host: an unspecified, multicast or broadcast address"
    if named:
        return ""
    if _inside(one, _CONTROL):
        return "a link-local or metadata address"
    if _inside(one, _LOCAL):
        return "" if opened else "a loopback or private address"
    if _inside(one, _RESERVED):
        return "a reserved address"
    if isinstance(one, IPv6Address) and one not in _GLOBAL_UNICAST and not carries:
        return "a reserved address"
    return ""


def _inside(address: Address, networks: Iterable[Network]) -> bool:
    return any(address.version == network.version and address in network for network in networks)


def _carried(address: Address) -> Iterable[IPv4Address]:
    """Name the IPv4 addresses that an IPv6 address leads to: mapped, translated, compatible, NAT64, 6to4, ISATAP."""
    if isinstance(address, IPv4Address):
        return
    number = int(address)
    if any(address in network for network in (_MAPPED, _TRANSLATED, _NAT64)) or (address in _COMPATIBLE and number > 1):
        yield IPv4Address(number & 0xFFFFFFFF)
    elif address in _SIX_TO_FOUR:
        yield IPv4Address((number >> 80) & 0xFFFFFFFF)
    if (number >> 32) & 0xFFFFFFFF in _ISATAP:
        yield IPv4Address(number & 0xFFFFFFFF)


def _is_name(name: str) -> bool:
    return 0 < len(name) <= _MAXIMUM_HOST_CHARACTERS and all(_LABEL.fullmatch(label) for label in name.split("."))


def _is_numeric(name: str) -> bool:
    """Say whether resolvers may read a name as an IPv4 address: its last label is a number in any base."""
    return bool(_NUMBER.fullmatch(name.rpartition(".")[2]))


def _is_local(name: str) -> bool:
    return name.rpartition(".")[2] in _LOCAL_NAMES or name in _METADATA_NAMES
