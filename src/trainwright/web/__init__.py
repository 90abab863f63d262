"""The planner in a browser: bodies become typed requests, answers are those of `api`.

app        routes: pages, answers, jobs
guard      what every request passes: token, sizes, times, headers
questions  bodies, with the fields of requests
answering  requests to JSON, in a worker
workers    processes that answer; one that takes too long is replaced
jobs       long work in processes of its own, with progress; it can be cancelled
"""
