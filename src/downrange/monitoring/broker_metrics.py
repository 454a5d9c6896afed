"""What a broker counts, under the names of RocketMQ 5's metrics where these exist.

Counters are those that the broker keeps anyway; everything else is looked up when it is asked for.
Names that begin with `downrange_` are ours: RocketMQ has nothing of the kind.
"""

from collections import Counter as Tallies
from collections.abc import Iterator
from typing import Final

from downrange.broker.request_times import BOUNDS_MS
from downrange.broker.view import BrokerView
from downrange.model.names import is_dlq_topic, is_retry_topic, is_system_group
from downrange.monitoring.consumer_lag import GroupLag, QueueLag, group_lags
from downrange.monitoring.exposition import Family, Kind, with_labels
from downrange.protocol.record import decode_record
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.protocol.versions import version_name
from downrange.runtime.disk import Disk

QUEUE_SERIES_MAX: Final = 20_000  # a page must not grow without bounds
_REMOTING: Final = {"protocol_type": "remoting"}
_LOCAL: Final = {"storage_type": "local", "storage_medium": "disk"}
_CONSUME_MODES: Final = {
    "CONSUME_ACTIVELY": "pull",
    "CONSUME_PASSIVELY": "push",
    "CONSUME_POP": "pop",
}


def broker_families(view: BrokerView, disk: Disk, now_ms: int) -> list[Family]:
    """All families of a broker, each sample with its cluster and name."""
    families = [
        *_traffic(view),
        *_latencies(view),
        *_connections(view),
        *_lags(view, now_ms),
        *_state(view),
        *_storage(view, disk, now_ms),
    ]
    settings = view.settings
    labels = {
        "cluster": settings.cluster_name,
        "node_type": "broker",
        "node_id": settings.effective_name,
    }
    return with_labels(families, labels)


def _traffic(view: BrokerView) -> Iterator[Family]:
    stats, is_system = view.stats, view.tables.topics.is_system
    came = Family("rocketmq_messages_in_total", "counter", "Messages taken")
    came_bytes = Family("rocketmq_throughput_in_total", "counter", "Bytes of messages taken")
    dead = Family("rocketmq_send_to_dlq_messages_total", "counter", "Messages given up")
    for topic, tally in stats.put_by_topic.items():
        labels = {"topic": topic, "is_system": _flag(is_system(topic))}
        came.add(tally.count, **labels)
        came_bytes.add(tally.size, **labels)
        if is_dlq_topic(topic):
            dead.add(tally.count, consumer_group=topic.removeprefix("%DLQ%"), **labels)
    went = Family("rocketmq_messages_out_total", "counter", "Messages handed out")
    went_bytes = Family("rocketmq_throughput_out_total", "counter", "Bytes of messages handed out")
    for (group, topic), tally in stats.got_by_group.items():
        labels = {
            "topic": topic,
            "consumer_group": group,
            "is_system": _flag(is_system(topic) or is_system_group(group)),
        }
        went.add(tally.count, **labels)
        went_bytes.add(tally.size, **labels)
    failed = Family("downrange_put_failures_total", "counter", "Messages not taken")
    failed.add(stats.put_failures)
    back = Family("downrange_messages_sent_back_total", "counter", "Messages consumers gave back")
    for (group, topic), count in stats.sent_back.items():
        back.add(count, consumer_group=group, topic=topic)
    yield from (came, came_bytes, went, went_bytes, dead, failed, back)


def _latencies(view: BrokerView) -> Iterator[Family]:
    puts = view.rates.puts
    put = Family(
        "downrange_put_latency_milliseconds", "histogram", "Time to put a message into the store"
    )
    put.add_histogram(BOUNDS_MS, puts.counts_since_start(BOUNDS_MS), puts.sum_ms)
    yield put
    rpc = Family("rocketmq_rpc_latency_milliseconds", "histogram", "Time to serve a request")
    if view.request_times is not None:
        for (code, answer), times in view.request_times.by_codes.items():
            rpc.add_histogram(
                BOUNDS_MS,
                times.counts,
                times.sum_ms,
                request_code=_name(RequestCode, code),
                response_code=_name(ResponseCode, answer),
                is_long_polling="false",
                result="success",
                **_REMOTING,
            )
    yield rpc


def _connections(view: BrokerView) -> Iterator[Family]:
    producers = Tallies(
        (client.language.name.lower(), version_name(client.version).lower())
        for group in view.tables.producers.groups()
        for client in view.tables.producers.clients(group)
    )
    family = Family("rocketmq_producer_connections", "gauge", "Connected producers")
    for (language, version), count in producers.items():
        family.add(count, language=language, version=version, **_REMOTING)
    yield family
    family = Family("rocketmq_consumer_connections", "gauge", "Connected consumers")
    for group_state in view.tables.consumers.groups():
        consumers = Tallies(
            (client.language.name.lower(), version_name(client.version).lower())
            for client in group_state.clients.values()
        )
        for (language, version), count in consumers.items():
            family.add(
                count,
                consumer_group=group_state.name,
                language=language,
                version=version,
                consume_mode=_CONSUME_MODES.get(group_state.consume_type or "", "push"),
                is_system=_flag(is_system_group(group_state.name)),
                **_REMOTING,
            )
    yield family
    family = Family("downrange_connections", "gauge", "Open connections")
    family.add(view.connection_count)
    yield family


