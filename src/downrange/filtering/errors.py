"""What can be wrong with a subscription's expression."""


class FilterSyntaxError(ValueError):
    """An expression that cannot be compiled; says where, what was found and what was expected."""

    def __init__(self, position: int, problem: str) -> None:
        super().__init__(f"at character {position}: {problem}")
        self.position = position
        self.problem = problem
