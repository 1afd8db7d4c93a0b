"""Hypothesis без случайностей: один и тот же код проверяется на одних и тех же примерах."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("nanolm", derandomize=True, deadline=None, max_examples=30)
settings.load_profile("nanolm")