def _lags(view: BrokerView, now_ms: int) -> Iterator[Family]:
    gauge: Kind = "gauge"
    lag = Family("rocketmq_consumer_lag_messages", gauge, "Messages not yet acknowledged")
    latency = Family(
        "rocketmq_consumer_lag_latency_milliseconds", gauge, "Age of the first of them"
    )
    flying = Family("rocketmq_consumer_inflight_messages", gauge, "Handed out, not acknowledged")
    ready = Family("rocketmq_consumer_ready_messages", gauge, "Not yet handed out")
    queueing = Family(
        "rocketmq_consumer_queueing_latency_milliseconds", gauge, "Age of the first not handed out"
    )
    queue_lag = Family("downrange_consumer_queue_lag_messages", gauge, "Lag of one queue")
    queue_age = Family("downrange_consumer_queue_lag_seconds", gauge, "Its age")
    left_out = 0
    for group in group_lags(view, now_ms):
        labels = _group_labels(view, group)
        lag.add(group.lag, **labels)
        latency.add(group.lag_ms, **labels)
        flying.add(group.inflight, **labels)
        ready.add(group.ready, **labels)
        queueing.add(group.queueing_ms, **labels)
        for queue in group.queues:
            if len(queue_lag.samples) >= QUEUE_SERIES_MAX:
                left_out += 1
                continue
            own = _queue_labels(group, queue)
            queue_lag.add(queue.lag, **own)
            queue_age.add(queue.lag_ms / 1000, **own)
    omitted = Family("downrange_metrics_queues_left_out", gauge, "Queues beyond the page's bound")
    omitted.add(left_out)
    yield from (lag, latency, flying, ready, queueing, queue_lag, queue_age, omitted)


def _state(view: BrokerView) -> Iterator[Family]:
    waiting = view.waiting
    line = Family("rocketmq_processor_watermark", "gauge", "Requests that wait")
    line.add(waiting.sends.count, processor="send")
    line.add(waiting.pulls.count, processor="pull")
    line.add(waiting.ends.count, processor="transaction")
    permission = Family("rocketmq_broker_permission", "gauge", "4 read, 2 write")
    permission.add(view.settings.permission)
    topics = Family("rocketmq_topic_number", "gauge", "Topics")
    topics.add(len(view.tables.topics))
    groups = Family("rocketmq_consumer_group_number", "gauge", "Consumer groups")
    groups.add(len(view.tables.groups))
    late = Family("downrange_loop_late_milliseconds", "gauge", "How late the event loop is")
    late.add(waiting.sends.wait_ms)
    yield from (line, permission, topics, groups, late)


def _storage(view: BrokerView, disk: Disk, now_ms: int) -> Iterator[Family]:
    store = view.store
    usage = disk.usage(store.settings.root)
    size = Family("rocketmq_storage_size_bytes", "gauge", "Used bytes of the store's partition")
    size.add(usage.total_bytes - usage.free_bytes, **_LOCAL)
    flush = Family("rocketmq_storage_flush_behind_bytes", "gauge", "Bytes not yet durable")
    flush.add(max(store.log.max_offset - store.durable_offset, 0), **_LOCAL)
    dispatch = Family("rocketmq_storage_dispatch_behind_bytes", "gauge", "Bytes not yet visible")
    dispatch.add(max(store.log.max_offset - store.dispatched_offset, 0), **_LOCAL)
    reserve = Family(
        "rocketmq_storage_message_reserve_time_milliseconds", "gauge", "Age of the oldest message"
    )
    record = store.lookup.record_at(store.log.min_offset)
    if record is not None:
        reserve.add(now_ms - decode_record(record, check_crc=False).store_timestamp, **_LOCAL)
    log = Family("downrange_storage_log_bytes", "gauge", "Bytes of the log from first to last")
    log.add(store.log.max_offset - store.log.min_offset, **_LOCAL)
    yield from (size, flush, dispatch, reserve, log)


def _group_labels(view: BrokerView, group: GroupLag) -> dict[str, str]:
    is_system = view.tables.topics.is_system(group.topic) or is_system_group(group.group)
    return {
        "consumer_group": group.group,
        "topic": group.topic,
        "is_retry": _flag(is_retry_topic(group.topic)),
        "is_system": _flag(is_system),
    }


def _queue_labels(group: GroupLag, queue: QueueLag) -> dict[str, str]:
    return {
        "consumer_group": group.group,
        "topic": group.topic,
        "queue_id": str(queue.queue_id),
    }


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _name(codes: type[RequestCode] | type[ResponseCode], code: int) -> str:
    try:
        return codes(code).name.lower()
    except ValueError:
        return str(code)
