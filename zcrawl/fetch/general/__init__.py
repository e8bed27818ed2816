"""Requests with bodies, through proxies or for archives, on aiohttp.

`wire` sends them, `connections` guards what aiohttp connects to, `failures` gives its errors our
names, `socks` goes through SOCKS5 proxies.

Touches the world; nothing else imports `aiohttp`. Imported by fetch.wire and fetch.browser. Start
with `wire`.
"""
