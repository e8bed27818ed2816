"""The engine `browser`: pages rendered by the system's Chromium.

`engine` is the port, `chromium` one browser process, `tab` one page in it, `gate` the only way out
of it (a SOCKS5 server that asks the guard), `sandbox` as whom it runs.

Touches the world; nothing else imports `playwright`. Imported by roles. Start with `engine`.
"""
