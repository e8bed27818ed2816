"""Processes of an operating system: loops, threads, files, children, clocks.

`supervisor` starts worker processes and starts them again, `nursery` forks the first ones early,
`watchdog` ends processes whose loop is stuck, `confine` keeps foreign code from secrets, `clock`
has the time that loops pass to machines.

Does I/O, and contains nothing about crawling. Imported by all folders that do I/O.
"""
