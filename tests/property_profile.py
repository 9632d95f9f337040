"""What holds for every test: a property is judged by what is found, never by how long the machine took to look."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# On top of what Hypothesis itself does where `CI` is set: there it draws the same examples in each run.
settings.register_profile(
    "steady", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("steady")
