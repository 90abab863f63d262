"""Every architecture of the equality suite, by name."""

from tests.architectures import hugging_face, own_subjects
from tests.architectures.subject import Subject


def all_subjects() -> dict[str, Subject]:
    """Hugging Face's, then own modules."""
    return {**hugging_face.subjects(), **own_subjects.subjects()}
