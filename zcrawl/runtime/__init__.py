"""Processes of an operating system: loops, threads, files, children, clocks.

`supervisor` starts worker processes and starts them again, `nursery` forks the first ones early,
`watchdog` ends what stands still, `confine` keeps foreign code from secrets, `clock` is the time
that loops hand to machines.

Touches the world, and knows nothing of crawling. Imported by all folders that touch the world.
"""
