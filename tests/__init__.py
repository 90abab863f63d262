"""Tests, importable so that neighbours can share builders."""
