"""Closure of plan, export and advise: what one command answers, the next accepts."""
