"""Addresses of databases: what they mean, what is refused, and that no password is shown."""

from __future__ import annotations

import pytest

from zcrawl.errors import ConfigError
from zcrawl.store.urls import MysqlUrl, parse_mysql_urls, parse_url


def test_a_mysql_url_has_all_its_parts() -> None:
    """User, password and database are unquoted; the port has a default."""
    url = parse_url("mysql://me%40x:p%2F%3A%40w@db.test:3307/crawl%20er")
    assert url == MysqlUrl("db.test", 3307, "me@x", "p/:@w", "crawl er")
    assert parse_url("mariadb://me@db.test/z") == MysqlUrl("db.test", 3306, "me", "", "z")
    ipv6 = parse_url("mysql://me@[::1]:1/z")
    assert isinstance(ipv6, MysqlUrl)
    assert (ipv6.host, ipv6.address) == ("::1", "[::1]:1")


def test_a_ca_turns_verification_on() -> None:
    """With ssl_ca the server is verified by default; ssl_mode can change that."""
    url = parse_url("mysql://me@h/z?ssl_ca=/ca.pem&ssl_cert=/c.pem&ssl_key=/k.pem")
    assert isinstance(url, MysqlUrl)
    assert (url.ssl_mode, url.ssl_ca) == ("verify_identity", "/ca.pem")
    assert (url.ssl_cert, url.ssl_key) == ("/c.pem", "/k.pem")
    other = parse_url("mysql://me@h/z?ssl_ca=/ca.pem&ssl_mode=verify_ca")
    assert isinstance(other, MysqlUrl)
    assert other.ssl_mode == "verify_ca"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "z.db",
        "postgres://me:hunter2@h/z",
        "mysql://me:hunter2@h",
        "mysql://me:hunter2@h/",
        "mysql://me:hunter2@h/a/b",
        "mysql://:hunter2@h/z",
        "mysql://h/z",
        "mysql://me:hunter2@/z",
        "mysql://me:hunter2@h:port/z",
        "mysql://me:hunter2@h:99999/z",
        "mysql://me:hunter2@[::1/z",
        "mysql://me:hun/ter2@h/z",
        "mysql://me:hunter2@h/z?sslca=/x",
        "mysql://me:hunter2@h/z?ssl_mode=yes",
        "mysql://me:hunter2@h/z?ssl_mode=verify_ca",
        "mysql://me:hunter2@h/z?ssl_key=/k.pem",
        "sqlite://",
        "sqlite:///",
        "sqlite://host/path",
    ],
)
def test_a_bad_url_is_refused_without_its_password(text: str) -> None:
    """The error names the key; what stands between colon and @ is never shown."""
    with pytest.raises(ConfigError, match=r"database\.urls") as caught:
        parse_url(text)
    assert "hunter2" not in str(caught.value)
    assert "ter2" not in str(caught.value)


def test_a_url_shows_itself_without_its_password() -> None:
    """In logs, errors and debuggers."""
    url = parse_url("mysql://me:hunter2@h/z")
    assert isinstance(url, MysqlUrl)
    assert url.shown == "mysql://me@h:3306/z"
    assert "hunter2" not in f"{url!r} {url} {[url]}"


def test_several_addresses_name_one_database() -> None:
    """They are copies of each other, so a second name is a mistake."""
    urls = parse_mysql_urls(["mysql://me@a/z", "mysql://me@b/z"])
    assert [url.host for url in urls] == ["a", "b"]
    with pytest.raises(ConfigError, match="y and z"):
        parse_mysql_urls(["mysql://me@a/z", "mysql://me@b/y"])
    for bad in ([], ["sqlite:///z.db"], ["mysql://me@a/z", "sqlite:///z.db"]):
        with pytest.raises(ConfigError, match="one or more"):
            parse_mysql_urls(bad)
