"""The address guard: what it refuses, however it is spelt, and what it lets through."""

from __future__ import annotations

import pytest

from zcrawl.errors import BadUrl, BlockedAddress
from zcrawl.fetch.guard import BAD_PORTS, STRICT, AddressKind, Guard, as_address, kind_of
from zcrawl.frontier.url import canonicalize

# One line a kind; a word is what stands between `http://` and `/` in a link.
SPELLINGS = {
    "loopback": """
        127.0.0.1 127.0.0.0 127.0.0.2 127.1 127.0.1 127.255.255.255 127.53.7.9 127.0.0.1.
        127.1. 2130706433 2130706434 0x7f000001 0x7F000001 0x7f.1 0x7f.0.0.1 0x7f.0x0.0x0.0x1
        017700000001 0177.1 0177.0.0.1 0177.0.0.01 00177.0.0.1 0177.0x0.0.1 127.0x1 0x7f.0.1
        127.000.000.001 0x000000007f000001 00000000000017700000001 127.0.0x000001
        %31%32%37.0.0.1 127%2e0%2e0%2e1 127%2E1 127。0。0。1 127．0．0．1 127｡0｡0｡1
        １２７.0.0.1 ①②⑦.⓪.⓪.① 𝟏𝟐𝟕.𝟎.𝟎.𝟏 𝟘x7f.1
        localhost LOCALHOST LocalHost localhost. ⓛocalhost ｌｏｃａｌｈｏｓｔ foo.localhost
        a.b.localhost localhost.localdomain ip6-localhost ip6-loopback localhost6
        [::1] [0:0:0:0:0:0:0:1] [0000:0000:0000:0000:0000:0000:0000:0001] [::0001] [0::1]
        [::0.0.0.1] [::ffff:127.0.0.1] [::FFFF:127.0.0.1] [::ffff:7f00:1]
        [0:0:0:0:0:ffff:7f00:0001] [0:0:0:0:0:ffff:127.0.0.1] [::127.0.0.1] [::7f00:1]
        [::ffff:0:127.0.0.1] [64:ff9b::127.0.0.1] [64:ff9b::7f00:1] [2002:7f00:1::]
        [2002:7f00:0001::1] [2001:0:7f00:1::] [2001:0:808:808:0:0:80ff:fffe]
        [2606:4700::5efe:127.0.0.1] [2606:4700::200:5efe:127.0.0.1]
    """,
    "private": """
        10.0.0.0 10.0.0.1 10.1.2.3 10.255.255.255 10.1 10.66051 0xa.1.2.3 0x0a010203 167838211
        012.1.2.3 0012.0x1.2.3 ⑩.1.2.3 10。1。2。3 172.16.0.1 172.20.3.4 172.31.255.255
        0xac.16.0.1 0254.020.0.1 2886729729 172.1048577 192.168.0.1 192.168.1.1 192.168.255.255
        192.168.257 192.11010305 0xc0a80101 3232235777 0300.0250.1.1 0xc0.0250.1 030052000401
        [::ffff:10.1.2.3] [::ffff:a01:203] [::ffff:192.168.1.1] [::10.1.2.3] [::ffff:172.16.0.1]
        [64:ff9b::10.1.2.3] [64:ff9b::c0a8:101] [2002:a01:203::] [2002:c0a8:101::1]
        [2001:0:a01:203::] [::ffff:0:10.1.2.3] [fec0::1] [feff::1] [2606:4700::5efe:a01:203]
    """,
    "link_local": """
        169.254.0.1 169.254.1.1 169.254.255.255 0xa9.254.1.1 0251.0376.1.1 2851995905
        [fe80::1] [fe80::dead:beef] [febf::1] [FE80::1] [::ffff:169.254.1.1] [2002:a9fe:101::]
        [64:ff9b::169.254.1.1]
    """,
    "metadata": """
        169.254.169.254 169.254.43518 0xa9fea9fe 2852039166 0xA9.0xFE.0xA9.0xFE
        0251.0376.0251.0376 025177524776 169.16689662 169.254.169.254. [::ffff:169.254.169.254]
        [::ffff:a9fe:a9fe] [64:ff9b::a9fe:a9fe] [2002:a9fe:a9fe::] [::a9fe:a9fe] 169.254.170.2
        169.254.170.23 100.100.100.200 0x646464c8 168.63.129.16 192.0.0.192 [fd00:ec2::254]
        [fd20:ce::254] [fe80::a9fe:a9fe] metadata metadata. metadata.google.internal
        METADATA.google.internal metadata.google.internal. ｍetadata.google.internal
        metadata.goog instance-data instance-data.ec2.internal metadata.azure.internal
        metadata.tencentyun.com
    """,
    "cgnat": """
        100.64.0.1 100.127.255.255 100.100.1.1 0x64.64.1 1681915905 0144.0100.0.1
        [::ffff:100.64.0.1] [2002:6440:1::]
    """,
    "unique_local": "[fc00::1] [fd00::1] [fd12:3456:789a::1] [fdff:ffff::1] [FC00::1]",
    "multicast": """
        224.0.0.1 239.255.255.250 0xe0000001 3758096385 [ff02::1] [ff05::2] [FF00::]
        [::ffff:224.0.0.1]
    """,
    "unspecified": """
        0.0.0.0 0 0x0 00 0.0 0.0.0 0x0.0x0 000000000000 %30 ⓪ [::] [0:0:0:0:0:0:0:0] [::0]
        [::ffff:0.0.0.0] [::ffff:0:0]
    """,
    "reserved": """
        0.0.0.1 0.1.2.3 1 192.0.0.8 192.0.2.1 192.88.99.1 198.18.0.1 198.19.255.255 198.51.100.7
        203.0.113.9 240.0.0.1 250.1.2.3 255.255.255.255 4294967295 0xffffffff
        [100::1] [2001:db8::1] [3fff::1] [2001:10::1] [2001:20::1] [64:ff9b:1::1] [4000::1]
        [5f00::1] [1::1] [::ffff:255.255.255.255] [2002:f000:1::]
    """,
}
CASES = [(kind, word) for kind, words in SPELLINGS.items() for word in words.split()]
_PUBLIC = """
    example.com EXAMPLE.com. 93.184.215.14 1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.1 100.63.255.255
    100.128.0.1 126.255.255.255 128.0.0.1 169.253.1.1 169.255.1.1 172.15.255.255 172.32.0.1
    192.167.1.1 192.169.1.1 198.17.1.1 198.20.1.1 223.255.255.255 134744072 0x08080808
    [2606:4700:4700::1111] [2001:4860:4860::8888] [2a00:1450::1] [::ffff:8.8.8.8]
    [64:ff9b::8.8.8.8] [2002:808:808::1] 10.0.0.1.example.com localhost.example.com
    notlocalhost metadata.example.com my-metadata
"""
PUBLIC = _PUBLIC.split()


