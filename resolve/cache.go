package resolve

import (
	"container/list"
	"sync"
	"time"
)

// cache keeps answers by question until they expire, and the most recently used ones when there are too many.
type cache struct {
	mu    sync.Mutex
	size  int
	byKey map[key]*list.Element
	order *list.List // most recent first
}

type cached struct {
	key     key
	result  result
	expires time.Time
}

func newCache(size int) *cache {
	return &cache{size: size, byKey: map[key]*list.Element{}, order: list.New()}
}

func (c *cache) get(k key) (result, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.byKey[k]
	if e == nil {
		return result{}, false
	}
	entry := e.Value.(*cached)
	if !time.Now().Before(entry.expires) {
		c.order.Remove(e)
		delete(c.byKey, k)
		return result{}, false
	}
	c.order.MoveToFront(e)
	return entry.result, true
}

func (c *cache) put(k key, r result) {
	ttl := min(max(r.ttl, minTTL), maxTTL)
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.byKey[k]; e != nil {
		c.order.Remove(e)
	}
	c.byKey[k] = c.order.PushFront(&cached{k, r, time.Now().Add(ttl)})
	for c.order.Len() > c.size {
		oldest := c.order.Back()
		c.order.Remove(oldest)
		delete(c.byKey, oldest.Value.(*cached).key)
	}
}
