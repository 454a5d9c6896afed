"""What a broker counts, under the names of RocketMQ 5's metrics where these exist.

Counters are those that the broker keeps anyway; everything else is looked up when it is asked for.
Names that begin with `downrange_` are ours: RocketMQ has nothing of the kind.
"""

from collections import Counter as Tallies
from collections.abc import Iterable
from functools import partial
from typing import Final

from downrange.broker.clients import ConnectedClient
from downrange.broker.request_times import BOUNDS_MS
from downrange.broker.view import BrokerView
from downrange.model.names import is_dlq_topic, is_retry_topic, is_system_group
from downrange.monitoring.connection_metrics import add_connection_families
from downrange.monitoring.consumer_lag import GroupLag, StoreTimes, group_lags
from downrange.monitoring.exposition import Exposition, Section, Steps, label_text
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


def collect_broker(
    page: Exposition, view: BrokerView, times: StoreTimes, disk: Disk, now_ms: int
) -> Steps:
    """Add all families of a broker, each sample with its cluster and name.

    Pauses after each topic, group and queue; the broker may change or stop meanwhile.
    """
    settings = view.settings
    section = page.section(
        {
            "cluster": settings.cluster_name,
            "node_type": "broker",
            "node_id": settings.effective_name,
        }
    )
    for collect in (
        partial(_storage, disk=disk, now_ms=now_ms),
        _scrub,
        _state,
        _held_up,
        _traffic,
        _latencies,
        _connections,
        partial(_lags, times=times, now_ms=now_ms),
    ):
        for _ in collect(view, section):
            yield
            if not view.store.is_open:
                return


def _traffic(view: BrokerView, section: Section) -> Steps:
    stats, is_system = view.stats, view.tables.topics.is_system
    came = section.counter("rocketmq_messages_in_total", "Messages taken")
    came_bytes = section.counter("rocketmq_throughput_in_total", "Bytes of messages taken")
    dead = section.counter("rocketmq_send_to_dlq_messages_total", "Messages given up")
    for topic, tally in list(stats.put_by_topic.items()):
        labels = label_text({"topic": topic, "is_system": _flag(is_system(topic))})
        came.add_labelled(labels, tally.count)
        came_bytes.add_labelled(labels, tally.size)
        if is_dlq_topic(topic):
            group = label_text({"consumer_group": topic.removeprefix("%DLQ%")})
            dead.add_labelled(f"{group},{labels}", tally.count)
        yield
    went = section.counter("rocketmq_messages_out_total", "Messages handed out")
    went_bytes = section.counter("rocketmq_throughput_out_total", "Bytes of messages handed out")
    for (group, topic), tally in list(stats.got_by_group.items()):
        labels = label_text(
            {
                "topic": topic,
                "consumer_group": group,
                "is_system": _flag(is_system(topic) or is_system_group(group)),
            }
        )
        went.add_labelled(labels, tally.count)
        went_bytes.add_labelled(labels, tally.size)
        yield
    failed = section.counter("downrange_put_failures_total", "Messages not taken")
    failed.add(stats.put_failures)
    back = section.counter("downrange_messages_sent_back_total", "Messages consumers gave back")
    for (group, topic), count in list(stats.sent_back.items()):
        back.add(count, consumer_group=group, topic=topic)
        yield


def _latencies(view: BrokerView, section: Section) -> Steps:
    puts = view.rates.puts
    put = section.family(
        "downrange_put_latency_milliseconds", "histogram", "Time to put a message into the store"
    )
    put.add_histogram(BOUNDS_MS, puts.counts_since_start(BOUNDS_MS), puts.sum_ms)
    yield
    rpc = section.family(
        "rocketmq_rpc_latency_milliseconds", "histogram", "Time to serve a request"
    )
    if view.request_times is not None:
        for (code, answer), times in list(view.request_times.by_codes.items()):
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
            yield


def _connections(view: BrokerView, section: Section) -> Steps:
    producers: Tallies[tuple[str, str]] = Tallies()
    for group in view.tables.producers.groups():
        producers.update(_kinds(view.tables.producers.clients(group)))
        yield
    family = section.gauge("rocketmq_producer_connections", "Connected producers")
    for (language, version), count in producers.items():
        family.add(count, language=language, version=version, **_REMOTING)
        yield
    family = section.gauge("rocketmq_consumer_connections", "Connected consumers")
    for group_state in view.tables.consumers.groups():
        for (language, version), count in Tallies(_kinds(group_state.clients.values())).items():
            family.add(
                count,
                consumer_group=group_state.name,
                language=language,
                version=version,
                consume_mode=_CONSUME_MODES.get(group_state.consume_type or "", "push"),
                is_system=_flag(is_system_group(group_state.name)),
                **_REMOTING,
            )
        yield
    section.gauge("downrange_connections", "Open connections").add(view.connection_count)
    yield


