"""The engine `browser`: pages rendered by the system's Chromium.

`engine` implements the port, `chromium` runs one browser process, `tab` visits one page in it.
`gate` is the only way from the browser to the network (a SOCKS5 server that checks addresses with
the guard). `sandbox` chooses the account that the browser runs as.

Touches the world; nothing else imports `playwright`. Imported by roles. Start with `engine`.
"""
