"""The operator console: `zcrawl console`, a Textual app. zcrawl itself never imports it.

    feed ──events──▶ view.reduce ──View──▶ screens ──▶ widgets ──▶ terminal
     ▲                    ▲                   │
     └──── requests ── app ◀── keys, mouse ───┘

Pure: `state` (the View and its events), `view` (the reducer), `tables` and `columns/` (what a table
shows), `drawing/` (lines, bars and curves), `rates`, `units`, `limits`, `attention`, `questions`
(what to ask the cluster for), `actions`, `commands`. They do not import
Textual; an import contract holds that.

Textual: `app` owns the View and feeds it, `screens/` has a screen for each page and the dialogs,
`widgets/` has the table, the charts and the heat map. `asking` decides when a question is due,
`copying` what is copied; `acting` carries out what a dialog said yes to. `screens.ahead` composes
pages before they are visited; `textual_inside` has what is used of Textual's inside. `feed/` has
the line to the cluster, recordings and their replay; `web` serves it to browsers.

Start with `state`, then `view`, then `screens.page`.
"""
