package proxy

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

const interfacesEvery = 10 * time.Second

// Own knows what belongs to the proxy itself: its listeners, whatever they serve, and the addresses of the machine's
// interfaces. The zero value knows nothing yet and is ready to use.
type Own struct {
	mu         sync.Mutex
	listeners  atomic.Pointer[[]netip.AddrPort]
	interfaces atomic.Pointer[map[netip.Addr]bool]
	refreshed  atomic.Int64 // unix nanoseconds
}

// AddListener notes the address of a listener of this process: the proxy's, metrics or admin. Others than TCP are
// passed over.
func (o *Own) AddListener(addr net.Addr) {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return
	}
	ap := tcp.AddrPort()
	ap = netip.AddrPortFrom(ap.Addr().Unmap().WithZone(""), ap.Port())
	o.mu.Lock()
	defer o.mu.Unlock()
	var list []netip.AddrPort
	if old := o.listeners.Load(); old != nil {
		list = append(list, *old...)
	}
	list = append(list, ap)
	o.listeners.Store(&list)
}

// IsListener reports whether a connection to an address would reach a listener of this process. A listener on all
// addresses is reached at loopback and at every interface; connecting to the unspecified address reaches loopback.
func (o *Own) IsListener(a netip.AddrPort) bool {
	list := o.listeners.Load()
	if list == nil {
		return false
	}
	addr := a.Addr().Unmap().WithZone("")
	for _, l := range *list {
		if l.Port() != a.Port() {
			continue
		}
		if l.Addr() == addr || addr.IsUnspecified() || l.Addr().IsUnspecified() && (addr.IsLoopback() || o.IsInterface(addr)) {
			return true
		}
	}
	return false
}

// IsInterface reports whether an address is that of an own interface, loopback excepted. The list is at most 10 s old.
func (o *Own) IsInterface(addr netip.Addr) bool {
	now := time.Now().UnixNano()
	if last := o.refreshed.Load(); (last == 0 || now-last > int64(interfacesEvery)) && o.refreshed.CompareAndSwap(last, now) {
		o.refresh()
	}
	set := o.interfaces.Load()
	return set != nil && (*set)[addr.Unmap().WithZone("")]
}

func (o *Own) refresh() {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return // the last list stands
	}
	set := map[netip.Addr]bool{}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok && !ip.IsLoopback() {
				set[ip.Unmap()] = true
			}
		}
	}
	o.interfaces.Store(&set)
}
