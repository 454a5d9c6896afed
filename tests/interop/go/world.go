package main

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const (
	queues   = 4
	waitMost = 60 * time.Second
	poll     = 20 * time.Millisecond
)

// world is where a scenario runs and what it saw.
type world struct {
	nameServer string
	prefix     string
	clients    int
	facts      map[string]string
}

func newWorld(nameServer, prefix string) *world {
	return &world{nameServer: nameServer, prefix: prefix, facts: map[string]string{}}
}

func (w *world) topic() string { return w.prefix + "-topic" }

func (w *world) resolver() primitive.NsResolver {
	return primitive.NewPassthroughResolver([]string{w.nameServer})
}

// instance names each client apart, so that each has its own client id.
func (w *world) instance() string {
	w.clients++
	return fmt.Sprintf("%s-%d", w.prefix, w.clients)
}

func (w *world) producerOptions(more ...producer.Option) []producer.Option {
	return append([]producer.Option{
		producer.WithNsResolver(w.resolver()),
		producer.WithGroupName(w.prefix + "-producer"),
		producer.WithInstanceName(w.instance()),
		producer.WithDefaultTopicQueueNums(queues),
		producer.WithSendMsgTimeout(20 * time.Second),
	}, more...)
}

// producer starts a producer and lets the topic come into being by a message.
func (w *world) producer(more ...producer.Option) (rocketmq.Producer, error) {
	made, err := rocketmq.NewProducer(w.producerOptions(more...)...)
	if err != nil {
		return nil, err
	}
	if err = made.Start(); err != nil {
		return nil, err
	}
	_, err = made.SendSync(context.Background(), w.message("first", "first"))
	return made, err
}

func (w *world) message(tag, body string) *primitive.Message {
	return primitive.NewMessage(w.topic(), []byte(body)).WithTag(tag).WithKeys([]string{"key-" + body})
}

// consume starts a push consumer of messages tagged "tag" from the first message on.
func (w *world) consume(group string, listen listener, more ...consumer.Option) (rocketmq.PushConsumer, error) {
	options := append([]consumer.Option{
		consumer.WithNsResolver(w.resolver()),
		consumer.WithGroupName(w.prefix + "-" + group),
		consumer.WithInstance(w.instance()),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	}, more...)
	made, err := rocketmq.NewPushConsumer(options...)
	if err != nil {
		return nil, err
	}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: "tag"}
	if err = made.Subscribe(w.topic(), selector, listen); err != nil {
		return nil, err
	}
	return made, made.Start()
}

type listener func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error)

// seen keeps what listeners were given, in order.
type seen struct {
	lock     sync.Mutex
	messages []*primitive.MessageExt
}

func (s *seen) add(messages []*primitive.MessageExt) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.messages = append(s.messages, messages...)
}

func (s *seen) all() []*primitive.MessageExt {
	s.lock.Lock()
	defer s.lock.Unlock()
	return append([]*primitive.MessageExt(nil), s.messages...)
}

// accept notes everything and wants nothing again.
func (s *seen) accept(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	s.add(messages)
	return consumer.ConsumeSuccess, nil
}

// distinct returns bodies in the order of the alphabet, each once.
func (s *seen) distinct() []string {
	bodies := map[string]bool{}
	for _, message := range s.all() {
		bodies[string(message.Body)] = true
	}
	return sorted(bodies)
}

func (s *seen) await(count int) error {
	return await(fmt.Sprintf("%d messages", count), func() bool { return len(s.distinct()) >= count })
}

func sorted(set map[string]bool) []string {
	words := make([]string, 0, len(set))
	for word := range set {
		words = append(words, word)
	}
	sort.Strings(words)
	return words
}

func (w *world) saw(name string, words ...string) { w.facts[name] = strings.Join(words, " ") }

func await(what string, condition func() bool) error {
	for deadline := time.Now().Add(waitMost); time.Now().Before(deadline); time.Sleep(poll) {
		if condition() {
			return nil
		}
	}
	return fmt.Errorf("no %s in %s", what, waitMost)
}
