"""What all tests share."""

from hypothesis import HealthCheck, settings

# No time limits on single examples: a busy machine is no bug. A failure prints how to repeat it.
settings.register_profile(
    "downrange",
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("downrange")
