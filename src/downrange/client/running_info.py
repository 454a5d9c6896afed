"""What a consumer is doing, as operators ask for it (GET_CONSUMER_RUNNING_INFO)."""

import asyncio
import sys
import threading
import traceback
from collections.abc import Iterable, Mapping
from typing import Final

from downrange.client.consume_stats import ConsumeStats
from downrange.client.consumer_settings import (
    LitePullSettings,
    PullConsumerSettings,
    PushConsumerSettings,
)
from downrange.client.invalid_messages import InvalidMessageCounts
from downrange.client.offset_store import OffsetStore
from downrange.client.process_queue import ProcessQueue
from downrange.model.topics import MessageQueue
from downrange.protocol.bodies.consumer import PulledQueue, RunningInfo
from downrange.protocol.bodies.heartbeat import Subscription
from downrange.protocol.versions import CURRENT_VERSION, version_name

NO_OFFSET: Final = -1


def running_info(
    *,
    group: str,
    settings: PushConsumerSettings,
    is_in_order: bool,
    threads: int,
    started_ms: int,
    name_servers: Iterable[str],
    subscriptions: Iterable[Subscription],
    queues: Mapping[MessageQueue, ProcessQueue],
    offsets: OffsetStore,
    stats: ConsumeStats,
    invalid: InvalidMessageCounts,
    user_info: Mapping[str, str],
) -> RunningInfo:
    """The figures of now, under Java's names."""
    wanted = _by_topic(subscriptions)
    return RunningInfo(
        properties={
            **_settings_by_java_names(group, settings),
            "PROP_CONSUMEORDERLY": _java_bool(is_in_order),
            "PROP_THREADPOOL_CORE_SIZE": str(threads),
            **_life(started_ms, name_servers, "CONSUME_PASSIVELY"),
            **_invalid(invalid),
        },
        subscription_set=wanted,
        mq_table=_queue_table(queues, offsets),
        status_table={one.topic: stats.rates(one.topic) for one in wanted},
        user_consumer_info=dict(user_info),
    )


def pulling_info(
    settings: Mapping[str, str],
    *,
    started_ms: int,
    name_servers: Iterable[str],
    subscriptions: Iterable[Subscription],
    queues: Mapping[MessageQueue, ProcessQueue],
    offsets: OffsetStore,
    invalid: InvalidMessageCounts,
    user_info: Mapping[str, str],
) -> RunningInfo:
    """The same of a consumer without a listener."""
    return RunningInfo(
        properties={
            **settings,
            **_life(started_ms, name_servers, "CONSUME_ACTIVELY"),
            **_invalid(invalid),
        },
        subscription_set=_by_topic(subscriptions),
        mq_table=_queue_table(queues, offsets),
        user_consumer_info=dict(user_info),
    )


def stacks() -> str:
    """Where every thread and every task is: Python's answer to jstack."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():  # noqa: SLF001 - there is no other way
        lines = "".join(traceback.format_stack(frame))
        parts.append(f"thread {names.get(ident, ident)}\n{lines}")
    for task in asyncio.all_tasks():
        lines = "".join(
            "".join(traceback.format_stack(frame, limit=1)) for frame in task.get_stack()
        )
        parts.append(f"task {task.get_name()}\n{lines}")
    return "\n".join(parts)


def pull_settings(group: str, settings: PullConsumerSettings) -> dict[str, str]:
    """The settings of a pull consumer under Java's names."""
    return _texts(
        {
            "consumerGroup": group,
            "messageModel": settings.message_model.value,
            "brokerSuspendMaxTimeMillis": _ms(settings.suspend_max_s),
            "consumerTimeoutMillisWhenSuspend": _ms(settings.timeout_when_suspended_s),
            "consumerPullTimeoutMillis": _ms(settings.pull_timeout_s),
            "maxReconsumeTimes": settings.max_reconsume_times,
            "unitMode": _java_bool(settings.unit_mode),
        }
    )


