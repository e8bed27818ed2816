"""Requests with bodies, through proxies or for archives, on aiohttp.

`wire` sends them. `resolver` returns only addresses that aiohttp may connect to, `connections`
checks the peer of each connection, and `self_test` proves that aiohttp calls both. `failures`
translates its errors into our codes, `socks` connects through SOCKS5 proxies.

Touches the world; nothing else imports `aiohttp`. Imported by fetch.wire and fetch.browser. Start
with `wire`.
"""