def _lags(view: BrokerView, section: Section, *, times: StoreTimes, now_ms: int) -> Steps:
    gauge = section.gauge
    lag = gauge("rocketmq_consumer_lag_messages", "Messages not yet acknowledged")
    latency = gauge("rocketmq_consumer_lag_latency_milliseconds", "Age of the first of them")
    flying = gauge("rocketmq_consumer_inflight_messages", "Handed out, not acknowledged")
    ready = gauge("rocketmq_consumer_ready_messages", "Not yet handed out")
    queueing = gauge(
        "rocketmq_consumer_queueing_latency_milliseconds", "Age of the first not handed out"
    )
    queue_lag = gauge("downrange_consumer_queue_lag_messages", "Lag of one queue")
    queue_age = gauge("downrange_consumer_queue_lag_seconds", "Its age")
    queue_count = 0
    for group in group_lags(view, times, now_ms):
        yield
        if group is None:
            continue
        labels = _group_labels(view, group)
        lag.add_labelled(labels, group.lag)
        latency.add_labelled(labels, group.lag_ms)
        flying.add_labelled(labels, group.inflight)
        ready.add_labelled(labels, group.ready)
        queueing.add_labelled(labels, group.queueing_ms)
        queue_of = label_text({"consumer_group": group.group, "topic": group.topic})
        for queue in group.queues:
            queue_count += 1
            if queue_count > QUEUE_SERIES_MAX:
                continue
            labels = f'{queue_of},queue_id="{queue.queue_id}"'
            queue_lag.add_labelled(labels, queue.lag)
            queue_age.add_labelled(labels, queue.lag_ms / 1000)
            yield
    omitted = gauge("downrange_metrics_queues_left_out", "Queues beyond the page's limit")
    omitted.add(max(queue_count - QUEUE_SERIES_MAX, 0))
    yield


def _state(view: BrokerView, section: Section) -> Steps:
    waiting = view.waiting
    line = section.gauge("rocketmq_processor_watermark", "Requests that wait")
    line.add(waiting.sends.count, processor="send")
    line.add(waiting.pulls.count, processor="pull")
    line.add(waiting.ends.count, processor="transaction")
    section.gauge("rocketmq_broker_permission", "4 read, 2 write").add(view.settings.permission)
    section.gauge("rocketmq_topic_number", "Topics").add(len(view.tables.topics))
    section.gauge("rocketmq_consumer_group_number", "Consumer groups").add(len(view.tables.groups))
    late = section.gauge("downrange_loop_late_milliseconds", "How late the event loop is")
    late.add(waiting.sends.wait_ms)
    yield


def _held_up(view: BrokerView, section: Section) -> Steps:
    add_connection_families(section, view.watch, view.intake)
    quota = section.counter("downrange_quota_refusals_total", "Creations refused, by setting")
    for setting, count in view.tables.topics.quota.refusals.items():
        quota.add(count, setting=setting)
    yield


def _storage(view: BrokerView, section: Section, *, disk: Disk, now_ms: int) -> Steps:
    store, gauge = view.store, section.gauge
    usage = disk.usage(store.settings.root)
    size = gauge("rocketmq_storage_size_bytes", "Used bytes of the store's partition")
    size.add(usage.total_bytes - usage.free_bytes, **_LOCAL)
    flush = gauge("rocketmq_storage_flush_behind_bytes", "Bytes not yet durable")
    flush.add(max(store.log.max_offset - store.durable_offset, 0), **_LOCAL)
    dispatch = gauge("rocketmq_storage_dispatch_behind_bytes", "Bytes not yet visible")
    dispatch.add(max(store.log.max_offset - store.dispatched_offset, 0), **_LOCAL)
    reserve = gauge(
        "rocketmq_storage_message_reserve_time_milliseconds", "Age of the oldest message"
    )
    record = store.lookup.record_at(store.log.min_offset)
    if record is not None:
        reserve.add(now_ms - decode_record(record, check_crc=False).store_timestamp, **_LOCAL)
    log = gauge("downrange_storage_log_bytes", "Bytes of the log from first to last")
    log.add(store.log.max_offset - store.log.min_offset, **_LOCAL)
    yield


def _scrub(view: BrokerView, section: Section) -> Steps:
    scrubber = view.store.scrubber
    damages = section.gauge("downrange_scrub_damages", "Damaged places that the scrubber found")
    damages.add(len(scrubber.damages), **_LOCAL)
    records = section.counter("downrange_scrub_records_total", "Records that the scrubber checked")
    records.add(scrubber.record_count, **_LOCAL)
    passes = section.counter("downrange_scrub_passes_total", "Passes of the scrubber over the log")
    passes.add(scrubber.pass_count, **_LOCAL)
    last = section.gauge("downrange_scrub_pass_seconds", "How long the last whole pass took")
    last.add(scrubber.pass_s, **_LOCAL)
    yield


def _kinds(clients: Iterable[ConnectedClient]) -> list[tuple[str, str]]:
    return [
        (client.language.name.lower(), version_name(client.version).lower()) for client in clients
    ]


def _group_labels(view: BrokerView, group: GroupLag) -> str:
    is_system = view.tables.topics.is_system(group.topic) or is_system_group(group.group)
    return label_text(
        {
            "consumer_group": group.group,
            "topic": group.topic,
            "is_retry": _flag(is_retry_topic(group.topic)),
            "is_system": _flag(is_system),
        }
    )


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _name(codes: type[RequestCode] | type[ResponseCode], code: int) -> str:
    try:
        return codes(code).name.lower()
    except ValueError:
        return str(code)
