"""Studies by name: an extension is one file, and one line here."""

from collections.abc import Mapping

STUDIES: Mapping[str, str] = {
    "flexible-plans": "plans beyond knobs against systems of 2022 and against all knobs of today",
}
