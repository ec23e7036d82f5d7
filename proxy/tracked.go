package proxy

import "sync"

// tracked is a set of what is running, which can be waited for.
type tracked[T comparable] struct {
	mu    sync.Mutex
	empty *sync.Cond
	all   map[T]struct{}
}

func (t *tracked[T]) init() {
	t.empty = sync.NewCond(&t.mu)
	t.all = map[T]struct{}{}
}

func (t *tracked[T]) add(x T) {
	t.mu.Lock()
	t.all[x] = struct{}{}
	t.mu.Unlock()
}

func (t *tracked[T]) remove(x T) {
	t.mu.Lock()
	delete(t.all, x)
	if len(t.all) == 0 {
		t.empty.Broadcast()
	}
	t.mu.Unlock()
}

// wait returns once nothing is running.
func (t *tracked[T]) wait() {
	t.mu.Lock()
	for len(t.all) > 0 {
		t.empty.Wait()
	}
	t.mu.Unlock()
}

func (t *tracked[T]) snapshot() []T {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]T, 0, len(t.all))
	for x := range t.all {
		out = append(out, x)
	}
	return out
}
