"""Questions as typed requests, and the one place where each is answered.

fields       what a field of a request means: its help, its form on a command line, whether it is stated
*_fields     fields that several requests share
*_request    one request each
plan, ...    the function that answers each request; its result has data, `to_dict` and `to_dataframe`

The command line, the server and the functions of `trainwright` are adapters: they build a request, have it
answered, and render the result. Requests import nothing heavy, so that `--help` is instant.
"""
