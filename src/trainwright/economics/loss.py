"""Loss by parameters and tokens: published scaling laws of text models.

    L = E + A / N^alpha + B / D^beta        nats per token, N parameters, D tokens

Both sets of constants rest on the same runs (Hoffmann et al. 2022, approach 3): dense models of 70 M to 16 B
parameters on 5 to 500 billion tokens of MassiveText. Another text, tokenizer or architecture has another E.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from trainwright.errors import UnknownName


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """The five constants of a law, and where they are from."""

    name: str
    floor: float  # E
    parameter_factor: float  # A
    parameter_exponent: float  # alpha
    token_factor: float  # B
    token_exponent: float  # beta
    source: str

    def loss(self, parameters: float, tokens: float) -> float:
        """The loss of so many parameters after so many tokens."""
        return self.least_loss(parameters) + float(self.token_factor / tokens**self.token_exponent)

    def least_loss(self, parameters: float) -> float:
        """The loss that so many parameters approach and never reach."""
        return self.floor + float(self.parameter_factor / parameters**self.parameter_exponent)

    def tokens(self, parameters: float, loss: float) -> float:
        """Tokens after which so many parameters have this loss, which is above the least."""
        above = loss - self.least_loss(parameters)
        return float((self.token_factor / above) ** (1.0 / self.token_exponent))


LAWS: Mapping[str, Law] = {
    law.name: law
    for law in (
        Law(
            name="hoffmann", floor=1.69, parameter_factor=406.4, parameter_exponent=0.34,
            token_factor=410.7, token_exponent=0.28, source="Hoffmann et al. 2022, arXiv 2203.15556",
        ),
        Law(
            name="besiroglu", floor=1.82, parameter_factor=482.0, parameter_exponent=0.348,
            token_factor=2085.0, token_exponent=0.366, source="Besiroglu et al. 2024, arXiv 2404.10102",
        ),
    )
}  # fmt: skip
FITTED_PARAMETERS = (7e7, 1.6e10)
FITTED_TOKENS = (5e9, 5e11)


def law_of(name: str) -> Law:
    """The law of this name."""
    if name not in LAWS:
        raise UnknownName("scaling law", name, LAWS)
    return LAWS[name]


def is_fitted(parameters: float, tokens: float) -> bool:
    """Whether the runs that the laws were fitted to were about as large."""
    return (
        FITTED_PARAMETERS[0] <= parameters <= FITTED_PARAMETERS[1]
        and FITTED_TOKENS[0] <= tokens <= FITTED_TOKENS[1]
    )
