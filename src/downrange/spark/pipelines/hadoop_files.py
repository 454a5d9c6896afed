"""Files wherever Spark can write: Hadoop's own file systems, asked on the driver."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.java_gateway import JavaObject, JVMView
from pyspark.sql import SparkSession


class HadoopFiles:
    """The files below a folder, named by their path in it. Belongs to the driver."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        context = spark.sparkContext
        assert context._jvm is not None, "a driver has its JVM"  # noqa: SLF001 - no other way
        self._jvm: JVMView = context._jvm  # noqa: SLF001
        self._root = self._jvm.org.apache.hadoop.fs.Path(root)
        conf = context._jsc.hadoopConfiguration()  # noqa: SLF001
        self._system = self._root.getFileSystem(conf)
        self.root = str(self._system.makeQualified(self._root).toString())

    def names(self, folder: str) -> list[str]:
        """Files directly in a folder, sorted; none if it is not there."""
        return [name for name, is_file, _ in self._entries(folder) if is_file]

    def sizes_below(self, folder: str) -> dict[str, int]:
        """Every file below a folder with its bytes."""
        found: dict[str, int] = {}
        for name, is_file, length in self._entries(folder):
            path = f"{folder}/{name}" if folder else name
            if is_file:
                found[path] = length
            else:
                found |= self.sizes_below(path)
        return found

    def read_text(self, path: str) -> str:
        """The text of a file."""
        with self._closing(self._system.open(self._at(path))) as stream:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))

    def create_text(self, path: str, text: str) -> None:
        """Make a file that appears whole or not at all; `FileExistsError` if it is there."""
        if self._system.exists(self._at(path)):
            raise FileExistsError(path)
        folder, _, name = path.rpartition("/")
        beside = f"{folder}/.{name}.{uuid.uuid4().hex}.tmp"
        stream = self._system.create(self._at(beside), True)
        with self._closing(stream):
            stream.write(bytearray(text.encode()))
        self.rename(beside, path)

    def rename(self, old: str, new: str) -> None:
        """Move a file; the folder is made."""
        self._system.mkdirs(self._at(new).getParent())
        if not self._system.rename(self._at(old), self._at(new)):
            raise OSError(f"{self.root}: cannot move {old} to {new}")

    def delete(self, path: str) -> None:
        """Remove a file or a folder with all in it; nothing if it is not there."""
        self._system.delete(self._at(path), True)

    def _entries(self, folder: str) -> Iterator[tuple[str, bool, int]]:
        place = self._at(folder) if folder else self._root
        if not self._system.exists(place):
            return
        entries = [
            (str(status.getPath().getName()), bool(status.isFile()), int(status.getLen()))
            for status in self._system.listStatus(place)
        ]
        yield from sorted(entries)

    def _at(self, path: str) -> JavaObject:
        # A string with ":" or "%" in it would be read as an address, so it is put below the root.
        return self._jvm.org.apache.hadoop.fs.Path(self._root, path)

    @contextmanager
    def _closing(self, stream: JavaObject) -> Iterator[JavaObject]:
        try:
            yield stream
        finally:
            stream.close()