def test_the_list_is_long_enough_and_has_nothing_twice() -> None:
    """More than 150 spellings, each once."""
    assert len(CASES) == len(set(CASES)) > 200


@pytest.mark.parametrize(("kind", "word"), CASES)
def test_every_spelling_of_a_closed_address_is_refused(kind: str, word: str) -> None:
    """Canonical or as a page wrote it, with http and https, on any port, by its kind."""
    written = f"http://{word}"
    canonical = canonicalize(written + "/")
    for origin in (written, canonical.rstrip("/"), f"https://{word}", f"http://{word}:8080"):
        why = STRICT.refuse_origin(origin)
        assert why is not None, origin
        assert why.startswith(f"{kind} ("), (origin, why)
    with pytest.raises(BlockedAddress) as caught:
        STRICT.check(canonical + "path?query")
    assert caught.value.reason.startswith(f"blocked_address: {kind} (")


@pytest.mark.parametrize("word", PUBLIC)
def test_the_public_internet_stays_open(word: str) -> None:
    """A guard that refuses too much is turned off by its users."""
    assert STRICT.refuse_origin(f"http://{word}") is None
    STRICT.check(canonicalize(f"https://{word}/a/b"))


@pytest.mark.parametrize(("kind", "word"), [case for case in CASES if case[1][0].isdigit()])
def test_what_a_name_resolves_to_is_judged_like_what_is_written(kind: str, word: str) -> None:
    """A DNS answer has the address in its plain form."""
    address = canonicalize(f"http://{word}/")[len("http://") : -1]
    why = STRICT.refuse_address("innocent.example", 80, address)
    assert why == f"{kind} ({address})"


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com/",
        "file:///etc/passwd",
        "gopher://example.com/",
        "javascript:alert(1)",
        "data:text/html,x",
        "unix:///run/docker.sock",
        "http://",
        "http:///",
        "no url",
        "",
        "http://[::1%25lo]/",
        "http://[fe80::1%25eth0]/",
        "http://256.256.256.256/",
        "http://127.0.0.1%00.example.com/",
        "http://1.2.3.4.5/",
    ],
)
def test_what_is_no_http_url_is_refused(url: str) -> None:
    """Whatever it is, nothing is connected to."""
    with pytest.raises(BlockedAddress):
        STRICT.check(url)