def lite_settings(group: str, settings: LitePullSettings) -> dict[str, str]:
    """The settings of a lite pull consumer under Java's names."""
    return _texts(
        {
            "consumerGroup": group,
            "messageModel": settings.message_model.value,
            "consumeFromWhere": settings.consume_from_where.value,
            "autoCommit": _java_bool(settings.auto_commit),
            "autoCommitIntervalMillis": _ms(settings.auto_commit_interval_s),
            "pullBatchSize": settings.pull_batch_size,
            "pullThresholdForAll": settings.pull_threshold_for_all,
            "pullThresholdForQueue": settings.pull_threshold_for_queue,
            "pullThresholdSizeForQueue": settings.pull_threshold_mib_for_queue,
            "consumeMaxSpan": settings.span_max,
            "brokerSuspendMaxTimeMillis": _ms(settings.suspend_max_s),
            "consumerTimeoutMillisWhenSuspend": _ms(settings.timeout_when_suspended_s),
            "pollTimeoutMillis": _ms(settings.poll_timeout_s),
            "topicMetadataCheckIntervalMillis": _ms(settings.topic_check_interval_s),
            "pullTimeDelayMillsWhenException": settings.error_delay_ms,
            "unitMode": _java_bool(settings.unit_mode),
        }
    )


def _settings_by_java_names(group: str, settings: PushConsumerSettings) -> dict[str, str]:
    no_limit = -1
    values: dict[str, object] = {
        "consumerGroup": group,
        "messageModel": settings.message_model.value,
        "consumeFromWhere": settings.consume_from_where.value,
        "consumeThreadMin": settings.consume_threads_min,
        "consumeThreadMax": settings.consume_threads_max,
        "consumeConcurrentlyMaxSpan": settings.span_max,
        "pullThresholdForQueue": settings.pull_threshold_for_queue,
        "pullThresholdSizeForQueue": settings.pull_threshold_mib_for_queue,
        "pullThresholdForTopic": settings.pull_threshold_for_topic or no_limit,
        "pullThresholdSizeForTopic": settings.pull_threshold_mib_for_topic or no_limit,
        "pullInterval": settings.pull_interval_ms,
        "pullBatchSize": settings.pull_batch_size,
        "pullBatchSizeInBytes": settings.pull_batch_bytes,
        "consumeMessageBatchMaxSize": settings.consume_batch_size,
        "postSubscriptionWhenPull": _java_bool(settings.post_subscription_when_pull),
        "unitMode": _java_bool(settings.unit_mode),
        "maxReconsumeTimes": (
            no_limit if settings.max_reconsume_times is None else settings.max_reconsume_times
        ),
        "suspendCurrentQueueTimeMillis": settings.suspend_current_queue_ms,
        "consumeTimeout": int(settings.consume_timeout_min),
    }
    return _texts(values)


def _texts(values: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in values.items()}


def _by_topic(subscriptions: Iterable[Subscription]) -> tuple[Subscription, ...]:
    return tuple(sorted(subscriptions, key=lambda one: one.topic))


def _life(started_ms: int, name_servers: Iterable[str], kind: str) -> dict[str, str]:
    return {
        "PROP_CONSUMER_START_TIMESTAMP": str(started_ms),
        "PROP_NAMESERVER_ADDR": "".join(f"{server};" for server in name_servers),
        "PROP_CONSUME_TYPE": kind,
        "PROP_CLIENT_VERSION": version_name(CURRENT_VERSION),
    }


def _invalid(counts: InvalidMessageCounts) -> dict[str, str]:
    """Our own: Java does not count messages that it cannot decode."""
    return {
        "PROP_INVALID_MESSAGES": str(counts.received),
        "PROP_INVALID_MESSAGES_DEAD_LETTERED": str(counts.dead_lettered),
        "PROP_INVALID_MESSAGES_SKIPPED": str(counts.skipped),
        "PROP_QUEUES_STOPPED": str(counts.stopped_queues),
    }


def _queue_table(
    queues: Mapping[MessageQueue, ProcessQueue], offsets: OffsetStore
) -> dict[MessageQueue, PulledQueue]:
    committed = {queue: offsets.in_memory(queue) for queue in queues}
    return {
        queue: held.describe(NO_OFFSET if (offset := committed[queue]) is None else offset)
        for queue, held in queues.items()
    }


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _java_bool(value: bool) -> str:
    return "true" if value else "false"
