"""How far each delay level was delivered, in delayOffset.json."""

from downrange.broker.saved_table import SavedTable, SaveJob
from downrange.model.topics import DataVersion
from downrange.runtime.clock import Clock
from downrange.store.json_tables import TableFile
from downrange.store.offset_tables import DelayOffsets


class DelayTable(SavedTable[DelayOffsets]):
    """The offsets in memory: the next one to deliver, by delay level. Owned by the broker's thread.

    Only offsets whose deliveries are durable may be set: a crash then repeats deliveries and never
    loses one.
    """

    def __init__(self, file: TableFile[DelayOffsets], clock: Clock) -> None:
        super().__init__(file, is_new=False)
        self._clock = clock
        self._data_version = DataVersion()
        self.offsets: dict[int, int] = {}

    def load(self) -> None:
        """Take what the file holds."""
        table = self._file.load()
        if table is not None:
            self.offsets = dict(table.offsets)
            self._data_version = table.data_version

    def set(self, level: int, offset: int) -> None:
        """Note that everything of a level before `offset` was delivered."""
        if self.offsets.get(level) != offset:
            self.offsets[level] = offset
            self._note_change()

    def begin_save(self) -> SaveJob:
        """The work that makes every change so far durable; it gives the table a new version."""
        self._data_version = self._data_version.next(self._clock.wall_ms())
        return super().begin_save()

    def to_file(self) -> DelayOffsets:
        """The table as its file and its slaves see it."""
        offsets = dict(sorted(self.offsets.items()))
        return DelayOffsets(data_version=self._data_version, offsets=offsets)
