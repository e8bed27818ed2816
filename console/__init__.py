"""The operator console: `zcrawl console`, a Textual app. zcrawl itself never imports it.

    feed_loop ──events──▶ view.reduce ──View──▶ pictures ──lines──▶ widgets ──▶ terminal
        ▲                    ▲                                        │
        └──requests── app ───┴──────────────── keys ──────────────────┘

`view.py` and `pictures/` are pure: the whole screen is a function of the View and its size.
"""
