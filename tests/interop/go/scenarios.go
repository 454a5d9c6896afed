package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const messages = 20

// produce sends in every way and sees all of it through to a consumer.
func produce(w *world) error {
	from, err := w.producer()
	if err != nil {
		return err
	}
	ctx := context.Background()
	statuses := map[string]bool{}
	for i := 10; i < 10+messages; i++ {
		result, err := from.SendSync(ctx, w.message("tag", fmt.Sprintf("sync-%d", i)))
		if err != nil {
			return err
		}
		statuses[strconv.Itoa(int(result.Status))] = true
	}
	w.saw("sync", sorted(statuses)...)
	var lock sync.Mutex
	var answers []string
	for i := 10; i < 10+messages; i++ {
		err = from.SendAsync(ctx, func(_ context.Context, result *primitive.SendResult, err error) {
			lock.Lock()
			defer lock.Unlock()
			answers = append(answers, fmt.Sprint(err == nil && result.Status == primitive.SendOK))
		}, w.message("tag", fmt.Sprintf("async-%d", i)))
		if err != nil {
			return err
		}
		if err = from.SendOneWay(ctx, w.message("tag", fmt.Sprintf("one-way-%d", i))); err != nil {
			return err
		}
	}
	if err = await("all answers", func() bool { lock.Lock(); defer lock.Unlock(); return len(answers) == messages }); err != nil {
		return err
	}
	good := map[string]bool{}
	for _, answer := range answers {
		good[answer] = true
	}
	w.saw("async", sorted(good)...)
	batch := make([]*primitive.Message, messages)
	for i := range batch {
		batch[i] = w.message("tag", fmt.Sprintf("batch-%d", 10+i))
	}
	result, err := from.SendSync(ctx, batch...)
	if err != nil {
		return err
	}
	w.saw("batch", strconv.Itoa(int(result.Status)))
	delayed := w.message("tag", "delayed").WithDelayTimeLevel(1)
	if _, err = from.SendSync(ctx, delayed); err != nil {
		return err
	}
	got := &seen{}
	to, err := w.consume("consumer", got.accept)
	if err != nil {
		return err
	}
	if err = got.await(4*messages + 1); err != nil {
		return fmt.Errorf("%w; got %v", err, got.distinct())
	}
	w.saw("consumed", strconv.Itoa(len(got.distinct())))
	keys := 0
	for _, message := range got.all() {
		if message.GetKeys() == "key-"+string(message.Body) && message.GetTags() == "tag" {
			keys++
		}
	}
	w.saw("keysKept", strconv.FormatBool(keys == len(got.all())))
	return stop(to, from)
}

// push consumes what waits and what comes later; then a second life of the group goes on.
func push(w *world) error {
	from, err := w.producer()
	if err != nil {
		return err
	}
	for round := 1; round <= 2; round++ {
		if err = send(w, from, fmt.Sprintf("round-%d-", round), 10); err != nil {
			return err
		}
		got := &seen{}
		to, err := w.consume("consumer", got.accept)
		if err != nil {
			return err
		}
		if err = got.await(10); err != nil {
			return err
		}
		if err = send(w, from, fmt.Sprintf("round-%d-later-", round), 10); err != nil {
			return err
		}
		if err = got.await(20); err != nil {
			return err
		}
		w.saw(fmt.Sprintf("round %d", round), got.distinct()...)
		if err = to.Shutdown(); err != nil {
			return err
		}
	}
	return from.Shutdown()
}

func send(w *world, from rocketmq.Producer, name string, count int) error {
	for i := 0; i < count; i++ {
		if _, err := from.SendSync(context.Background(), w.message("tag", name+strconv.Itoa(i))); err != nil {
			return err
		}
	}
	return nil
}

// orderly sends each key to one queue and consumes queue by queue.
func orderly(w *world) error {
	from, err := w.producer(producer.WithQueueSelector(producer.NewHashQueueSelector()))
	if err != nil {
		return err
	}
	for i := 0; i < 2*messages; i++ {
		message := w.message("tag", fmt.Sprintf("%d/%d", i%4, 10+i)).WithShardingKey(strconv.Itoa(i % 4))
		if _, err = from.SendSync(context.Background(), message); err != nil {
			return err
		}
	}
	got := &seen{}
	to, err := w.consume("consumer", got.accept, consumer.WithConsumerOrder(true))
	if err != nil {
		return err
	}
	if err = got.await(2 * messages); err != nil {
		return fmt.Errorf("%w; got %v", err, got.distinct())
	}
	byKey := map[string][]string{}
	for _, message := range got.all() {
		body := string(message.Body)
		byKey[body[:1]] = append(byKey[body[:1]], body[2:])
	}
	for key, numbers := range byKey {
		w.saw("key "+key, numbers...)
	}
	return stop(to, from)
}

// deal decides about half messages by their body and remembers which were asked for again.
type deal struct {
	lock    sync.Mutex
	checked map[string]bool
}

