"""Which URLs and addresses may be called."""

import pickle

import pytest

from app.domain.addresses import AddressForbidden, check_address, check_url, parse_allowed

FORBIDDEN_URLS = r"""
file:///etc/passwd
ftp://example.com/
gopher://example.com/
//example.com/
example.com
http:example.com
http:///path
http://
http://user:password@example.com/
http://@example.com/
http://example.com@127.0.0.1/
http://127.0.0.1/
http://127.0.0.1:8000/
http://127.1/
http://127.0.1/
http://127.0.0.1./
http://0x7f.1/
http://0x7f000001/
http://0x7F.0.0.0x1/
http://0177.0.0.1/
http://017700000001/
http://2130706433/
http://127.0.0.01/
http://127.0.0.256/
http://0/
http://0.0.0.0/
http://0x/
http://1.2.3.4.5/
http://localhost/
http://localhost./
http://LOCALHOST/
http://foo.localhost/
http://localhost.localdomain/
http://ip6-localhost/
http://metadata.google.internal/computeMetadata/v1/
http://169.254.169.254/latest/meta-data/
http://169.254.170.2/
http://100.100.100.200/
http://168.63.129.16/
http://10.0.0.1/
http://172.16.0.1/
http://172.31.255.255/
http://192.168.1.1/
http://100.64.0.1/
http://192.0.0.192/
http://192.0.2.1/
http://198.18.0.1/
http://198.51.100.7/
http://203.0.113.9/
http://224.0.0.1/
http://240.0.0.1/
http://255.255.255.255/
http://[::]/
http://[::1]/
http://[0:0:0:0:0:0:0:1]/
http://[::ffff:7f00:1]/
http://[::ffff:127.0.0.1]/
http://[::ffff:0:127.0.0.1]/
http://[::127.0.0.1]/
http://[::7f00:1]/
http://[::ffff:169.254.169.254]/
http://[64:ff9b::7f00:1]/
http://[64:ff9b::10.0.0.1]/
http://[64:ff9b:1::1]/
http://[2002:7f00:1::]/
http://[2002:a00:1::1]/
http://[2001:0:7f00:1::1]/
http://[2001:db8::1]/
http://[2606:4700::5efe:127.0.0.1]/
http://[2606:4700::200:5efe:10.0.0.1]/
http://[fe80::1]/
http://[fe80::1%25eth0]/
http://[fe80::1%eth0]/
http://[fc00::1]/
http://[fd00:ec2::254]/
http://[fec0::1]/
http://[ff02::1]/
http://[100::1]/
http://[5f00::1]/
http://[::1/
http://::1/
http://[::1]x/
http://[127.0.0.1]/
http://[example.com]/
http://example.com:0/
http://example.com:/
http://example.com:65536/
http://example.com:-1/
http://example.com:8o/
http://example.com:80:80/
http://example..com/
http://-example.com/
http://exa%6dple.com/
http://%31%32%37.0.0.1/
http://①②⑦.⓪.⓪.①/
http://ⓛocalhost/
http://127。0。0。1/
http://bücher.example/
http://exam ple.com/
http://example.com\\@127.0.0.1/
http://example.com/\tx
http://example.com/\x00
http://example.com/\r\nHost:x
""".strip().splitlines()


@pytest.mark.parametrize("url", FORBIDDEN_URLS)
def test_a_url_that_leads_inside_or_is_oddly_spelt_is_refused(url: str) -> None:
    spelt = url.replace("\\t", "\t").replace("\\x00", "\x00").replace("\\r\\n", "\r\n")

    with pytest.raises(AddressForbidden) as refused:
        check_url(spelt)

    assert refused.value.error_type == "forbidden_address"
    assert "path" not in refused.value.message and "password@" not in refused.value.message


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("https://example.com", "example.com", 443),
        ("http://Example.COM./a?b=c#d", "example.com", 80),
        ("HTTP://example.com:8080/", "example.com", 8080),
        ("https://xn--bcher-kva.example/", "xn--bcher-kva.example", 443),
        ("https://my_host-1.example/", "my_host-1.example", 443),
        ("http://8.8.8.8/", "8.8.8.8", 80),
        ("http://[2606:4700:0:0::1111]:81/", "2606:4700::1111", 81),
        ("https://example.com/@127.0.0.1", "example.com", 443),
        ("https://example.com?@127.0.0.1", "example.com", 443),
        ("https://1and1.example/", "1and1.example", 443),
    ],
)
def test_a_public_url_names_its_host_in_one_spelling(url: str, host: str, port: int) -> None:
    target = check_url(url)

    assert (target.host, target.port) == (host, port)


def test_a_message_has_nothing_of_path_or_query() -> None:
    with pytest.raises(AddressForbidden) as refused:
        check_url("http://127.0.0.1/canary?token=canary")

    assert "canary" not in str(refused.value)
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)  # noqa: S301


def test_a_url_that_is_too_long_is_refused() -> None:
    with pytest.raises(AddressForbidden, match="4096"):
        check_url("https://example.com/" + "a" * 4096)


def test_an_opened_network_may_be_called_and_others_still_not() -> None:
    allowed = parse_allowed(["127.0.0.0/8", "10.1.2.3", "fd00:1::/32"])

    assert check_url("http://127.0.0.1:80/", allowed).host == "127.0.0.1"
    assert check_address("::ffff:127.0.0.1", allowed=allowed)
    assert check_address("64:ff9b::8.8.8.8")
    assert check_url("http://[fd00:1::5]/", allowed).host == "fd00:1::5"
    with pytest.raises(AddressForbidden):
        check_url("http://[::ffff:127.0.0.1]/", allowed)
    for url in ("http://10.1.2.4/", "http://localhost/", "http://127.1/", "http://0.0.0.0/", "http://169.254.169.254/"):
        with pytest.raises(AddressForbidden):
            check_url(url, allowed)


def test_an_opened_name_leads_to_private_addresses_but_not_to_metadata() -> None:
    allowed = parse_allowed(["localhost", "tickets.lan", ".cluster.local"])

    assert check_url("http://localhost/", allowed).host == "localhost"
    assert check_address("10.0.0.1", host="tickets.lan", allowed=allowed)
    assert check_address("10.0.0.1", host="a.b.cluster.local", allowed=allowed)
    for host, address in (
        ("tickets.lan", "169.254.169.254"),
        ("tickets.lan", "0.0.0.0"),  # noqa: S104 - an address to refuse
        ("other.lan", "10.0.0.1"),
        ("cluster.local", "10.0.0.1"),
        ("eviltickets.lan", "10.0.0.1"),
    ):
        with pytest.raises(AddressForbidden):
            check_address(address, host=host, allowed=allowed)


def test_metadata_opens_by_its_network_alone_and_unspecified_by_nothing() -> None:
    allowed = parse_allowed(["169.254.169.254/32", "0.0.0.0/0"])

    assert check_address("169.254.169.254", allowed=allowed)
    with pytest.raises(AddressForbidden):
        check_address("0.0.0.0", allowed=allowed)  # noqa: S104 - an address to refuse


@pytest.mark.parametrize(
    "entry", ["127.1", "2130706433", "10.0.0.0/33", "bad host", "*", "http://x", "a..b", "b\u00fccher"]
)
def test_an_entry_that_is_no_network_and_no_name_is_refused_without_its_text(entry: str) -> None:
    with pytest.raises(ValueError, match="entry 2 should be a network") as refused:
        parse_allowed(["10.0.0.0/8", entry])

    assert entry not in str(refused.value).replace("10.1.0.0/16", "")