@pytest.mark.parametrize(
    "url",
    [
        "http://public.example@127.0.0.1/",
        "http://127.0.0.1#@public.example/",
        "http://127.0.0.1?@public.example/",
        "http://127.0.0.1\\@public.example/",
        "http:\\\\127.0.0.1\\",
        "http:/127.0.0.1/",
        "http:127.0.0.1/",
        "http://user:pass@10.0.0.1/",
        "http://127.0.0.1",
        "http://10.0.0.1?x=1",
        "\thttp://127.0.0.1/",
        "ht\ntp://127.0.0.1/",
        "HTTP://127.0.0.1/",
        "http://12\t7.0.0.1/",
    ],
)
def test_urls_that_parsers_disagree_about_are_refused(url: str) -> None:
    """As a page writes them, and in the form that the pipeline would make of them."""
    with pytest.raises(BlockedAddress):
        STRICT.check(url)
    try:
        canonical = canonicalize(url)
    except BadUrl:
        return
    with pytest.raises(BlockedAddress):
        STRICT.check(canonical)


@pytest.mark.parametrize("port", sorted(BAD_PORTS))
def test_ports_of_other_services_are_refused(port: int) -> None:
    """On a public host too, and again where the connection is made."""
    assert STRICT.refuse_origin(f"http://example.com:{port}") == f"port ({port})"
    assert STRICT.refuse_address("example.com", port, "93.184.215.14") == f"port ({port})"


@pytest.mark.parametrize("port", [80, 443, 8000, 8080, 8443, 3000, 5000, 9000, 49152, 65535])
def test_ports_where_web_servers_are_stay_open(port: int) -> None:
    """No list of good ones: web servers are everywhere else."""
    assert STRICT.refuse_origin(f"http://example.com:{port}") is None


def test_a_vouched_address_opens_itself_on_its_port_and_nothing_else() -> None:
    """Not its neighbour, not another port, not the same address under another name."""
    guard = Guard(private_hosts=["127.0.0.1:8000", "[::1]:8000", "0.0.0.0:8000"])
    assert guard.refuse_origin("http://127.0.0.1:8000") is None
    assert guard.refuse_origin("http://0x7f.1:8000") is None
    assert guard.refuse_origin("http://[::1]:8000") is None
    assert guard.refuse_origin("http://0.0.0.0:8000") is None
    assert guard.refuse_address("127.0.0.1", 8000, "127.0.0.1") is None
    assert guard.refuse_address("::1", 8000, "::1") is None
    for closed in ("http://127.0.0.1:8001", "http://127.0.0.1", "http://127.0.0.2:8000"):
        assert guard.refuse_origin(closed) is not None
    assert guard.refuse_origin("http://localhost:8000") is not None
    assert guard.refuse_address("evil.example", 8000, "127.0.0.1") == "loopback (127.0.0.1)"


def test_a_vouched_name_opens_private_addresses_but_no_metadata() -> None:
    """Its DNS may be in other hands: what it can open by itself has an end."""
    guard = Guard(private_hosts=["wiki.example:80", "localhost:8000"])
    assert guard.refuse_address("wiki.example", 80, "10.1.2.3") is None
    assert guard.refuse_address("wiki.example", 80, "fd00::7") is None
    assert guard.refuse_address("wiki.example", 81, "10.1.2.3") is not None
    assert guard.refuse_address("other.example", 80, "10.1.2.3") is not None
    for address in ("169.254.169.254", "169.254.1.1", "224.0.0.1", "fd00:ec2::254", "0.0.0.0"):
        assert guard.refuse_address("wiki.example", 80, address) is not None
    assert guard.refuse_origin("http://localhost:8000") is None
    assert guard.refuse_address("localhost", 8000, "127.0.0.1") is None
    assert guard.refuse_origin("http://localhost:8001") is not None