func (d *deal) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	switch string(message.Body) {
	case "commit":
		return primitive.CommitMessageState
	case "rollback":
		return primitive.RollbackMessageState
	default:
		return primitive.UnknowState
	}
}

func (d *deal) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	d.lock.Lock()
	defer d.lock.Unlock()
	d.checked[string(message.Body)] = true
	if string(message.Body) == "unknown-rollback" {
		return primitive.RollbackMessageState
	}
	return primitive.CommitMessageState
}

func (d *deal) asked() []string {
	d.lock.Lock()
	defer d.lock.Unlock()
	return sorted(d.checked)
}

func transaction(w *world) error {
	plain, err := w.producer()
	if err != nil {
		return err
	}
	listener := &deal{checked: map[string]bool{}}
	options := w.producerOptions(producer.WithGroupName(w.prefix + "-transactions"))
	from, err := rocketmq.NewTransactionProducer(listener, options...)
	if err != nil {
		return err
	}
	if err = from.Start(); err != nil {
		return err
	}
	got := &seen{}
	to, err := w.consume("consumer", got.accept)
	if err != nil {
		return err
	}
	for _, body := range []string{"rollback", "commit", "unknown-rollback", "unknown-commit"} {
		result, err := from.SendMessageInTransaction(context.Background(), w.message("tag", body))
		if err != nil {
			return err
		}
		w.saw("status "+body, strconv.Itoa(int(result.Status)))
	}
	if err = got.await(2); err != nil {
		return fmt.Errorf("%w; got %v, checked %v", err, got.distinct(), listener.asked())
	}
	if err = await("two checks", func() bool { return len(listener.asked()) == 2 }); err != nil {
		return err
	}
	w.saw("consumed", got.distinct()...)
	w.saw("checked", listener.asked()...)
	if err = to.Shutdown(); err != nil {
		return err
	}
	if err = from.Shutdown(); err != nil {
		return err
	}
	return plain.Shutdown()
}

// retry refuses a message twice; it comes again by way of the retry topic.
func retry(w *world) error {
	from, err := w.producer()
	if err != nil {
		return err
	}
	// The retry topic is born with its group; a consumer that starts when it is there need not wait for its route.
	got := &seen{}
	first, err := w.consume("consumer", got.accept)
	if err != nil {
		return err
	}
	if err = first.Shutdown(); err != nil {
		return err
	}
	if err = send(w, from, "again-", 1); err != nil {
		return err
	}
	to, err := w.consume("consumer", func(ctx context.Context, batch ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		got.add(batch)
		if concurrent, ok := primitive.GetConcurrentlyCtx(ctx); ok {
			concurrent.DelayLevelWhenNextConsume = 1
		}
		if batch[0].ReconsumeTimes < 2 {
			return consumer.ConsumeRetryLater, nil
		}
		return consumer.ConsumeSuccess, nil
	})
	if err != nil {
		return err
	}
	if err = await("two retries", func() bool { return len(got.all()) >= 3 }); err != nil {
		return err
	}
	var times []string
	for _, message := range got.all() {
		times = append(times, strconv.Itoa(int(message.ReconsumeTimes)))
	}
	w.saw("times", times...)
	return stop(to, from)
}

func broadcast(w *world) error {
	from, err := w.producer()
	if err != nil {
		return err
	}
	var members []rocketmq.PushConsumer
	var all []*seen
	for i := 0; i < 2; i++ {
		got := &seen{}
		member, err := w.consume("everyone", got.accept, consumer.WithConsumerModel(consumer.BroadCasting))
		if err != nil {
			return err
		}
		members, all = append(members, member), append(all, got)
	}
	if err = send(w, from, "message-", messages); err != nil {
		return err
	}
	for i, got := range all {
		if err = got.await(messages); err != nil {
			return err
		}
		w.saw(fmt.Sprintf("member %d", i), strconv.Itoa(len(got.distinct())))
		if err = members[i].Shutdown(); err != nil {
			return err
		}
	}
	return from.Shutdown()
}

// spread sends to a topic on two brokers and consumes all of it once.
func spread(w *world) error {
	from, err := w.producer()
	if err != nil {
		return err
	}
	brokers := map[string]bool{}
	for i := 0; i < 4*messages; i++ {
		result, err := from.SendSync(context.Background(), w.message("tag", fmt.Sprintf("spread-%d", i)))
		if err != nil {
			return err
		}
		brokers[result.MessageQueue.BrokerName] = true
	}
	w.saw("brokers", sorted(brokers)...)
	got := &seen{}
	to, err := w.consume("consumer", got.accept)
	if err != nil {
		return err
	}
	if err = got.await(4 * messages); err != nil {
		return fmt.Errorf("%w; got %v", err, got.distinct())
	}
	w.saw("times", strconv.Itoa(len(got.all())))
	return stop(to, from)
}

func stop(to rocketmq.PushConsumer, from rocketmq.Producer) error {
	if err := to.Shutdown(); err != nil {
		return err
	}
	return from.Shutdown()
}
