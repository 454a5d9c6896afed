"""What can go wrong in a store, one class for each answer that a caller can give."""

from enum import Enum


class StoreError(Exception):
    """The store cannot do what was asked; the text says why and what to do."""


class StoreDamagedError(StoreError):
    """The files cannot be a store of this configuration; nothing was changed."""


class SegmentMissingError(StoreDamagedError):
    """A file in the middle of a chain is gone."""


class LogMissingError(StoreDamagedError):
    """The log, or its newest files, are not where they should be; nothing was changed."""


class StoreUnavailableError(StoreError):
    """The disk refuses what a store needs to be opened; the text names the directory."""


class StoreLockedError(StoreError):
    """Another process has the store open."""


class StoreClosedError(StoreError):
    """The store was closed and serves nothing any more."""


class StoreGivenUpError(StoreError):
    """The store was not opened: whoever wanted it changed their mind meanwhile."""


class PutStatus(Enum):
    """Why a message was not taken, or what its acknowledgement has to say.

    The value is the name that RocketMQ has for the case; several of our cases share one there.
    """

    def __init__(self, rocketmq_name: str, detail: str) -> None:
        self.rocketmq_name = rocketmq_name
        self.detail = detail

    PUT_OK = ("PUT_OK", "appended, and as durable as the flush mode promises")
    FLUSH_DISK_TIMEOUT = ("FLUSH_DISK_TIMEOUT", "appended, not known to be durable in time")
    SHUT_DOWN = ("SERVICE_NOT_AVAILABLE", "the store is shut down")
    SLAVE = ("SERVICE_NOT_AVAILABLE", "this store belongs to a slave")
    NOT_WRITABLE = ("SERVICE_NOT_AVAILABLE", "the store is read-only after an I/O error")
    DISPATCH_STALLED = ("SERVICE_NOT_AVAILABLE", "messages do not become visible to consumers")
    DISK_FULL = ("SERVICE_NOT_AVAILABLE", "the disk is too full")
    TOPIC_TOO_LONG = ("MESSAGE_ILLEGAL", "the topic's name is too long for its record")
    BODY_TOO_LARGE = ("MESSAGE_ILLEGAL", "the message is larger than allowed")
    BATCH_ILLEGAL = ("MESSAGE_ILLEGAL", "the batch cannot be stored as one")
    PROPERTIES_TOO_LONG = ("PROPERTIES_SIZE_EXCEEDED", "the property text is over 32,767 bytes")
    PAGE_CACHE_BUSY = ("OS_PAGE_CACHE_BUSY", "an append has been waiting for memory too long")
    SEGMENT_FAILED = ("CREATE_MAPPED_FILE_FAILED", "no space for more could be had from the disk")


class AppendRefusedError(StoreError):
    """A message was not taken; nothing of it is in the log."""

    def __init__(self, status: PutStatus, remark: str) -> None:
        super().__init__(remark)
        self.status = status
        self.remark = remark
