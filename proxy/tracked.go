package proxy

import "sync"

// tracked are all of a kind that are running. They can be listed, and their end can be waited for.
type tracked[T placed[T]] struct {
	mu    sync.Mutex
	empty *sync.Cond
	ring  place[T] // before the first and behind the last
	n     int
}

// place is where one of them stands. It is a part of what is tracked, so that coming and going cost nothing.
type place[T any] struct {
	prev, next *place[T]
	of         T
}

// placed is what can be tracked, once at a time.
type placed[T any] interface{ where() *place[T] }

func (t *tracked[T]) init() {
	t.empty = sync.NewCond(&t.mu)
	t.ring.prev, t.ring.next = &t.ring, &t.ring
}

func (t *tracked[T]) add(x T) {
	p := x.where()
	t.mu.Lock()
	p.of = x
	p.prev, p.next = t.ring.prev, &t.ring
	p.prev.next, p.next.prev = p, p
	t.n++
	t.mu.Unlock()
}

// remove takes it out, if it is in.
func (t *tracked[T]) remove(x T) {
	p := x.where()
	t.mu.Lock()
	if p.next != nil {
		p.prev.next, p.next.prev = p.next, p.prev
		*p = place[T]{}
		t.n--
	}
	if t.n == 0 {
		t.empty.Broadcast()
	}
	t.mu.Unlock()
}

// wait returns once nothing is running.
func (t *tracked[T]) wait() {
	t.mu.Lock()
	for t.n > 0 {
		t.empty.Wait()
	}
	t.mu.Unlock()
}

// snapshot gives all of now, the oldest first.
func (t *tracked[T]) snapshot() []T {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]T, 0, t.n)
	for p := t.ring.next; p != &t.ring; p = p.next {
		out = append(out, p.of)
	}
	return out
}
