"""What is refused of an archive, whatever keeps it."""


class ArchiveError(Exception):
    """The archive cannot be used like this; the text says why and what to do."""


def another_checkpoint(place: str) -> ArchiveError:
    """Batch numbers of another query mean other messages."""
    return ArchiveError(
        f"{place} was written with another checkpoint, so messages would come twice: "
        f"give the checkpoint that belongs to it, or name another place"
    )
