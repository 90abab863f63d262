"""Python expressions and modules of users, parsed without a word on their style."""

import ast
import warnings


def parse_expression(text: str) -> ast.expr:
    """The expression of a text; raises SyntaxError or ValueError."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text, mode="eval").body


def parse_module(text: str) -> ast.Module:
    """The module of a text; raises SyntaxError or ValueError."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)
