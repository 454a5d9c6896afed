"""What all tests share."""

from hypothesis import HealthCheck, settings

# No time limits on single examples: a busy machine is no bug. A failure prints how to repeat it.
settings.register_profile(
    "search",
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
# The same examples each time: a commit that passed once passes again. `make search` looks further.
settings.register_profile("downrange", settings.get_profile("search"), derandomize=True)
settings.load_profile("downrange")
