"""The registry of reasons: why a URL was skipped or failed, why something waits, why a request was
refused. Each reason has a code, a meaning and a remedy.

Start with `reason` (the type), then read the modules by subject: `skip`, `failure`, `waiting`,
`usage`, `cluster`, `storage`. `registry` has all of them together and renders
docs/reasons.md. Pure; depends on nothing, and every part of zcrawl may import it.

A member is the code itself, a plain `str`, because it is stored, sent and compared for each page:

    raise fetch_error(DNS, f"{name}: {error}")

Names of log events are not reasons (`telemetry.log_lines` has those), though some events are named
after the reason that they report. Plugins and spiders may give reasons of their own; those are
stored as they come and are not registered.
"""
