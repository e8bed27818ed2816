"""When jobs run by themselves: due times, catching up after downtime, overlap, dependencies.

Pure: there is no clock in it, `now` comes in as UTC seconds. All due times are whole seconds, so
that two leaders compute exactly the same number for one due time.

`defaults` fills in what a job leaves open.
`timetable` turns a job's `[schedule]` into due times, `zones` knows wall clocks, `jitter` spreads
runs that are due together, `catch_up` decides what to do about due times that nobody was there
for, `overlap` what to do about runs that are still alive, `dependencies` which jobs follow others.

Imported by `submit` (checks), by the leader and by views. Start with `timetable`.
"""
