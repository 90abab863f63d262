"""The planner in a browser: requests become the arguments of a command, answers are the command's own.

serve      the command: binds, checks, starts
app        routes: pages, answers, jobs
guard      what every request passes: token, sizes, times, headers
questions  bodies of requests, as arguments
answering  arguments to JSON, in a worker
workers    processes that answer; one that takes too long is replaced
jobs       long work in processes of its own, with progress; it can be cancelled
"""