def test_a_name_that_is_bound_to_a_network_opens_that_only() -> None:
    """Whatever its DNS says later; an entry without bounds opens more, in whatever order."""
    bound = ["wiki:80=10.1.2.0/24", "wiki:80=fd00:1::/64"]
    guard = Guard(private_hosts=bound)
    for good in ("10.1.2.3", "10.1.2.99", "fd00:1::7", "8.8.8.8"):
        assert guard.refuse_address("wiki", 80, good) is None
    for bad in ("10.1.3.3", "127.0.0.1", "fd00:2::7", "::ffff:10.1.2.3", "::1", "169.254.169.254"):
        assert guard.refuse_address("wiki", 80, bad) is not None, bad
    assert guard.refuse_address("wiki", 81, "10.1.2.3") is not None
    for entries in ([*bound, "wiki:80"], ["wiki:80", *bound]):
        assert Guard(private_hosts=entries).refuse_address("wiki", 80, "127.0.0.1") is None


def test_a_bound_never_opens_what_no_name_may() -> None:
    """Link-local and metadata addresses stay closed, though a network holds them."""
    guard = Guard(private_hosts=["wiki:80=0.0.0.0/0", "wiki:80=::/0"])
    for bad in (
        "169.254.169.254",
        "169.254.1.1",
        "224.0.0.1",
        "0.0.0.0",
        "fe80::1",
        "fd00:ec2::254",
    ):
        assert guard.refuse_address("wiki", 80, bad) is not None, bad


def test_an_address_that_was_typed_opens_no_other_one() -> None:
    """Not even if a resolver makes another one of it."""
    guard = Guard(private_hosts=["10.0.0.1:80"])
    assert guard.refuse_address("10.0.0.1", 80, "10.0.0.1") is None
    assert guard.refuse_address("10.0.0.1", 80, "10.0.0.2") is not None


def test_a_vouched_port_is_open_for_its_host_only() -> None:
    """A user who types http://10.0.0.1:6000/ allows that port."""
    guard = Guard(private_hosts=["10.0.0.1:6000"])
    assert guard.refuse_origin("http://10.0.0.1:6000") is None
    assert guard.refuse_origin("http://example.com:6000") == "port (6000)"


def test_allow_private_opens_private_addresses_and_nothing_more() -> None:
    """Metadata services, link-local addresses, multicast and bad ports stay closed."""
    guard = Guard(allow_private=True)
    for kind, word in CASES:
        opened = kind in ("loopback", "private", "cgnat", "unique_local")
        assert (guard.refuse_origin(f"http://{word}") is None) == opened, word
    assert guard.refuse_origin("http://127.0.0.1:6379") == "port (6379)"


def test_pick_keeps_what_is_good_and_complains_when_nothing_is() -> None:
    """A name with a good and a bad address is connected to at the good one."""
    assert STRICT.pick("a.example", 80, ["10.0.0.1", "8.8.8.8", "::1"]) == ["8.8.8.8"]
    assert STRICT.pick("a.example", 80, []) == []
    with pytest.raises(BlockedAddress, match=r"private \(10.0.0.1\)"):
        STRICT.pick("a.example", 80, ["10.0.0.1", "::1"])
    with pytest.raises(BlockedAddress, match="reserved"):
        STRICT.pick("a.example", 80, ["not an address"])


def test_a_scope_changes_nothing() -> None:
    """fe80::1%eth0, as some resolvers answer, is fe80::1."""
    address = as_address("fe80::1%eth0")
    assert address is not None
    assert kind_of(address) is AddressKind.LINK_LOCAL
    mapped = as_address("::ffff:127.0.0.1%1")
    assert mapped is not None
    assert kind_of(mapped) is AddressKind.LOOPBACK


def test_verdicts_are_remembered_within_a_bound() -> None:
    """A page with a million hosts costs no memory."""
    guard = Guard()
    for number in range(25_000):
        guard.refuse_origin(f"http://h{number}.example")
    assert len(guard._verdicts) <= 10_000
